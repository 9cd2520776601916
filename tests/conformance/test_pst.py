"""Group PST: persistence and flush checkpoints."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lifecycle import Agent, Session, tool
from lifecycle.errors import AgentDisposedError, StoreError
from lifecycle.policies.compaction import CompactionOptions, compacting
from lifecycle.services.points import Payload, PreStepPayload
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.writing import Durability
from lifecycle.testing import Gate, Reply, ScriptedModel
from lifecycle.vocabulary.events import CompactionEnd, Event, ToolResultEvent
from lifecycle.vocabulary.failures import Errored

from ..session.logs import a_turn
from .kit import scene

pytestmark = pytest.mark.anyio


async def test_pst_01_a_flush_waits_for_every_listener_and_then_raises_the_first_failure() -> None:
    gate, ended = Gate("slow listener"), list[str]()
    async with scene() as s:

        @s.hooks.on("session/flush")
        async def slow(payload: Payload) -> None:
            await gate.go()
            ended.append("slow")

        @s.hooks.on("session/flush")
        async def failing(payload: Payload) -> None:
            gate.open()
            raise OSError("the disk is full")

        with pytest.raises(OSError, match="the disk is full"):
            await s.agent.flush()

        assert ended == ["slow"]


async def test_pst_01_a_flush_tells_whether_anybody_took_part_and_needs_a_live_session() -> None:
    async with scene(only=["agent/status"]) as s:  # the trace listens at flushes too
        assert await s.agent.flush() is False

        @s.hooks.on("session/flush")
        async def keep(payload: Payload) -> None:
            assert payload.agent is s.agent

        assert await s.agent.flush() is True

    with pytest.raises(AgentDisposedError):
        await s.agent.flush()
    with pytest.raises(AgentDisposedError):
        await Agent(ScriptedModel()).flush()


class Barriers:
    """A writer that writes nothing, and whose barriers do as the test says."""

    def __init__(self, *, failing: int = 0, gated: int = 0) -> None:
        self.failing, self.gated, self.gate = failing, gated, Gate("barrier")
        self.count = self.flushes = 0
        self.seen: list[str] = []
        """The newest record at each barrier."""
        self.newest = ""

    def write(self, event: Event, line: str) -> None:
        self.newest = event.type

    def barrier(self) -> Coroutine[Any, Any, None] | None:
        self.count += 1
        self.seen.append(self.newest)
        if self.count == self.failing:
            raise StoreError("the disk is full")
        return self.gate.go() if self.count == self.gated else None

    async def flush(self) -> None:
        self.flushes += 1

    async def close(self, *, discard: bool) -> None:
        pass


@tool
async def look() -> str:
    """Look."""
    looked.append("body")
    return "a cat"


looked: list[str] = []


def flushing(flushed: list[object]) -> Any:
    async def listen(payload: Payload) -> None:
        flushed.append(payload)

    return listen


async def test_pst_02_the_loop_itself_flushes_nothing() -> None:
    writer = Barriers()
    async with scene(session=Session("s", writer=writer)) as s:
        flushed = list[object]()
        s.hooks.listen("session/flush", flushing(flushed))
        await s.say("one", "two")

        assert s.durable.count("turn/end") == 2
        assert writer.flushes == 0
        assert flushed == []


async def test_pst_03_there_is_a_barrier_before_each_proposal_each_request_and_each_body() -> None:
    writer = Barriers()
    script = [Reply(calls=[("look", {})]), Reply(text="ok")]
    async with scene(*script, tools=[look], session=Session("s", writer=writer)) as s:
        await s.say("one")

    first, second = ["agent/inbox/spliced", "request/context", "tool/call"], ["step/end", "step/start"]
    assert writer.seen == [*first, *second]


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_pst_03_a_barrier_that_fails_closes_what_is_behind_it(number: int) -> None:
    looked.clear()
    asked = list[object]()
    writer = Barriers(failing=number)
    script = [Reply(calls=[("look", {})]), Reply(text="ok")]
    async with scene(*script, tools=[look], session=Session("s", writer=writer)) as s:
        s.hooks.listen("agent/pre-step", seen(asked))
        await s.say("one")

        assert len(asked) == (0 if number == 1 else 1 if number == 2 else 2)
        assert len(s.model.requests) == (0 if number < 3 else 2)
        assert s.durable.count("assistant/attempt") == 0
        assert looked == []
        if number < 3:
            (reason,) = s.reasons
            assert isinstance(reason, Errored)
            assert "the disk is full" in reason.error.message
        else:
            (result,) = s.data(ToolResultEvent)
            assert result.error is not None
            assert result.error.code == "NOT_KEPT"


def seen(asked: list[object]) -> Any:
    async def listen(payload: PreStepPayload, next: Any) -> Any:
        asked.append(payload)
        return await next()

    return listen


async def test_pst_03_a_cancel_at_the_barrier_of_a_body_aborts_it_before_dispatch() -> None:
    looked.clear()
    writer = Barriers(gated=3)
    async with scene(Reply(calls=[("look", {})]), tools=[look], session=Session("s", writer=writer)) as s:
        s.agent.followup("one")
        await writer.gate.reached()
        s.agent.cancel()
        writer.gate.open()
        await s.idle()

        (result,) = s.data(ToolResultEvent)
        assert result.error is not None
        assert result.error.code == "ABORTED_BEFORE_DISPATCH"
        assert looked == []


class Awaited(Barriers):
    """Every barrier is a thing to be awaited, and fails only then."""

    def __init__(self, *, failing: int = 0, gated: int = 0) -> None:
        super().__init__(failing=failing, gated=gated)
        self.passed = 0

    def barrier(self) -> Coroutine[Any, Any, None]:
        self.count += 1
        self.seen.append(self.newest)
        return self._kept(self.count)

    async def _kept(self, number: int) -> None:
        if number == self.gated:
            await self.gate.go()
        await anyio.lowlevel.checkpoint()
        if number == self.failing:
            raise StoreError("the disk is full")
        self.passed += 1


async def passing_on(payload: Any, next: Any) -> Any:
    return await next()


WRAPPED = pytest.mark.parametrize("wrapped", [(), ("agent/pre-step", "llm/stream", "tools/execute")])


@WRAPPED
async def test_pst_03_every_barrier_is_awaited_with_listeners_and_without(wrapped: tuple[str, ...]) -> None:
    looked.clear()
    writer = Awaited()
    script = [Reply(calls=[("look", {})]), Reply(text="ok")]
    async with scene(*script, tools=[look], session=Session("s", writer=writer), only=["agent/status"]) as s:
        for point in wrapped:
            s.hooks.listen(point, passing_on)
        await s.say("one")

    assert writer.seen == ["agent/inbox/spliced", "request/context", "tool/call", "step/end", "step/start"]
    assert writer.passed == 5
    assert looked == ["body"]


@WRAPPED
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("cancelled", [True, False])
async def test_pst_03_nothing_follows_a_barrier_that_fails_or_is_cancelled_while_it_is_awaited(
    number: int, cancelled: bool, wrapped: tuple[str, ...]
) -> None:
    looked.clear()
    writer = Awaited(gated=number, failing=0 if cancelled else number)
    script = [Reply(calls=[("look", {})]), Reply(text="ok")]
    async with scene(*script, tools=[look], session=Session("s", writer=writer), only=["agent/status"]) as s:
        for point in wrapped:
            s.hooks.listen(point, passing_on)
        s.agent.followup("one")
        await writer.gate.reached()
        if cancelled:
            s.agent.cancel()
        writer.gate.open()
        await s.idle()

        assert looked == []
        assert s.durable.count("step/start") == (0 if number == 1 else 1 if number == 2 or cancelled else 2)
        assert len(s.model.requests) == (0 if number < 3 else 1 if cancelled else 2)
        codes = [result.error.code for result in s.data(ToolResultEvent) if result.error is not None]
        assert codes == ([] if number < 3 else ["ABORTED_BEFORE_DISPATCH" if cancelled else "NOT_KEPT"])


@pytest.mark.parametrize("how", ["kept", "fails", "cancelled"])
async def test_pst_03_a_summary_is_asked_for_only_where_the_log_that_says_so_is_kept(how: str) -> None:
    writer = Awaited()
    notes = ScriptedModel(otherwise=Reply(text="the notes"), provider="notes")
    model = ScriptedModel(otherwise=Reply(text="ok"), context_window=2_000)
    hooks = compacting(CompactionOptions(notes, summary_tokens=100))
    async with scene(model=model, hooks=hooks, session=Session("s", writer=writer)) as s:
        await s.say(*["word " * 200] * 6)
        writer.gated = len(writer.seen) + 2  # behind the one of the proposal
        writer.failing = writer.gated if how == "fails" else 0
        s.agent.followup("word " * 200)
        await writer.gate.reached()
        assert writer.newest == "compaction/start"
        assert notes.requests == []
        if how == "cancelled":
            s.agent.cancel()
        writer.gate.open()
        await s.idle()

        (end,) = s.data(CompactionEnd)
        assert (
            end.error
            == {
                "kept": None,
                "fails": "the disk is full",
                "cancelled": "the turn was cancelled by user",
            }[how]
        )
        assert len(notes.requests) == (how == "kept")
        assert len(model.requests) == (6 if how == "cancelled" else 7)


def written(folder: Path) -> list[str]:
    """The types of the records that the store holds right now, read past it."""
    path = folder / "store"
    if path.is_dir():
        lines = [line for file in path.glob("*.jsonl") for line in file.read_text().splitlines()[1:]]
    elif path.exists():
        with closing(sqlite3.connect(path)) as database:
            lines = [line for (line,) in database.execute("SELECT line FROM events ORDER BY place")]
    else:
        lines = []
    return [json.loads(line)["type"] for line in lines]


@pytest.mark.parametrize("durability", ["strict", "turn", "none"])
@pytest.mark.parametrize("kind", [SqliteStore, JsonlStore])
async def test_pst_04_what_is_written_when_is_what_the_durability_says(
    kind: type[SqliteStore | JsonlStore], durability: Durability, tmp_path: Path
) -> None:
    gate = Gate()
    async with kind(tmp_path / "store", durability=durability) as store:
        async with scene([gate, *Reply(text="ok").chunks()], session=await store.create("s")) as s:
            s.agent.followup("one")
            accepted = written(tmp_path)
            await gate.reached()
            asked = written(tmp_path)
            gate.open()
            await s.idle()
            ended = written(tmp_path)
            s.agent.inject("more")
            staged = written(tmp_path)
            whole = s.durable
        after = written(tmp_path)

    assert accepted[:1] == (["agent/inbox/spliced"] if durability == "strict" else [])
    assert asked == ([] if durability == "none" else whole[: len(asked)])
    assert (asked[-1:] == ["request/context"]) == (durability != "none")
    assert ended[-1] == "turn/end"
    assert len(staged) == len(ended) + (durability == "strict")
    assert after == whole


async def test_pst_04_a_failed_background_write_keeps_its_batch_and_an_explicit_flush_retries(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path / "store") as store:
        session = await store.create("s")
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        a_turn(session, 1, "one")
        with pytest.raises(StoreError, match="No such file"):
            await session.flush()
        (tmp_path / "elsewhere").rename(tmp_path / "store")
        a_turn(session, 2, "two")
        await session.flush()

        again = await store.open("s", read_only=True)
        assert again.events == session.events[:]
        with anyio.fail_after(5):
            await session.close()
