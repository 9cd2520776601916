"""Public failures of other agent loops, of the session log: each as it was met there, with what is right."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from lifecycle import Agent, Hooks, Session, tool
from lifecycle.errors import AgentBusyError, SessionFormatError, SessionLockedError, StoreError
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.jsonl_file import JsonlFile
from lifecycle.session.memory import MemoryStore
from lifecycle.session.repair import NOT_STARTED, OUTCOME_UNKNOWN
from lifecycle.session.sqlite import SqliteStore
from lifecycle.testing import Gate, GatedTool, Reply, ScriptedModel
from lifecycle.testing.stores import write_turn
from lifecycle.vocabulary.events import Event, Opaque, ToolResultEvent, TurnEnd
from lifecycle.vocabulary.failures import INTERRUPTED
from lifecycle.vocabulary.messages import text_of
from lifecycle.vocabulary.values import FrozenDict

from ..conformance.kit import scene
from ..crash.audit import problems

pytestmark = pytest.mark.anyio


def note(session: Session, words: str) -> None:
    session.append(Opaque(name="test/note", payload=FrozenDict(words=words)), ignorable=True)


def notes(session: Session) -> list[Any]:
    return [event.data.payload["words"] for event in session.events if isinstance(event.data, Opaque)]


async def five_records(folder: Path) -> Path:
    async with JsonlStore(folder) as store:
        session = await store.create("s")
        for number in range(1, 6):
            note(session, f"第{number}条")
    return folder / "s.jsonl"


async def test_c149_after_a_torn_last_line_the_next_record_stands_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = await five_records(tmp_path / "s")
    whole = path.read_bytes()
    start = whole.rfind(b"\n", 0, -1) + 1
    for cut in range(start + 1, len(whole)):
        path.write_bytes(whole[:cut])
        caplog.clear()
        with caplog.at_level(logging.WARNING, "lifecycle"):
            async with JsonlStore(tmp_path / "s", durability="none") as store:
                note(await store.open("s"), "new")
        async with JsonlStore(tmp_path / "s") as store:
            kept = notes(await store.open("s", read_only=True))
        assert kept == ["第1条", "第2条", "第3条", "第4条", "new"], cut
        assert f"{cut - start} bytes of a torn line were cut off" in caplog.text


async def test_c151_damage_in_the_middle_is_a_loud_error_with_its_line_and_nothing_is_appended(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path / "s") as store:
        session = await store.create("s")
        for turn in range(1, 11):
            write_turn(session, turn, "prompt")
    path = tmp_path / "s" / "s.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[27] = bytes(20) + lines[27][20:]  # in turn 4
    path.write_bytes(b"\n".join(lines))

    async with JsonlStore(tmp_path / "s") as store:
        with pytest.raises(SessionFormatError, match="is damaged in line 28"):
            await store.open("s")
    assert path.read_bytes() == b"\n".join(lines)


@pytest.mark.parametrize("tail", [bytes(4096), b"\xe4\xbd", b'{"seq":5,"time":1,"type":"x","data":{"a":"\xe4\xbd'])
async def test_c152_a_tail_of_zeros_or_half_a_character_is_a_torn_one(tmp_path: Path, tail: bytes) -> None:
    path = await five_records(tmp_path / "s")
    path.write_bytes(path.read_bytes() + tail)

    async with JsonlStore(tmp_path / "s") as store:
        session = await store.open("s")
        note(session, "new")
        await session.close()
        assert notes(await store.open("s"))[-2:] == ["第5条", "new"]


async def killed(at: str, answered: Sequence[str] = ()) -> Sequence[Event]:
    """The log of a process that was killed at some record, while two calls of one tool ran."""
    work = GatedTool("work")
    async with scene(Reply(calls=[("work", {}, "a"), ("work", {}, "b")]), tools=[work]) as s:
        s.agent.followup("go")
        await work.started("a", "b")
        for call in answered:
            work.release(call, "done")
            await work.finished(call)
            await anyio.wait_all_tasks_blocked()
        last = max(event.seq for event in s.session.events if event.type == at)
        kept = tuple(s.session.events[: last + 1])
        s.agent.cancel()
    return kept


async def resumed(kept: Sequence[Event]) -> tuple[Session, list[tuple[Any, str | None]], list[str]]:
    """The session once another process has gone on, the results in it, and which bodies ran."""
    ran: list[str] = []

    @tool
    async def work() -> str:
        """Work."""
        ran.append("again")
        return "again"

    session = Session.restored(kept, "s")
    model = ScriptedModel(Reply(text="ok"))
    async with Agent(model, tools=[work], session=session) as agent:
        agent.followup("go on")
        await agent.when_idle()
    assert problems(session) == []
    results = [
        (event.data.message.source["callId"], None if event.data.error is None else event.data.error.code)
        for event in session.events
        if isinstance(event.data, ToolResultEvent)
    ]
    return session, results, ran


@pytest.mark.parametrize(
    ("at", "expected"), [("assistant/message", NOT_STARTED), ("tool/call", OUTCOME_UNKNOWN)], ids=["before", "during"]
)
async def test_c154_a_killed_call_gets_the_result_that_holds_and_nothing_runs_again(at: str, expected: str) -> None:
    session, results, ran = await resumed(await killed(at))

    assert results == [("a", expected), ("b", expected)]
    assert ran == []
    ends = [event.data.reason for event in session.events if isinstance(event.data, TurnEnd)]
    assert ends[0] == INTERRUPTED


async def test_c155_what_was_recorded_between_turns_is_there_after_a_reload_once(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        async with scene(session=await store.create("s")) as s:
            await s.say("one")
            s.agent.inject("the build is green")
        model = ScriptedModel(Reply(text="ok"))
        async with Agent.resume(store, "s", model) as agent:
            agent.followup("two")
            await agent.when_idle()

    told = [text_of(message) for message in model.requests[0].messages]
    assert told == ["one", "ok", "the build is green", "two"]


async def test_c157_two_wakes_in_one_tick_start_one_driver_and_the_place_is_freed_whatever_is_raised() -> None:
    hooks, running = Hooks(), list[str]()

    @hooks.on("agent/pre-step")
    async def slow(payload: Any, next: Any) -> Any:
        running.append("in")
        assert running.count("in") - running.count("out") == 1
        await anyio.lowlevel.checkpoint()
        running.append("out")
        raise OSError("not today")

    async with scene(hooks=hooks) as s:
        s.agent.followup("one")
        s.agent.followup("two")
        await s.idle()
        assert running == ["in", "out"]  # an error stops the driver; the second prompt waits for the next wake
        await s.say("three")
        assert running.count("in") == 2

        gate = Gate()

        async def task(signal: object) -> None:
            await gate.go()

        async with anyio.create_task_group() as group:
            group.start_soon(s.agent.run_maintenance, task)
            await gate.reached()
            with pytest.raises(AgentBusyError):
                await s.agent.run_maintenance(task)
            gate.open()


async def test_c158_the_second_opener_gets_a_clear_error_and_repairs_nothing_of_a_turn_that_lives(
    tmp_path: Path,
) -> None:
    gate = Gate()
    async with SqliteStore(tmp_path / "s.db") as first, SqliteStore(tmp_path / "s.db") as second:
        async with scene([gate, *Reply(text="ok").chunks()], session=await first.create("s")) as s:
            s.agent.followup("slow")
            await gate.reached()
            with pytest.raises(SessionLockedError, match="already open for writing"):
                await second.open("s")
            reader = await second.open("s", read_only=True)
            assert reader.open_turn == 1
            gate.open()
            await s.idle()
        async with await second.open("s") as taken:
            assert taken.repair() == ()


async def test_c160_a_batch_whose_write_failed_after_the_bytes_were_there_is_not_there_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, failing = JsonlFile.append, [True]

    def flaky(file: JsonlFile, *arguments: Any, **options: Any) -> None:
        end = file._end  # pyright: ignore[reportPrivateUsage]
        append(file, *arguments, **options)
        if end is not None and failing:
            failing.clear()
            file._end, file._torn = end, True  # pyright: ignore[reportPrivateUsage]  # as if nobody had heard of it
            raise StoreError("the answer was lost")

    async with JsonlStore(tmp_path / "s") as store:
        session = await store.create("s")
        write_turn(session, 1, "one")
        monkeypatch.setattr(JsonlFile, "append", flaky)
        write_turn(session, 2, "two")
        await session.flush()
        await session.flush()
        await session.close()
        again = await store.open("s")
        assert [event.seq for event in again.events] == list(range(16))
        before = (tmp_path / "s" / "s.jsonl").read_bytes()
        await again.close()
    assert (tmp_path / "s" / "s.jsonl").read_bytes() == before
    assert not failing


async def test_c161_each_call_is_asked_for_its_answer_and_not_the_batch() -> None:
    kept = await killed("tool/result", answered=["a"])

    _, results, ran = await resumed(kept)

    assert results == [("a", None), ("b", OUTCOME_UNKNOWN)]
    assert ran == []


@pytest.mark.parametrize(
    "script",
    [
        [Reply(text=["an ", "answer"])],
        [Reply(calls=[("look", {})]), Reply(text="so")],
        [Reply(calls=[("unheard-of", {})]), Reply(text="so")],
        [Reply.failure("SERVER", text="half")],
        [Reply(text="cut", reasoning="r")],
    ],
)
async def test_c163_who_listens_to_the_stream_does_not_change_the_log(script: list[Reply]) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "a cat"

    logs: list[list[str]] = []
    for listening in (False, True):
        store = MemoryStore(clock=lambda: 7)
        model = ScriptedModel(*script)
        async with Agent(model, tools=[look], session=await store.create("s")) as agent:
            stream = agent.events() if listening else None
            agent.followup("go")
            if stream is not None:
                async for _ in stream:
                    pass
            await agent.when_idle()
            logs.append([event.encode() for event in agent.session.events])
    assert logs[0] == logs[1]
