"""Tools of MCP servers, over stdio or streamable HTTP, on the official client (the `mcp` extra).

files = StdioServerParameters(command="my-file-server")
async with McpServer("files", files) as one, McpServer("search", "http://127.0.0.1:8000/mcp") as other:
    async with Agent(model, tools=[read, *tools_of(one, other, beside=[read])]) as agent:
        ...

A server that dies or hangs costs an error result, and is started again when it is next needed.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeAlias
from zlib import crc32

import anyio
from anyio.abc import TaskGroup, TaskStatus
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from mcp import Client, MCPError, StdioServerParameters, types

from lifecycle.errors import LifecycleError, NotJsonError, ToolError
from lifecycle.services.points import ToolOutcome
from lifecycle.services.schema import Check
from lifecycle.services.tool import Tool, ToolContext
from lifecycle.vocabulary.events import ToolFault
from lifecycle.vocabulary.failures import render_chain
from lifecycle.vocabulary.messages import ImageBlock, TextBlock, ToolCallBlock
from lifecycle.vocabulary.requests import ToolSpec
from lifecycle.vocabulary.values import freeze, freeze_object, mend

log = logging.getLogger("lifecycle")

_PROBE_AFTER_SECONDS = 1.0
"""After how long without a word a server is asked whether it lives before it is handed a call that changes anything."""
_PROBE_SECONDS = 5.0
_LONGEST_NAME = 64
_CONNECTION_CLOSED = -32000

Target: TypeAlias = StdioServerParameters | str | Callable[[], Any]
"""A command to run, the URL of a server that speaks streamable HTTP, or a function that makes a transport."""


class McpServerError(LifecycleError):
    """An MCP server cannot be started, reached or understood; the message names it."""


@dataclass(frozen=True, slots=True)
class McpProgress:
    """How far a call of a server's tool has come, by the server's own measure."""

    server: str
    call: ToolCallBlock
    progress: float
    total: float | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a server is started again: at most `most` times within `seconds`."""

    most: int = 3
    seconds: float = 60.0


@dataclass(slots=True, eq=False)
class _Connection:
    client: Client
    gone: anyio.Event = field(default_factory=anyio.Event)
    heard: float = field(default_factory=anyio.current_time)


class McpServer:
    """One server and its tools, from the beginning of the block to its end.

    Args:
        name: What it is called in messages, and in front of the names of tools that collide.
        target: See `Target`.
        start_seconds: How long it may take to start and to list its tools.
        call_seconds: How long a call may take; then it is cancelled, and the model gets an error.
        restarts: See `Restarts`.
        on_progress: Called with each `McpProgress`; what it raises is logged.

    Raises:
        McpServerError: on entry, if the server cannot be started or reached.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        *,
        start_seconds: float = 30.0,
        call_seconds: float = 300.0,
        restarts: Restarts | None = None,
        on_progress: Callable[[McpProgress], object] | None = None,
    ) -> None:
        self.name = name
        self._target = target
        self._start_seconds, self._call_seconds = start_seconds, call_seconds
        self._restarts = restarts or Restarts()
        self._on_progress = on_progress
        self._connection: _Connection | None = None
        self._connecting = anyio.Lock()
        self._starts: deque[float] = deque()
        self._group: TaskGroup | None = None
        self._offered: list[types.Tool] = []

    async def __aenter__(self) -> Self:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        try:
            connection = await self._connected()
            with anyio.fail_after(self._start_seconds):
                self._offered = await _listed(connection.client)
        except BaseException as error:
            self._group.cancel_scope.cancel()
            await self._group.__aexit__(None, None, None)
            if isinstance(error, (MCPError, TimeoutError)):
                raise McpServerError(f"the MCP server {self.name} does not list its tools: {_why(error)}") from error
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        group, self._group = self._group, None
        if group is None:
            return None
        self._drop(self._connection)
        return await group.__aexit__(kind, error, trace)

    @property
    def offered(self) -> tuple[types.Tool, ...]:
        """The tools as the server described them when it was first started."""
        return tuple(self._offered)

    async def call(self, offered: types.Tool, arguments: dict[str, Any], context: ToolContext) -> ToolOutcome:
        """Call a tool of the server. Cancellation of the scope around it cancels the call there, too.

        Raises:
            ToolError: if the server dies, hangs, cannot be started again, or refuses the call.
        """
        reads = _reads_only(offered)
        connection = await self._connected()
        silent = anyio.current_time() - connection.heard > _PROBE_AFTER_SECONDS
        if silent and not reads and not await self._alive(connection):
            connection = await self._connected()
        try:
            return await self._asked(connection, offered, arguments, context)
        except MCPError as error:
            if error.code != _CONNECTION_CLOSED:
                raise ToolError(
                    code="MCP_ERROR", message=f"the MCP server {self.name} refused the call: {mend(str(error))}"
                ) from error
            self._drop(connection)
            if not reads:
                raise self._ended(offered) from error
        try:  # what only reads may be asked again
            return await self._asked(await self._connected(), offered, arguments, context)
        except MCPError as error:
            raise self._ended(offered) from error

    async def _asked(
        self, connection: _Connection, offered: types.Tool, arguments: dict[str, Any], context: ToolContext
    ) -> ToolOutcome:
        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            connection.heard = anyio.current_time()
            if self._on_progress is not None:
                try:
                    self._on_progress(McpProgress(self.name, context.call, progress, total, message))
                except Exception:
                    log.exception("a listener to the progress of %s failed", self.name)

        with anyio.move_on_after(self._call_seconds):
            result = await connection.client.call_tool(offered.name, arguments, progress_callback=progressed)
            connection.heard = anyio.current_time()
            return _outcome(result)
        await self._alive(connection)
        raise ToolError(
            code="TIMEOUT",
            message=f"the MCP server {self.name} did not answer {offered.name} within {self._call_seconds:g} seconds; "
            "the call was cancelled and may have had effects",
        )

    async def _alive(self, connection: _Connection) -> bool:
        """Whether the server still answers; one that does not is let go, so that the next call starts it again."""
        with anyio.move_on_after(_PROBE_SECONDS):
            try:
                await connection.client.session.list_tools()
                connection.heard = anyio.current_time()
                return True
            except MCPError as error:
                if error.code != _CONNECTION_CLOSED:
                    return True
        self._drop(connection)
        return False

    def _ended(self, offered: types.Tool) -> ToolError:
        return ToolError(
            code="MCP_SERVER_ENDED",
            message=f"the MCP server {self.name} ended while {offered.name} ran, which may have had effects; "
            "it is started again for the next call",
        )

    # The connection, which lives in a task of its own: its scopes must not be those of a call.

    async def _connected(self) -> _Connection:
        if self._group is None:
            raise McpServerError(f"the MCP server {self.name} is not running; call its tools within its block")
        async with self._connecting:
            if self._connection is not None:
                return self._connection
            now = anyio.current_time()
            while self._starts and now - self._starts[0] > self._restarts.seconds:
                self._starts.popleft()
            if len(self._starts) > self._restarts.most:
                raise ToolError(
                    code="MCP_SERVER_ENDED",
                    message=f"the MCP server {self.name} was started again {self._restarts.most} times within "
                    f"{self._restarts.seconds:g} seconds and is left alone for now",
                )
            self._starts.append(now)
            try:
                with anyio.fail_after(self._start_seconds):
                    connection: _Connection = await self._group.start(self._hold)
            except Exception as error:
                raise McpServerError(f"the MCP server {self.name} cannot be started: {_why(error)}") from error
            self._connection = connection
            return connection

    async def _hold(self, *, task_status: TaskStatus[_Connection]) -> None:
        started = False
        try:
            async with Client(self._transport()) as client:
                connection = _Connection(client)
                started = True
                task_status.started(connection)
                await connection.gone.wait()
        except Exception as error:
            if not started:
                raise
            log.info("the MCP server %s did not end in order: %s", self.name, _why(error))

    def _transport(self) -> Any:
        target = self._target
        return target if isinstance(target, (str, StdioServerParameters)) else target()

    def _drop(self, connection: _Connection | None) -> None:
        if connection is not None:
            connection.gone.set()
            if self._connection is connection:
                self._connection = None


def tools_of(*servers: McpServer, beside: Iterable[Tool] = ()) -> list[Tool]:
    """The tools of running servers, each under its own name, or as `server_tool` where two tools have the same.

    A tool that its server calls read-only runs in parallel with others, every other one alone. What providers would not
    take as a name is spelt with `_`.

    Args:
        beside: Tools that the agent has besides; their names are taken.
    """
    named = [(server, offered, _name(offered.name)) for server in servers for offered in server.offered]
    taken = Counter([*(name for _, _, name in named), *(tool.name for tool in beside)])
    tools: list[Tool] = []
    used: set[str] = {tool.name for tool in beside}
    for server, offered, plain in named:
        name = plain if taken[plain] == 1 else _name(f"{server.name}_{plain}")
        while name in used:
            name = _name(f"{name}_")
        used.add(name)
        tools.append(_tool(server, offered, name))
    return tools


def _tool(server: McpServer, offered: types.Tool, name: str) -> Tool:
    async def body(context: ToolContext, **kwargs: Any) -> ToolOutcome:
        try:
            return await server.call(offered, kwargs["arguments"], context)
        except McpServerError as error:
            raise ToolError(code="MCP_SERVER_ENDED", message=str(error)) from error

    try:
        schema = freeze_object(offered.input_schema, "input_schema")
    except NotJsonError as wrong:
        raise McpServerError(
            f"the schema of {offered.name} of the MCP server {server.name} is no JSON: {wrong}"
        ) from wrong
    spec = ToolSpec(name=name, description=mend(offered.description or offered.title or ""), input_schema=schema)
    return Tool(spec, body, check=_check(offered), context="context", parallel=_reads_only(offered))


def _check(offered: types.Tool) -> Check:
    """Judges arguments by the schema of the tool; one that is no schema judges nothing, and the server has to."""
    schema: Any = offered.input_schema
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        schema = {}
    judge: Any = Draft202012Validator(schema)

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        for wrong in judge.iter_errors(arguments):
            where = ".".join(map(str, wrong.absolute_path))
            raise ValueError(f"{where}: {wrong.message}" if where else wrong.message)
        return {"arguments": arguments}

    return check


def _reads_only(offered: types.Tool) -> bool:
    return offered.annotations is not None and offered.annotations.read_only_hint is True


def _outcome(result: types.CallToolResult) -> ToolOutcome:
    content = tuple(block for part in result.content if (block := _block(part)) is not None)
    value = None
    if result.structured_content is not None:
        try:
            value = freeze(result.structured_content)
        except NotJsonError:
            value = None
    if not content and value is not None:
        content = (TextBlock(text=mend(str(result.structured_content))),)
    fault = ToolFault(code="TOOL_FAILED") if result.is_error else None
    return ToolOutcome(content, error=fault) if fault else ToolOutcome(content, value=value)


def _block(part: Any) -> TextBlock | ImageBlock | None:
    match part:
        case types.TextContent():
            return TextBlock(text=mend(part.text))
        case types.ImageContent():
            return ImageBlock(media_type=part.mime_type, data=part.data)
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return TextBlock(text=mend(f"{resource.uri}:\n{resource.text}"))
        case types.EmbeddedResource(resource=resource):
            return TextBlock(text=f"({resource.uri}: {resource.mime_type or 'data'} that is no text)")
        case types.ResourceLink():
            return TextBlock(text=mend(f"{part.name}: {part.uri}"))
        case types.AudioContent():
            return TextBlock(text=f"(sound, {part.mime_type})")
        case _:
            return None


async def _listed(client: Client) -> list[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            return tools


def _name(name: str) -> str:
    """A name that every provider takes."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name) or "tool"
    if len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[: _LONGEST_NAME - 9]}_{crc32(name.encode()):08x}"


def _why(error: BaseException) -> str:
    members: tuple[BaseException, ...] = getattr(error, "exceptions", ())  # only groups have them
    if len(members) == 1:
        return _why(members[0])
    return "it took too long" if isinstance(error, TimeoutError) else mend(render_chain(error))
