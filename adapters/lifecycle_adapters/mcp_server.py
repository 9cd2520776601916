"""One MCP server: started, asked, watched, started again. Its connection lives in a task of its own."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

from lifecycle.errors import LifecycleError, ToolError
from lifecycle.services.points import ToolOutcome
from lifecycle.services.tool import ToolContext
from lifecycle.vocabulary.events import EventData
from lifecycle.vocabulary.failures import render_chain
from lifecycle.vocabulary.messages import ToolCallBlock
from lifecycle.vocabulary.values import mend

from .mcp_results import outcome_of

log = logging.getLogger("lifecycle")

_PROBE_AFTER_SECONDS = 1.0
"""After how long without a word a server is asked whether it lives before it is handed a call that changes anything."""
_PROBE_SECONDS = 5.0
_CONNECTION_CLOSED = -32000
_RECORD_AFTER_SECONDS = 1.0
_LONGEST_MESSAGE = 2000
_LISTEN_AGAIN_SECONDS = 5.0

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


class McpProgressed(EventData, frozen=True):
    """The same as a record of the session, for whoever watches the agent; at most one a second for each call."""

    type: ClassVar[str] = "mcp/progress"
    server: str
    call_id: str
    progress: float
    total: float | None = None
    message: str | None = None

    @classmethod
    def of(cls, told: McpProgress) -> McpProgressed:
        known = told.total is not None and math.isfinite(told.total)
        return cls(
            server=mend(told.server),
            call_id=told.call.id,
            progress=told.progress if math.isfinite(told.progress) else 0.0,
            total=told.total if known else None,
            message=None if told.message is None else mend(told.message)[:_LONGEST_MESSAGE],
        )


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a server is started again: at most `most` times within `seconds`."""

    most: int = 3
    seconds: float = 60.0


@dataclass(slots=True, eq=False)
class _Connection:
    client: Client
    gone: anyio.Event = field(default_factory=anyio.Event)
    outdated: bool = False
    """Whether the server has said that its tools changed since they were read."""
    heard: float = field(default_factory=anyio.current_time)
    doubtful: bool = False
    """Whether it let a call go unanswered; the next one asks first whether it lives."""


class McpServer:
    """One server and its tools, from the beginning of the block to its end.

    Args:
        name: What it is called in messages, and in front of the names of tools that collide.
        target: See `Target`.
        start_seconds: How long it may take to start and to list its tools.
        call_seconds: How long a call may take; then it is cancelled, and the model gets an error.
        restarts: See `Restarts`.
        on_progress: Called with each `McpProgress`; what it raises is logged. The session has `mcp/progress` records.

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
        self._unreachable = False
        self._group: TaskGroup | None = None
        self._offered: list[types.Tool] = []
        self.version = 0
        """Grows whenever what is offered may have changed."""

    async def __aenter__(self) -> Self:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        try:
            await self._connected()
        except BaseException:
            self._group.cancel_scope.cancel()
            await self._group.__aexit__(None, None, None)
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
        """The tools as the server described them last: whenever it was started, or said that they changed."""
        return tuple(self._offered)

    async def refresh(self) -> None:
        """Read the tools again if the server has said that they changed, or has to be started again.

        What cannot be read stays as it was. A server that could not be reached is left to the next call.
        """
        doubtful = self._connection is not None and self._connection.doubtful
        if self._unreachable or doubtful:  # those who need it try again, not everybody at every step: tries are counted
            return
        try:
            connection = await self._connected()
            if connection.outdated:
                await self._list(connection)
        except (McpServerError, ToolError) as error:
            log.warning("%s", error)

    async def _list(self, connection: _Connection) -> None:
        connection.outdated = False
        try:
            with anyio.fail_after(self._start_seconds):
                self._offered = await _listed(connection.client)
        except Exception as error:
            unreadable = not isinstance(error, (MCPError, TimeoutError))
            if not (unreadable and self._connection is connection):  # whose tools go on as they were known
                self._drop(connection)
            raise McpServerError(f"the MCP server {self.name} does not list its tools: {_why(error)}") from error
        connection.heard = anyio.current_time()
        self.version += 1

    async def call(self, offered: types.Tool, arguments: dict[str, Any], context: ToolContext) -> ToolOutcome:
        """Call a tool of the server. Cancellation of the scope around it cancels the call there, too.

        Raises:
            ToolError: if the server dies, hangs, cannot be started again, or refuses the call.
        """
        reads = reads_only(offered)
        connection = await self._connected()
        silent = anyio.current_time() - connection.heard > _PROBE_AFTER_SECONDS
        if (connection.doubtful or (silent and not reads)) and not await self._alive(connection):
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
        recorded = -math.inf

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            nonlocal recorded
            now = connection.heard = anyio.current_time()
            told = McpProgress(self.name, context.call, progress, total, message)
            try:
                if now - recorded >= _RECORD_AFTER_SECONDS:
                    recorded = now
                    context.append(McpProgressed.of(told))
                if self._on_progress is not None:
                    self._on_progress(told)
            except Exception:
                log.exception("the progress of %s, a tool of the MCP server %s, is lost", offered.name, self.name)

        with anyio.move_on_after(self._call_seconds):
            try:
                result = await connection.client.call_tool(offered.name, arguments, progress_callback=progressed)
                return outcome_of(result)
            except MCPError:
                raise
            except Exception as error:  # also what the client cannot read
                raise ToolError(
                    code="MCP_ERROR",
                    message=f"the MCP server {self.name} answered {offered.name} with something that is no result: "
                    f"{_why(error)}",
                ) from error
            finally:
                connection.heard = anyio.current_time()
        connection.doubtful = True
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
                connection.heard, connection.doubtful = anyio.current_time(), False
                return True
            except MCPError as error:
                if error.code != _CONNECTION_CLOSED:
                    return True
            except Exception:  # it answers, whatever that may be
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
            self._unreachable = True
            try:
                with anyio.fail_after(self._start_seconds):
                    connection: _Connection = await self._group.start(self._hold)
            except Exception as error:
                raise McpServerError(_not_there(self.name, self._target, _why(error))) from error
            await self._list(connection)
            self._unreachable = False
            self._connection = connection
            return connection

    async def _hold(self, *, task_status: TaskStatus[_Connection]) -> None:
        started = False
        connection: _Connection | None = None

        async def changed(message: object) -> None:  # how servers of before 2026 say it
            if connection is not None and isinstance(message, types.ToolListChangedNotification):
                connection.outdated = True

        try:
            async with Client(self._transport(), message_handler=changed) as client:
                connection = _Connection(client)
                started = True
                task_status.started(connection)
                async with anyio.create_task_group() as listening:
                    listening.start_soon(_listen, connection)
                    await connection.gone.wait()
                    listening.cancel_scope.cancel()
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


def reads_only(offered: types.Tool) -> bool:
    """Whether the server says that the tool changes nothing."""
    return offered.annotations is not None and offered.annotations.read_only_hint is True


async def _listen(connection: _Connection) -> None:
    """Hear from servers since 2026 that their tools changed."""
    while True:
        try:
            async with connection.client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    connection.outdated = True
            return
        except SubscriptionLost:
            connection.outdated = True  # what was said meanwhile nobody heard
        except (ListenNotSupportedError, MCPError, TimeoutError):
            return  # it does not say
        await anyio.sleep(_LISTEN_AGAIN_SECONDS)


async def _listed(client: Client) -> list[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    seen: set[str] = set()
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            return tools
        if cursor in seen:
            raise ValueError(f"page {cursor!r} follows itself")
        seen.add(cursor)


def _not_there(name: str, target: Target, why: str) -> str:
    """Why a server is not there, and what to do. Neither arguments nor the query of a URL are shown: they hold keys."""
    if isinstance(target, str):
        where = _shown(target)
        if where is None:
            return f"the URL of the MCP server {name} is none; it looks like http://127.0.0.1:8000/mcp"
        return f"the MCP server {name} cannot be reached at {where}: {why}; is it running, and the URL right?"
    if isinstance(target, StdioServerParameters):
        return f"the MCP server {name} cannot be started by {target.command}: {why}; try the command by hand"
    return f"the MCP server {name} cannot be reached: {why}"


def _shown(url: str) -> str | None:
    """Scheme, host and path; None if it has not got the first two."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if parts.scheme in ("http", "https") and host else None


def _why(error: BaseException) -> str:
    members: tuple[BaseException, ...] = getattr(error, "exceptions", ())  # only groups have them
    if len(members) == 1:
        return _why(members[0])
    if isinstance(error, TimeoutError):
        return "it took too long"
    parts = render_chain(error).split(_CAUSED)  # clients wrap an error in another one that says the same
    return mend(_CAUSED.join(dict.fromkeys(parts)))


_CAUSED = ", caused by "
