"""The README keeps its word: its commands are those that CI runs, and its example is Python."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from lifecycle import Agent, Hooks
from lifecycle.commands.transcript import story_lines
from lifecycle.session.sqlite import SqliteStore
from lifecycle.testing import Reply, ScriptedModel

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return [found.strip() for found in re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)]


def test_there_are_two_commands_of_one_line_each_that_set_everything_up_themselves() -> None:
    commands = blocks("sh")

    assert len(commands) == 2
    assert [command for command in commands if "\n" in command] == []
    assert all(command.startswith("python3 -m venv .venv && .venv/bin/pip install ") for command in commands)
    assert ".venv/bin/lifecycle run " in commands[0]
    assert commands[1].endswith(" && .venv/bin/python tools/check")


def test_ci_runs_the_second_command_word_for_word() -> None:
    lines = [line.strip() for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]

    assert lines.count(blocks("sh")[1]) == 1


def test_contributors_are_given_the_same_command() -> None:
    assert blocks("sh")[1] in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("script", [".ci/run", "tools/check"])
def test_scripts_can_be_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)


EXTENSION = """
# mypkg/flow.py
from lifecycle import HookPoint, Hooks
from lifecycle.definition.effects import HOOKS, answer, hook
from lifecycle.definition.machine import Phase
from lifecycle.definition.step import CLOSE, Step
from lifecycle.definition.turn import Turn
from lifecycle.services.points import POINTS, Mode, StepPayload

BUDGET = HookPoint("agent/budget", Mode.SERIAL, StepPayload)
hooks = Hooks(points={**POINTS, BUDGET.name: BUDGET})


class BudgetStep(Step):  # a hook point more, in one line
    boundary = Step.boundary.but(hook("agent/budget", "serial", "may stop a costly turn"), *Step.boundary.does)


class ReviewedStep(BudgetStep):  # a phase more, with a loop back to the request
    reviewing = Phase(hook("agent/review", "waterfall"), answer(HOOKS, "finish or revise"))
    finish = BudgetStep.arrows("finish").but(target=reviewing, emits=()) | reviewing.to(
        BudgetStep.ended, when="the reviewer approves", emits=CLOSE
    )
    revise = reviewing.to(BudgetStep.requesting, when="the reviewer asks again")


class ReviewedTurn(Turn):
    stepping = Turn.stepping.but(runs=ReviewedStep)


@hooks.on("agent/budget")
def stop_at_ten(payload):
    if payload.step > 10:
        payload.agent.cancel()


async def review(step):  # performs agent/review; it returns the event that follows
    return "finish" if step.attempts > 1 else "revise"
""".strip()
"""How a user extends the lifecycle. Where README shows it, it shows it word for word."""
CHECKED = """
from lifecycle.testing import check_hooks


def test_my_hooks():
    check_hooks(build_hooks)  # a function that makes your Hooks, afresh for each example
""".strip()
DRIVEN = 'Agent(model, hooks=hooks, options=AgentOptions(lifecycle=ReviewedTurn, performers={"agent/review": review}))'
DRAWN = ("lifecycle", "diagrams", "mypkg.flow:ReviewedTurn", "--hooks", "mypkg.flow:hooks", "--view", "overview")


APPROVED = """
async def approve(payload, reason):  # in the first process and in every later one
    return await my_ui.ask(payload.call.name, payload.arguments, reason)


async with Agent.resume(store, id, model, tools=tools, hooks=hooks, options=AgentOptions(approve=approve)) as agent:
    await agent.when_idle()
""".strip()

STORED = """
from lifecycle import Agent
from lifecycle.session.sqlite import SqliteStore


async def work():
    async with SqliteStore("sessions.db") as store:
        async with Agent(model, session=await store.create()) as agent:
            ...
""".strip()

POLICIES = """
from lifecycle.policies.compaction import compacting
from lifecycle.policies.plan import PlanMode
from lifecycle.policies.retry import retrying

plan = PlanMode()
hooks = retrying() + compacting() + plan.hooks + my_hooks
""".strip()


def test_the_policies_add_up() -> None:
    given: dict[str, object] = {"my_hooks": Hooks(name="mine", before="retry")}

    exec(POLICIES, given)

    assert POLICIES in blocks("python")
    hooks = given["hooks"]
    assert isinstance(hooks, Hooks)
    assert [one.of for one in hooks.listeners("agent/request-error")] == ["compaction", "retry"]


def test_the_examples_are_python() -> None:
    example, *more = blocks("python")

    known = (APPROVED, EXTENSION, DRIVEN, CHECKED, POLICIES, STORED)
    assert [block for block in more if block not in known and "McpServer" not in block] == []
    compile(APPROVED, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    compile(example, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


async def stored(path: Path) -> None:
    said = 'agent.followup("Keep this."); await agent.when_idle()'
    given: dict[str, Any] = {"model": ScriptedModel(Reply(text="Kept.")), "path": path}
    exec(STORED.replace('"sessions.db"', "path").replace("...", said), given)

    await given["work"]()

    assert STORED in blocks("python")
    async with SqliteStore(path) as store:
        assert [info.title for info in await store.list()] == ["Keep this."]


def test_a_session_is_kept_as_it_says(tmp_path: Path) -> None:
    anyio.run(stored, tmp_path / "sessions.db")


def test_hooks_are_checked_as_it_says() -> None:
    names: dict[str, Any] = {"build_hooks": Hooks}

    exec(CHECKED, names)
    names["test_my_hooks"]()


def test_the_first_example_runs(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Short.", encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", blocks("python")[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0] == "durable agent/inbox/spliced"
    assert ran.stdout.splitlines()[-1] == "live agent/status"
    assert "durable tool/result" in ran.stdout.splitlines()


def test_the_example_of_providers_runs_with_a_real_server_of_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mcp")
    server = tmp_path / "my-file-server"
    server.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/adapters/mcp_server.py" "{tmp_path}"\n')
    server.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (example,) = (block for block in blocks("python") if "McpServer" in block)
    told: list[str] = []

    async def turn(agent: Agent) -> None:
        agent.followup("go")
        await agent.when_idle()
        told.extend(story_lines(agent.session.events))

    names: dict[str, Any] = {"turn": turn}
    exec(compile(example.replace("            ...", "            await turn(agent)"), "README.md", "exec"), names)
    calls: list[tuple[str, dict[str, Any]]] = [("add", {"a": 1, "b": 2}), ("die", {}), ("write", {"text": "x"})]
    answers = [Reply(calls=[call]) for call in calls]
    names["models"] = {
        "anthropic": ScriptedModel(Reply.failure("OVERLOADED", "too busy")),
        "openai": ScriptedModel(*answers, Reply(text="done")),
    }
    anyio.run(names["work"])

    assert told == [
        "--- turn 1",
        "> go",
        "(asking anthropic/...)",
        "! request failed (OVERLOADED): too busy",
        "(asking openai/...)",
        '→ add {"a": 1, "b": 2}',
        "← add: 3",
        "→ die {}",
        "← die failed (MCP_SERVER_ENDED): the MCP server files ended while die ran, which may have had effects; it is "
        "started again for the n…",
        '→ write {"text": "x"}',
        "← write: wrote x",
        "done",
        "--- turn 1 completed",
    ]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project that holds the extension."""
    package = tmp_path / "mypkg"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "flow.py").write_text(EXTENSION + "\n", encoding="utf-8")
    return tmp_path


def test_the_extension_is_drawn(project: Path) -> None:
    assert len(EXTENSION.splitlines()) + 2 <= 40

    drawn = subprocess.run(
        [sys.executable, "-m", *DRAWN], cwd=project, capture_output=True, text=True, timeout=60, check=False
    )

    assert (drawn.returncode, drawn.stderr) == (0, "")
    lines = [line.strip() for line in drawn.stdout.splitlines()]
    budget = lines.index("Driver->>Hooks: agent/budget serial may stop a costly turn")
    assert lines[budget + 1] == "Note over Hooks: 1. mypkg.flow.stop_at_ten"
    loop = lines.index("loop the attempts of the request")
    review = lines.index("Driver->>Hooks: agent/review waterfall")
    assert budget < loop < lines.index("Driver->>Session: assistant/message") < review
    assert lines[review + 1 : review + 3] == ["Hooks-->>Driver: finish or revise", "break the reviewer approves"]


def test_the_extension_runs(project: Path) -> None:
    script = f"""
import anyio
from lifecycle import Agent, AgentOptions
from lifecycle.testing import Reply, ScriptedModel
from mypkg.flow import ReviewedTurn, hooks, review

async def main():
    model = ScriptedModel(Reply(text="first"), Reply(text="second"))
    async with {DRIVEN} as agent:
        agent.followup("go")
        await agent.when_idle()
        print(*[event.type for event in agent.session.events][-4:])

anyio.run(main)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=project, capture_output=True, text=True, timeout=60, check=False
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == ["assistant/message", "assistant/message", "step/end", "turn/end"]
