"""A process is killed while somebody is asked about a call; the next one asks again, and the turn goes on."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from lifecycle import Agent, AgentOptions
from lifecycle.driver.options import Approver
from lifecycle.errors import ForkError
from lifecycle.session.repair import OUTCOME_UNKNOWN, torn
from lifecycle.session.store import Store
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.events import (
    ApprovalAsked,
    ApprovalDecided,
    Event,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
)

from . import audit
from .nursery import make_store
from .parked import REASON, the_hooks, the_tools

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=[("sqlite", "asyncio"), ("jsonl", "trio")], ids=["sqlite", "jsonl"])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The kind of a store, and its folder, which holds the session `s` of a process that was killed while it asked."""
    kind, backend = request.param
    folder = tmp_path_factory.mktemp(kind)
    command = [sys.executable, "-m", "tests.crash.parked", kind, str(folder), backend]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "asked\n"
        finally:
            child.kill()
    assert child.returncode == -signal.SIGKILL
    return kind, folder


@pytest.fixture
async def store(killed: tuple[str, Path], tmp_path: Path) -> AsyncGenerator[Store]:
    """A store with that session."""
    kind, folder = killed
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    made = make_store(kind, tmp_path, "turn")
    try:
        yield made
    finally:
        await made.close()


class Person:
    """Who answers, and what ran."""

    def __init__(self, answer: bool | None = None) -> None:
        self.answer, self.asked = answer, anyio.Event()
        self.ran: list[str] = []
        self.heard: list[tuple[str, object, str]] = []

    async def approve(self, payload: Any, reason: str) -> bool:
        self.heard.append((payload.call.id, dict(payload.arguments), reason))
        self.asked.set()
        if self.answer is None:
            await anyio.sleep_forever()
        return bool(self.answer)


@asynccontextmanager
async def resumed(store: Store, person: Person, approve: Approver | None = None) -> AsyncGenerator[Agent]:
    """An agent that goes on with the session."""
    options = AgentOptions(approve=approve or person.approve)
    model = ScriptedModel(Reply(text="done"), Reply(text="and more"))
    tools, hooks = the_tools(person.ran.append), the_hooks()
    with anyio.fail_after(20):
        async with Agent.resume(store, "s", model, tools=tools, hooks=hooks, options=options, monitor=True) as agent:
            yield agent


def results(events: Sequence[Event]) -> dict[str, str | None]:
    """What became of each call."""
    found = [event.data for event in events if isinstance(event.data, ToolResultEvent)]
    return {str(one.message.source["callId"]): None if one.error is None else one.error.code for one in found}


def starts(events: Sequence[Event]) -> list[str]:
    return [event.data.call_id for event in events if isinstance(event.data, ToolCallEvent)]


def decisions(events: Sequence[Event]) -> list[str]:
    return [event.data.outcome for event in events if isinstance(event.data, ApprovalDecided)]


async def test_the_log_of_a_process_that_was_killed_while_it_asked_is_parked_and_legal(store: Store) -> None:
    events = (await store.open("s", read_only=True)).events

    assert audit.illegal(events) == ""
    assert starts(events) == ["c1", "c2", "c3"]
    assert results(events) == {"c1": None}  # it had finished, and was kept while somebody was asked
    left = torn(events)
    assert left is not None
    assert left.parked is not None
    assert (left.parked.block.id, left.parked.asked.reason) == ("c3", REASON)
    assert [call.block.id for call in left.calls] == ["c2"]
    assert [block.id for block in left.parked.waiting] == ["c4"]


async def test_repair_pays_for_the_neighbours_and_leaves_the_turn_open_however_often(store: Store) -> None:
    async with await store.open("s") as session:
        before = session.next_seq
        assert [event.data.type for event in session.repair()] == ["tool/result"]
        assert results(session.events[before:]) == {"c2": OUTCOME_UNKNOWN}
        assert session.repair() == ()
    async with await store.open("s") as session:
        assert session.repair() == ()
        assert session.open_turn == 1
        assert audit.illegal(session.events) == ""


async def test_the_next_process_is_asked_again_and_yes_runs_the_call_once(store: Store) -> None:
    person = Person(answer=True)
    async with resumed(store, person) as agent:
        assert agent.status == "running"
        assert agent.phase == "running/stepping/tooling"
        await agent.when_idle()

    events = agent.session.events
    assert person.heard == [("c3", {"n": 3}, REASON)]
    assert sorted(person.ran) == ["look 4", "pay 3"]
    assert results(events) == {"c1": None, "c2": OUTCOME_UNKNOWN, "c3": None, "c4": None}
    assert starts(events) == ["c1", "c2", "c3", "c4"]
    assert decisions(events) == ["approved"]
    assert sum(isinstance(event.data, ApprovalAsked) for event in events) == 1
    assert [event.data.reason.kind for event in events if isinstance(event.data, TurnEnd)] == ["completed"]
    assert audit.illegal(events) == ""


async def test_no_is_a_denied_result_and_the_turn_goes_on(store: Store) -> None:
    person = Person(answer=False)
    async with resumed(store, person) as agent:
        await agent.when_idle()

    events = agent.session.events
    assert person.ran == ["look 4"]
    assert results(events) == {"c1": None, "c2": OUTCOME_UNKNOWN, "c3": "DENIED", "c4": None}
    assert decisions(events) == ["denied"]
    assert audit.illegal(events) == ""


async def test_a_cancel_while_it_is_parked_ends_the_turn_and_runs_nothing(store: Store) -> None:
    person = Person()
    async with resumed(store, person) as agent:
        await person.asked.wait()
        agent.cancel()
        await agent.when_idle()
        agent.followup("and now?")
        await agent.when_idle()

    events = agent.session.events
    assert person.ran == []
    assert decisions(events) == ["canceled"]
    never = "ABORTED_BEFORE_DISPATCH"
    assert results(events) == {"c1": None, "c2": OUTCOME_UNKNOWN, "c3": never, "c4": never}
    ends = [event.data.reason.kind for event in events if isinstance(event.data, TurnEnd)]
    assert ends == ["aborted", "completed"]
    assert audit.illegal(events) == ""


async def test_whoever_is_asked_again_may_raise(store: Store) -> None:
    def approve(payload: object, reason: str) -> bool:
        raise OSError("nobody is there")

    person = Person()
    async with resumed(store, person, approve) as agent:
        await agent.when_idle()

    events = agent.session.events
    assert decisions(events) == ["failed"]
    assert results(events)["c3"] == "HOOK_FAILED"
    assert audit.illegal(events) == ""


async def test_without_the_tool_or_an_approver_nothing_runs(store: Store) -> None:
    async with Agent.resume(store, "s", ScriptedModel(Reply(text="done")), monitor=True) as agent:
        with anyio.fail_after(20):
            await agent.when_idle()

    events = agent.session.events
    assert decisions(events) == ["denied"]
    assert results(events) == {"c1": None, "c2": OUTCOME_UNKNOWN, "c3": "UNKNOWN_TOOL", "c4": "UNKNOWN_TOOL"}
    assert audit.illegal(events) == ""


async def test_a_fork_begins_before_the_parked_turn_and_input_waits_behind_it(store: Store) -> None:
    with pytest.raises(ForkError, match="no turn of it has ended"):
        await store.fork("s")

    person = Person(answer=True)
    async with resumed(store, person) as agent:
        agent.followup("more")
        await agent.when_idle()
    child = await store.fork("s", turn=1, step=1)
    await child.close()

    assert [event.data.turn for event in agent.session.events if isinstance(event.data, TurnEnd)] == [1, 2]
    assert decisions(child.events) == ["approved"]
    assert audit.illegal(child.events) == ""
