"""What every store must do."""

from __future__ import annotations

import pytest
from anyio import fail_after

from lifecycle.errors import (
    ForkError,
    SessionClosedError,
    SessionError,
    SessionExistsError,
    SessionHasChildrenError,
    SessionLockedError,
    SessionNotFoundError,
    StoreError,
)
from lifecycle.session.fork import Lineage
from lifecycle.session.store import SessionInfo, Store, shortened
from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary.failures import INTERRUPTED
from lifecycle.vocabulary.messages import user_message
from lifecycle.vocabulary.requests import CallConfig, Header
from lifecycle.vocabulary.values import FrozenDict

from .logs import a_turn, answer, said, section, shown, types

pytestmark = pytest.mark.anyio


async def test_the_stores_keep_the_protocol(store: Store) -> None:
    assert isinstance(store, Store)
    await store.close()


async def test_rsm_02_a_session_goes_on_where_it_was(store: Store) -> None:
    session = await store.create("s")
    session.append(section("a", "A"), surface="append")
    a_turn(session, 1, "one")
    session.append(ev.RequestHeader(header=Header(config=CallConfig(provider="p", model="m")), reason="initial"))
    session.append(ev.RequestContext(provider="p", model="m"))
    session.append(user := ev.UserMessageEvent(message=said("two")), surface=ev.Replace(start=5, end=5), sources=[5])
    session.append(ev.Opaque(name="x/y", payload=FrozenDict(a=1)), ignorable=True)
    session.inbox.insert("next-step", said("waits"))
    await session.close()

    again = await store.open("s")

    assert again.events == session.events[:]
    assert again.derive_messages() == session.derive_messages()
    assert shown(again) == ["A", "two", "to one"]
    assert again.surface.generation == 1
    assert (again.last_turn, again.open_turn) == (1, None)
    assert (again.header, again.context) == (session.header, session.context)
    assert again.inbox.next_step == (said("waits"),)
    assert again.inbox.claim(first=True) == (said("waits"),)
    assert again.events[-1].seq == len(session.events)
    assert user.message.id == "two"
    await store.close()


async def test_a_log_whose_last_turn_is_open_can_be_opened(store: Store) -> None:
    async with await store.create("s") as session:
        session.append(ev.TurnStart(turn=1))

    async with await store.open("s") as again:
        assert again.open_turn == 1
    await store.close()


async def test_many_sessions_do_not_get_into_each_others_way(store: Store) -> None:
    sessions = [await store.create(f"s{number}") for number in range(5)]
    for turn in (1, 2):
        for session in sessions:
            a_turn(session, turn, f"{session.id} {turn}")
    await store.close()

    assert [shown(session)[0] for session in sessions] == [f"s{number} 1" for number in range(5)]


async def test_a_session_that_never_got_an_event_is_not_kept(store: Store) -> None:
    async with await store.create("s"):
        assert not await store.list()

    assert not await store.list()
    with pytest.raises(SessionNotFoundError, match="'s'"):
        await store.open("s")
    async with await store.create("s"):
        pass
    await store.close()


async def test_the_list_tells_about_each_session_the_newest_change_first(store: Store) -> None:
    old = await store.create("old")
    a_turn(old, 1, "first words")
    new = await store.create("new", parent="old")
    new.append(ev.TurnStart(turn=1))
    new.append(ev.UserMessageEvent(message=user_message("context", source={"kind": "plugin"})), surface="append")
    new.append(ev.UserMessageEvent(message=user_message("\n  many   words\nand more")), surface="append")
    await new.flush()
    await old.close()

    assert await store.list() == [
        SessionInfo("new", 1009, 1012, 3, 1, "many words", Lineage("old", 0), True),
        SessionInfo("old", 1000, 1008, 8, 1, "first words", None, False),
    ]
    await store.close()


async def test_one_writer_at_a_time(store: Store) -> None:
    session = await store.create("s")
    with pytest.raises(SessionLockedError, match=r"session 's' .*already open for writing"):
        await store.create("s")
    a_turn(session, 1, "one")
    await session.flush()
    for attempt in (store.open, store.delete):
        with pytest.raises(SessionLockedError):
            await attempt("s")

    reader = await store.open("s", read_only=True)
    assert reader.events == session.events[:]
    with pytest.raises(SessionClosedError, match="opened for reading only"):
        reader.append(ev.EndSeed())
    await reader.close()

    await session.close()
    with pytest.raises(SessionExistsError, match="'s'"):
        await store.create("s")
    async with await store.open("s") as again:
        assert again.append(ev.EndSeed()).seq == 8
    await store.close()


async def test_closing_is_idempotent_and_final(store: Store) -> None:
    session = await store.create("s")
    session.append(ev.EndSeed())
    await session.close()
    again = await store.open("s")
    await session.close()
    with pytest.raises(SessionLockedError):
        await store.open("s")
    await store.close()
    await store.close()

    assert again.closed
    with pytest.raises(SessionClosedError):
        again.append(ev.EndSeed())
    for attempt in (store.open("s"), store.create(), store.delete("s"), store.fork("s")):
        with pytest.raises(StoreError, match=r"store .*is closed"):
            await attempt


async def test_a_session_is_deleted(store: Store) -> None:
    async with await store.create("s") as session:
        a_turn(session, 1, "one")
    await store.delete("s")

    assert not await store.list()
    with pytest.raises(SessionNotFoundError):
        await store.delete("s")
    async with await store.create("s") as anew:
        anew.append(ev.EndSeed())
    async with await store.open("s") as again:
        assert types(again) == ["session/end-seed"]
    await store.close()


async def test_a_fork_is_kept_when_it_is_made_and_its_parent_is_not_deleted(store: Store) -> None:
    parent = await store.create("parent")
    a_turn(parent, 1, "one")
    parent.append(ev.TurnStart(turn=2))
    parent.append(ev.StepStart(turn=2, step=1))
    parent.append(answer("more", 2), surface="append")
    parent.append(ev.StepEnd(turn=2, step=1))

    child = await store.fork("parent", 1, new_id="child")
    step = await store.fork("parent", 2, 1, "step")

    assert child.lineage == Lineage("parent", 8)
    assert child.events == [*parent.events[:8], child.events[-1]]
    assert shown(step) == ["one", "to one", "more"]
    assert step.events[-2].data == ev.TurnEnd(turn=2, reason=INTERRUPTED)
    assert {info.id: (info.parent, info.events, info.title) for info in await store.list()} == {
        "parent": (None, 12, "one"),
        "child": (Lineage("parent", 8), 9, "one"),
        "step": (Lineage("parent", 12), 14, "one"),
    }
    child.inbox.insert("next-turn", said("mine"))
    for session in (parent, child, step):
        await session.close()
    async with await store.open("child") as again:
        assert again.lineage == Lineage("parent", 8)
        assert again.inbox.next_turn == (said("mine"),)
    with pytest.raises(SessionHasChildrenError, match="'child', 'step'; delete them first") as refused:
        await store.delete("parent")
    assert (refused.value.id, refused.value.children) == ("parent", ("child", "step"))
    for id in ("step", "child", "parent"):
        await store.delete(id)
    assert not await store.list()
    await store.close()


async def test_rsm_05_a_fork_is_checked_source_first_then_id_then_boundary(store: Store) -> None:
    async with await store.create("s") as session:
        session.append(ev.TurnStart(turn=1))
    with pytest.raises(SessionNotFoundError):
        await store.fork("none", 7, new_id="s")
    with pytest.raises(SessionExistsError):
        await store.fork("s", 7, new_id="s")
    with pytest.raises(ForkError, match="no turn of it has ended"):
        await store.fork("s", 7, new_id="child")
    async with await store.create("child"):
        with pytest.raises(SessionLockedError):
            await store.fork("s", 7, new_id="child")
    assert [info.id for info in await store.list()] == ["s"]
    await store.close()


async def test_ids_are_free_text_and_odd_ones_are_refused(store: Store) -> None:
    for id in ("../../x", "a/b", "'; DROP TABLE sessions; --", "Überfall №1", "%s?#", "x" * 200):
        async with await store.create(id) as session:
            session.append(ev.EndSeed())
        async with await store.open(id) as again:
            assert again.id == id
    for id in ("", "a\nb", "x" * 201, "\ud800"):
        for attempt in (
            store.create(id),
            store.open(id),
            store.delete(id),
            store.fork(id),
            store.fork("a/b", None, None, id),
        ):
            with pytest.raises(SessionError, match="a session id"):
                await attempt
    assert len(await store.list()) == 6
    await store.close()


async def test_a_large_log_and_a_large_event_are_kept(store: Store) -> None:
    with fail_after(30):
        async with await store.create("s") as session:
            for number in range(1_000):
                session.append(ev.UserMessageEvent(message=said(f"m{number}")), surface="append")
            session.append(ev.UserMessageEvent(message=user_message("ü" * 2_000_000)), surface="append")
            await session.flush()
            session.append(ev.EndSeed())
        async with await store.open("s") as again:
            assert again.events == session.events[:]
        await store.close()


@pytest.mark.parametrize(
    ("said_text", "title"),
    [
        ("", ""),
        (" \n\t", ""),
        ("one", "one"),
        ("\n\n  two \x1b[31m words \nmore", "two [31m words"),
        ("x" * 200, "x" * 79 + "…"),
        ("word " * 30, ("word " * 16)[:79].rstrip() + "…"),
    ],
)
async def test_a_title_is_the_first_line_that_says_something(said_text: str, title: str) -> None:
    assert shortened(said_text) == title
