"""The tools of a real MCP server, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")

from lifecycle_adapters.mcp import McpProgress, McpProgressed, McpServer, McpServerError, Restarts, offering, tools_of
from mcp import StdioServerParameters

from lifecycle import Agent, tool
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.messages import TextBlock, ToolResultBlock
from tests.adapters.server import reply, serving

pytestmark = pytest.mark.anyio
SERVER = Path(__file__).with_name("mcp_server.py")


def stdio(folder: Path) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=[str(SERVER), str(folder)])


def notes(folder: Path) -> list[str]:
    return (folder / "notes").read_text().splitlines()


def pids(folder: Path) -> list[int]:
    return [int(note.split()[1]) for note in notes(folder) if note.startswith("started")]


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110  # it becomes true in another process
        await anyio.sleep(0.01)


class Results:
    """What came of the calls of one turn: text, and the code of the error if there was one."""

    def __init__(self, agent: Agent) -> None:
        self.told: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        for event in agent.session.events:
            result: Any = event.data
            if event.type == "tool/result":
                block: ToolResultBlock = result.message.content[0]
                self.told[block.tool_call_id] = "".join(p.text for p in block.content if isinstance(p, TextBlock))
                if result.error is not None:
                    self.errors[block.tool_call_id] = result.error.code


async def turn(*calls: tuple[str, dict[str, Any]], tools: Any) -> Results:
    """One turn in which the model asks for these calls, one a step, and is answered."""
    replies = [Reply(calls=[call]) for call in calls]
    async with Agent(ScriptedModel(*replies, Reply(text="done")), tools=tools) as agent:
        agent.followup("go")
        await agent.when_idle()
        assert [event.type for event in agent.session.events][-1] == "turn/end"
        return Results(agent)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@asynccontextmanager
async def over_http(folder: Path, port: int) -> AsyncGenerator[str]:
    command = [sys.executable, str(SERVER), str(folder), "http", str(port)]
    async with await anyio.open_process(command, stdout=None, stderr=None) as process:
        try:
            while True:
                try:
                    async with await anyio.connect_tcp("127.0.0.1", port):
                        break
                except OSError:
                    await anyio.sleep(0.02)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            with suppress(ProcessLookupError):
                process.kill()


async def test_tools_come_with_their_schemas_and_run_over_stdio_and_over_http(tmp_path: Path) -> None:
    with anyio.fail_after(40):
        async with over_http(tmp_path, free_port()) as url:
            for target in (stdio(tmp_path), url):
                async with McpServer("s", target) as server:
                    tools = {one.name: one for one in tools_of(server)}
                    assert tools["add"].spec.description == "Adds two numbers."
                    assert tools["add"].spec.input_schema["required"] == ("a", "b")
                    assert (tools["add"].parallel, tools["write"].parallel) == (True, False)
                    results = await turn(
                        ("add", {"a": 1, "b": 2}),
                        ("add", {"a": "x", "b": 2}),
                        ("fail", {}),
                        tools=[*tools.values()],
                    )
                    assert next(iter(results.told.values())) == "3"
                    assert [*results.errors.values()] == ["INVALID_ARGUMENTS", "TOOL_FAILED"]
                    assert "'x' is not of type 'integer'" in [*results.told.values()][1]
                    assert "Error executing tool fail" in [*results.told.values()][2]


async def test_a_server_that_dies_in_a_call_is_an_error_result_and_is_there_for_the_next(tmp_path: Path) -> None:
    with anyio.fail_after(40):
        async with McpServer("files", stdio(tmp_path)) as server:
            results = await turn(("die", {}), ("write", {"text": "x"}), tools=tools_of(server))

    told = [*results.told.values()]
    assert "the MCP server files ended while die ran, which may have had effects" in told[0]
    assert told[1] == "wrote x"
    assert [*results.errors.values()] == ["MCP_SERVER_ENDED"]
    assert notes(tmp_path).count("die") == 1  # a call that may have had effects is not made again
    assert len(pids(tmp_path)) == 2


async def test_a_server_that_dies_behind_its_url_is_reached_again_once_somebody_has_started_it(tmp_path: Path) -> None:
    port = free_port()
    with anyio.fail_after(40):
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(over_http(tmp_path, port))
            server = await stack.enter_async_context(McpServer("web", url))
            hooks = offering(server)

            @hooks.on("tools/pre-execute")
            async def start_it(payload: Any, next: Any) -> Any:
                if payload.call.arguments == '{"text": "second"}':
                    await stack.enter_async_context(over_http(tmp_path, port))
                return await next()

            calls: list[tuple[str, dict[str, Any]]] = [
                ("die", {}),
                ("write", {"text": "first"}),
                ("write", {"text": "second"}),
            ]
            replies = [Reply(calls=[call]) for call in calls]
            async with Agent(ScriptedModel(*replies, Reply(text="done")), hooks=hooks) as agent:
                agent.followup("go")
                await agent.when_idle()
                results = Results(agent)

    told = [*results.told.values()]
    assert "the MCP server web ended while die ran" in told[0]
    assert f"the MCP server web cannot be reached at http://127.0.0.1:{port}/mcp: ConnectError" in told[1]
    assert told[2] == "wrote second"


async def test_a_call_that_only_reads_is_made_again_when_the_server_dies(tmp_path: Path) -> None:
    with anyio.fail_after(40):
        async with McpServer("files", stdio(tmp_path)) as server:
            results = await turn(("die_once", {}), tools=tools_of(server))

    assert ([*results.told.values()], results.errors) == (["survived"], {})


async def test_a_server_that_died_while_nobody_called_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lifecycle_adapters.mcp_server._PROBE_AFTER_SECONDS", 0.0)
    with anyio.fail_after(40):
        async with McpServer("files", stdio(tmp_path)) as server:
            os.kill(pids(tmp_path)[0], signal.SIGKILL)
            results = await turn(("write", {"text": "x"}), tools=tools_of(server))

    assert ([*results.told.values()], results.errors) == (["wrote x"], {})


async def test_a_server_that_dies_again_and_again_is_left_alone(tmp_path: Path) -> None:
    with anyio.fail_after(40):
        async with McpServer("files", stdio(tmp_path), restarts=Restarts(most=1)) as server:
            results = await turn(("die", {}), ("die", {}), ("die", {}), tools=tools_of(server))

    assert len(pids(tmp_path)) == 2
    assert "was started again 1 times within 60 seconds and is left alone" in [*results.told.values()][-1]


async def test_a_server_that_hangs_costs_its_time_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lifecycle_adapters.mcp_server._PROBE_SECONDS", 0.2)
    with anyio.fail_after(40):
        async with McpServer("files", stdio(tmp_path), call_seconds=0.5) as server:
            results = await turn(("hang", {}), ("write", {"text": "x"}), tools=tools_of(server))

    told = [*results.told.values()]
    assert "did not answer hang within 0.5 seconds" in told[0]
    assert told[1] == "wrote x"
    assert [*results.errors.values()] == ["TIMEOUT"]


async def test_a_cancel_does_not_wait_for_a_server_that_hangs_when_its_tools_are_read(tmp_path: Path) -> None:
    model = ScriptedModel(Reply(calls=[("f", {})]), Reply(text="done"))
    with anyio.fail_after(40):
        async with (
            McpServer("odd", odd(tmp_path, [offers("f")]), start_seconds=35) as server,
            Agent(model, hooks=offering(server)) as agent,
        ):

            @agent.hooks.on("tools/pre-execute")
            async def silence(payload: Any, next: Any) -> Any:
                odd(tmp_path, [offers("f")], silent=True)
                return await next()

            agent.followup("go")
            await until(lambda: (tmp_path / "script.json.asked").exists())
            agent.cancel()
            with anyio.fail_after(5):
                await agent.when_idle()
            end: Any = agent.session.events[-1].data

    assert end.reason.kind == "aborted"


async def test_progress_is_passed_on_and_a_cancel_reaches_the_server(tmp_path: Path) -> None:
    heard: list[McpProgress] = []
    with anyio.fail_after(40):
        async with McpServer("files", stdio(tmp_path), on_progress=heard.append) as server:
            model = ScriptedModel(Reply(calls=[("patient", {})]), Reply(text="after"))
            async with Agent(model, tools=tools_of(server)) as agent:
                agent.followup("go")
                await until(lambda: bool(heard))
                watched = [event.data for event in agent.session.events if isinstance(event.data, McpProgressed)]
                agent.cancel()
                await agent.when_idle()
                assert [*Results(agent).errors.values()] == ["ABORTED"]
            await until(lambda: "cancelled" in notes(tmp_path))
            results = await turn(("write", {"text": "after"}), tools=tools_of(server))

    assert (heard[0].server, heard[0].progress, heard[0].total, heard[0].message) == ("files", 1.0, 4.0, "on my way")
    assert [(told.server, told.progress, told.total, told.message) for told in watched] == [
        ("files", 1.0, 4.0, "on my way")
    ]
    assert [*results.told.values()] == ["wrote after"]
    assert len(pids(tmp_path)) == 1


async def test_an_agent_follows_what_the_server_offers_then_and_after_a_restart(tmp_path: Path) -> None:
    with anyio.fail_after(40):
        async with McpServer("files", stdio(tmp_path)) as server:
            calls = ["grow", "grown", "die", "reborn", "grown"]
            model = ScriptedModel(*(Reply(calls=[(name, {})]) for name in calls), Reply(text="done"))
            async with Agent(model, tools=[ours], hooks=offering(server)) as agent:
                agent.followup("go")
                await agent.when_idle()
                results = Results(agent)
                offered = [{spec.name for spec in request.tools} for request in model.requests]

    told = [*results.told.values()]
    assert told[:2] == ["there is more", "grown"]
    assert "ended while die ran" in told[2]
    assert told[3] == "grown"
    assert [*results.errors.values()] == ["MCP_SERVER_ENDED", "UNKNOWN_TOOL"]
    assert [("grown" in names, "reborn" in names) for names in offered] == [
        (False, False),
        (True, False),
        (True, False),
        (False, True),
        (False, True),
        (False, True),
    ]
    assert all("ours" in names for names in offered)


@tool
def ours() -> str:
    """Stays whatever the server does."""
    return "ours"


async def test_names_that_collide_are_prefixed_on_both_sides(tmp_path: Path) -> None:
    @tool
    def fail() -> str:
        """Ours."""
        return ""

    with anyio.fail_after(40):
        async with McpServer("one", stdio(tmp_path)) as one, McpServer("two", stdio(tmp_path)) as two:
            alone = {made.name for made in tools_of(one, beside=[fail])}
            both = {made.name for made in tools_of(one, two)}

    assert {"add", "write", "one_fail"} <= alone
    assert "fail" not in alone
    assert {"one_add", "two_add", "one_fail", "two_fail"} <= both
    assert len(both) == 2 * len(alone)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (
            StdioServerParameters(command="no-such-command-here"),
            "the MCP server files cannot be started by no-such-command-here: FileNotFoundError",
        ),
        (
            StdioServerParameters(command=sys.executable, args=["-c", "raise SystemExit(1)"]),
            f"the MCP server files cannot be started by {sys.executable}: MCPError: Connection closed; try",
        ),
        (
            StdioServerParameters(command=sys.executable, args=["-c", "input()\nimport time; time.sleep(60)"]),
            f"the MCP server files cannot be started by {sys.executable}: it took too long; try",
        ),
        (
            "http://me:secret@127.0.0.1:1/mcp?key=secret",
            "the MCP server files cannot be reached at http://127.0.0.1:1/mcp: ConnectError",
        ),
        ("127.0.0.1:1/mcp", "the URL of the MCP server files is none; it looks like http://127.0.0.1:8000/mcp"),
        ("http://[", "the URL of the MCP server files is none; it looks like http://127.0.0.1:8000/mcp"),
    ],
    ids=["no command", "ends at once", "says nothing", "refused", "no scheme", "no host"],
)
async def test_a_server_that_does_not_start_is_named(target: StdioServerParameters | str, sentence: str) -> None:
    patience = 0.3 if "too long" in sentence else 30.0
    with anyio.fail_after(40), pytest.raises(McpServerError) as refused:
        async with McpServer("files", target, start_seconds=patience):
            pass

    assert str(refused.value).startswith(sentence)
    assert "secret" not in str(refused.value)
    assert ", caused by " not in str(refused.value)


async def test_a_tool_outlives_its_server_as_an_error(tmp_path: Path) -> None:
    with anyio.fail_after(40):
        async with McpServer("files", stdio(tmp_path)) as server:
            tools = tools_of(server)
        results = await turn(("add", {"a": 1, "b": 2}), tools=tools)

    assert "the MCP server files is not running" in next(iter(results.told.values()))


def offers(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def odd(folder: Path, tools: list[dict[str, Any]], **more: Any) -> StdioServerParameters:
    """A server that says what stands here, whether the protocol allows it or not."""
    script = folder / "script.json"
    said = {"tools": tools, "results": {one["name"]: {"content": [{"type": "text", "text": "ran"}]} for one in tools}}
    said["results"] |= more.pop("results", {})
    script.write_text(json.dumps({**said, **more}))
    return StdioServerParameters(command=sys.executable, args=[str(SERVER.with_name("odd_mcp_server.py")), str(script)])


@pytest.mark.parametrize(("tools", "cursor"), [([{"name": "no schema"}], None), ([offers("endless")], "again")])
async def test_a_list_of_tools_that_cannot_be_read_is_told_on_entry(
    tmp_path: Path, tools: list[dict[str, Any]], cursor: str | None
) -> None:
    with anyio.fail_after(40), pytest.raises(McpServerError, match="the MCP server odd does not list its tools: "):
        async with McpServer("odd", odd(tmp_path, tools, cursor=cursor)):
            pass


async def test_a_list_that_turns_unreadable_leaves_the_tools_as_they_were_and_the_turn_goes_on(tmp_path: Path) -> None:
    with anyio.fail_after(40):
        async with McpServer("odd", odd(tmp_path, [offers("echo")])) as server:
            hooks = offering(server)

            @hooks.on("tools/pre-execute")
            async def spoil(payload: Any, next: Any) -> Any:
                odd(tmp_path, [{"name": "echo"}])
                return await next()

            model = ScriptedModel(Reply(calls=[("echo", {})]), Reply(calls=[("echo", {})]), Reply(text="done"))
            async with Agent(model, hooks=hooks) as agent:
                agent.followup("go")
                await agent.when_idle()
                results = Results(agent)
                offered = [[spec.name for spec in request.tools] for request in model.requests]

    assert ([*results.told.values()], results.errors) == (["ran", "ran"], {})
    assert offered == [["echo"]] * 3


async def test_a_schema_that_refers_elsewhere_has_nothing_fetched_and_leaves_the_judgement_to_the_server(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(40):
        async with serving(reply("200 OK", {"type": "integer"})) as elsewhere:
            references = {
                "remote": f"{elsewhere.base_url}/schema.json",
                "nowhere": "#/nope",
                "circle": "#/properties/x",
            }
            tools = [offers(name, x={"$ref": reference}) for name, reference in references.items()]
            tools.append(offers("pattern", x={"pattern": "("}))
            async with McpServer("odd", odd(tmp_path, tools)) as server:
                results = await turn(*((one["name"], {"x": "y"}) for one in tools), tools=tools_of(server))

    assert results.errors == {}
    assert [*results.told.values()] == ["ran"] * 4
    assert elsewhere.visits == []


@pytest.mark.parametrize(
    ("result", "told", "error"),
    [
        ({"content": [], "structuredContent": {"a": [1, "é", None]}}, '{"a": [1, "é", null]}', None),
        ({"content": [], "structuredContent": {"a": 10**30}}, f'{{"a": {10**30}}}', None),
        ({"content": [{"type": "image", "data": "!!", "mimeType": "image/png"}]}, "(a picture that cannot be sh", None),
        ({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/svg+xml"}]}, "(a picture that cannot", None),
        ({"content": "nope"}, "the MCP server odd answered f with something that is no result: ", "MCP_ERROR"),
    ],
    ids=["structure", "large number", "broken picture", "picture of no kind", "no result"],
)
async def test_a_result_is_told_so_that_any_provider_takes_it(
    tmp_path: Path, result: dict[str, Any], told: str, error: str | None
) -> None:
    with anyio.fail_after(40):
        async with McpServer("odd", odd(tmp_path, [offers("f")], results={"f": result})) as server:
            results = await turn(("f", {}), tools=tools_of(server))

    assert next(iter(results.told.values())).startswith(told)
    assert [*results.errors.values()] == ([] if error is None else [error])
