"""The tools of MCP servers as tools of an agent: names, schemas, and an agent that follows what they offer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from mcp import types
from referencing import Registry

from lifecycle.driver.agent import Agent
from lifecycle.errors import NotJsonError, ToolError
from lifecycle.services.hooks import Hooks
from lifecycle.services.points import StepPayload, ToolOutcome
from lifecycle.services.schema import Check
from lifecycle.services.tool import Tool, ToolContext
from lifecycle.vocabulary.requests import ToolSpec
from lifecycle.vocabulary.values import freeze_object, mend

from .mcp_server import McpServer, McpServerError, reads_only

_LONGEST_NAME = 64


def offering(*servers: McpServer) -> Hooks:
    """Hooks that offer an agent the tools of running servers, and follow what the servers offer.

    From the next step on after a server has said that its tools changed, or was started again with others, the agent
    has those. Names are those of `tools_of`; what else the agent has is left alone.
    """
    hooks = Hooks(name="mcp")
    given: WeakKeyDictionary[Agent, tuple[tuple[int, ...], dict[str, Tool]]] = WeakKeyDictionary()

    @hooks.on("agent/step-boundary")
    async def follow(payload: StepPayload) -> None:
        agent = payload.agent
        if not isinstance(agent, Agent):
            return
        with payload.signal.scope():  # a server that hangs does not hold up a cancel
            for server in servers:
                await server.refresh()
        versions = tuple(server.version for server in servers)
        known, ours = given.get(agent, ((), {}))
        if versions == known:
            return
        for name in [one.name for one in agent.tools if ours.get(one.name) is one]:
            agent.tools.unregister(name)
        made = tools_of(*servers, beside=agent.tools)
        given[agent] = versions, {one.name: agent.tools.register(one) for one in made}

    return hooks


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
    return Tool(spec, body, check=_check(offered), context="context", parallel=reads_only(offered))


def _check(offered: types.Tool) -> Check:
    """Judges arguments by the schema of the tool; one that cannot be used judges nothing, and the server has to."""
    schema: Any = offered.input_schema
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        schema = {}
    # An empty registry: the usual one would fetch what a reference names, from wherever the server likes.
    judge: Any = Draft202012Validator(schema, registry=Registry())

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            wrong: Any = next(judge.iter_errors(arguments), None)
        except Exception:  # a reference that leads nowhere, or in a circle; a pattern that is none
            wrong = None
        if wrong is not None:
            where = ".".join(map(str, wrong.absolute_path))
            raise ValueError(f"{where}: {wrong.message}" if where else wrong.message)
        return {"arguments": arguments}

    return check


def _name(name: str) -> str:
    """A name that every provider takes."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name) or "tool"
    if len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[: _LONGEST_NAME - 9]}_{crc32(name.encode()):08x}"
