"""What `agent.events()` gives, at its edges: dropped streams, several readers, and streams made too late."""

from __future__ import annotations

import anyio
import pytest

from lifecycle import Agent, Durable, EventStream, Missed, Session
from lifecycle.driver.feed import Feeds, Occurrence
from lifecycle.errors import SessionError
from lifecycle.testing import Reply, ScriptedModel

pytestmark = pytest.mark.anyio


def talker() -> ScriptedModel:
    return ScriptedModel(otherwise=Reply(text="ok"))


def test_nothing_is_kept_for_a_stream_that_was_dropped() -> None:
    feeds = Feeds()
    kept, dropped = EventStream(feeds, "disposed"), EventStream(feeds, "disposed")
    assert len(feeds.open) == 2

    del dropped

    assert [known() for known in feeds.open] == [kept]


async def test_two_readers_of_one_stream_both_come_to_its_end() -> None:
    read: list[Occurrence] = []

    async def reader(stream: EventStream) -> None:
        read.extend([one async for one in stream])

    with anyio.fail_after(5):
        async with Agent(talker()) as agent, anyio.create_task_group() as tasks:
            stream = agent.events()
            tasks.start_soon(reader, stream)
            tasks.start_soon(reader, stream)
            await anyio.wait_all_tasks_blocked()
            agent.followup("go")

    assert [one.name for one in read].count("turn/end") == 1


async def test_a_stream_that_is_made_after_the_agents_end_replays_and_ends() -> None:
    with anyio.fail_after(5):
        async with Agent(talker()) as agent:
            agent.followup("go")
            await agent.when_idle()

        names = [one.name async for one in agent.events(since=0)]

    assert names == [event.type for event in agent.session.events]


async def test_a_misspelt_end_and_a_negative_start_are_refused() -> None:
    async with Agent(talker()) as agent:
        with pytest.raises(ValueError, match="until 'idle' or 'disposed', not until 'idel'"):
            agent.events(until="idel")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match="0 or more, not since -3"):
            agent.events(since=-3)


@pytest.mark.parametrize("content", [3, None, b"bytes", ["no block"]])
async def test_what_is_no_input_is_refused_in_one_sentence_and_changes_nothing(content: object) -> None:
    async with Agent(talker()) as agent:
        with pytest.raises(TypeError, match=r"takes a text, a UserMessage or content blocks, not this \w+: "):
            agent.followup(content)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

        assert list(agent.session.events) == []


async def test_a_second_agent_on_one_session_is_refused_while_the_first_has_it() -> None:
    session = Session.memory("shared")
    async with Agent(talker(), session=session) as first:
        with pytest.raises(SessionError, match=r"session 'shared' is in use by <Agent shared idle>.*fork\(\)"):
            async with Agent(talker(), session=session):
                pass

        first.followup("go")
        await first.when_idle()

    assert [event.type for event in session.events].count("turn/end") == 1


async def test_an_agent_whose_creation_is_vetoed_leaves_the_session_to_others() -> None:
    shared = Session.memory()
    vetoed = Agent(talker(), session=shared)

    @vetoed.hooks.on("agent/created")
    def veto(payload: object) -> None:
        raise LookupError("not today")

    with pytest.raises(LookupError):
        async with vetoed:
            pass

    async with Agent(talker(), session=shared) as agent:
        agent.followup("go")
        await agent.when_idle()


# -- slow readers -----------------------------------------------------------------------------------------------------


async def test_a_slow_reader_is_told_what_it_missed_and_finds_it_in_the_log() -> None:
    with anyio.fail_after(5):
        async with Agent(talker()) as agent:
            fast, slow = agent.events(), agent.events(most=3)
            agent.followup("go")
            await agent.when_idle()

            everything = [one async for one in fast]
            told, *rest = [one async for one in slow]

    assert isinstance(told, Missed)
    assert rest == everything[-3:]
    assert told.lost == len(everything) - 3
    missed = [one for one in everything[:-3] if isinstance(one, Durable)]
    assert told.since is not None
    assert list(agent.session.events[told.since :][: len(missed)]) == [one.event for one in missed]


async def test_a_reader_that_reads_in_time_misses_nothing() -> None:
    with anyio.fail_after(5):
        async with Agent(talker()) as agent:
            agent.followup("go")
            await agent.when_idle()

            stream = agent.events(since=0, until="disposed", most=1)  # what is replayed does not count
            replayed = [await anext(stream) for _ in agent.session.events]
            agent.inject("more")
            after = await anext(stream)

    assert [one.name for one in replayed] == [event.type for event in agent.session.events[: len(replayed)]]
    assert after.name == "agent/inbox/spliced"


def test_a_stream_keeps_at_least_one() -> None:
    with pytest.raises(ValueError, match=r"at least 1 .* not 0"):
        Agent(talker()).events(most=0)
