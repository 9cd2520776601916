"""What a store must do, as checks that `check_store` makes: each says in words what was wrong with a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import anyio

from lifecycle.errors import (
    ForkError,
    SessionClosedError,
    SessionError,
    SessionExistsError,
    SessionHasChildrenError,
    SessionLockedError,
    SessionNotFoundError,
    StoreCheckError,
    StoreError,
)
from lifecycle.session.fork import Lineage
from lifecycle.session.store import Store
from lifecycle.vocabulary.events import (
    EndSeed,
    Opaque,
    Replace,
    RequestContext,
    RequestHeader,
    StepStart,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import INTERRUPTED
from lifecycle.vocabulary.messages import user_message
from lifecycle.vocabulary.requests import CallConfig, Header
from lifecycle.vocabulary.values import FrozenDict

from .store_bench import Bench, write_turn


async def _order(bench: Bench, store: Store) -> None:
    """Events come back as they were, in order, with all that derives from them."""
    session = await store.create("s", parent="mother")
    session.append(RequestHeader(header=Header(config=CallConfig(provider="p", model="m")), reason="initial"))
    session.append(RequestContext(provider="p", model="m"))
    for turn in range(1, 40):
        write_turn(session, turn, f"prompt {turn}")
        if turn % 7 == 0:
            await session.flush()
    session.append(
        Opaque(name="plugin/own", payload=FrozenDict(deep=FrozenDict(a=(1, 2.5, None, '\u2028 \\ "')))), ignorable=True
    )
    summary = UserMessageEvent(message=user_message("what was said", id="summary"))
    said = [event.seq for event in session.events[:30] if event.surface == "append"]
    session.append(summary, surface=Replace(start=said[0], end=said[-1]), sources=said)
    session.inbox.insert("next-step", user_message("waits", id="waits"))
    kept, derived = tuple(session.events), list(session.derive_messages())
    await session.close()
    store = await bench.reopened(store)
    reader, again = await store.open("s", read_only=True), await store.open("s")
    for found in (reader, again):
        bench.need(tuple(found.events) == kept, "gives back other events than it was given, or in another order")
        bench.need(list(found.derive_messages()) == derived, "gives back another conversation")
        bench.need([m.id for m in found.inbox.next_step] == ["waits"], "forgets input that waits")
        bench.need(found.lineage == Lineage("mother"), "forgets where a session comes from")
        bench.need((found.last_turn, found.open_turn) == (39, None), "counts turns wrongly")
        bench.need((found.header, found.context) == (session.header, session.context), "forgets how it was asked")
    bench.need(again.append(EndSeed()).seq == len(kept), "goes on with another number")
    await store.close()


async def _batches(bench: Bench, store: Store) -> None:
    """What is flushed is there for everybody, and what is there is always a beginning of the log."""
    session = await store.create("s")
    for turn in range(1, 6):
        write_turn(session, turn, "prompt")
        await session.flush()
        session.append(Opaque(name="plugin/more"), ignorable=True)
        seen = (await store.open("s", read_only=True)).events
        bench.need(len(seen) >= session.next_seq - 1, "has not kept what was flushed")
        bench.need(tuple(seen) == session.events[: len(seen)], "shows something that is no beginning of the log")
    barrier = session.barrier()
    if barrier is not None:
        await barrier
    await session.close()
    await session.close()
    bench.need((await store.open("s", read_only=True)).events == session.events, "loses the end of a closed session")


async def _one_writer(bench: Bench, store: Store) -> None:
    """One session has one writer, whoever asks; readers are always welcome."""
    session = await store.create("s")
    await bench.refused("makes a session twice at once", SessionLockedError, store.create, "s")
    write_turn(session, 1, "prompt")
    await session.flush()
    others = [store, await bench.store()] if bench.durable else [store]
    for other in others:
        await bench.refused("lets two write one session", SessionLockedError, other.open, "s")
        await bench.refused("deletes what somebody writes", SessionLockedError, other.delete, "s")
        reader = await other.open("s", read_only=True)
        bench.need(reader.events == session.events, "shows a reader something else")
        try:
            reader.append(EndSeed())
        except SessionClosedError:
            pass
        else:
            raise StoreCheckError(bench.check, "lets a reader write")
    await session.close()
    for other in others:
        async with await other.open("s") as again:
            again.append(Opaque(name="plugin/more"), ignorable=True)
        await bench.refused("makes a session that it holds", SessionExistsError, other.create, "s")
    for other in others[1:]:
        await other.close()


async def _side_by_side(bench: Bench, store: Store) -> None:
    """Sessions that are written at once do not get into each other's way, and closing the store keeps them all."""
    sessions = [await store.create(f"s{number}") for number in range(5)]
    for turn in range(1, 10):
        for session in sessions:
            write_turn(session, turn, f"{session.id} says {turn}")
    kept = {session.id: tuple(session.events) for session in sessions}
    if bench.durable:
        store = await bench.reopened(store)
    found = {id: tuple((await store.open(id, read_only=True)).events) for id in kept}
    bench.need(found == kept, "mixes sessions that are written at once, or loses some of them")
    await store.close()


async def _hindered(bench: Bench, store: Store) -> None:
    """What cannot be kept is said, waits, and is kept once it can be; meanwhile nothing is there by halves."""
    if bench.hinder is None:
        return
    session = await store.create("s")
    write_turn(session, 1, "prompt")
    await session.flush()
    with bench.hinder(store):
        for turn in range(2, 20):
            write_turn(session, turn, "prompt")  # never raises
        await bench.refused("says that it has kept what it cannot keep", StoreError, session.flush)
        await bench.refused("closes a session whose events it cannot keep", StoreError, session.close)
        await bench.refused("forks what it cannot keep", StoreError, store.fork, "s", 1, None, "child")
        seen = (await store.open("s", read_only=True)).events
        bench.need(tuple(seen) == session.events[: len(seen)], "shows something that is no beginning of the log")
        bench.need(len(seen) < session.next_seq, "has kept what it says that it could not keep")
    await session.flush()
    bench.need((await store.open("s", read_only=True)).events == session.events, "loses what it could not keep at once")
    bench.need([info.id for info in await store.list()] == ["s"], "leaves a fork behind that it could not keep")
    await session.close()
    async with await store.fork("s", 1, new_id="child"):
        pass


async def _cancellation(bench: Bench, store: Store) -> None:
    """Whoever gives up waiting leaves nothing locked and nothing half made."""
    for id in ("s", "other"):
        async with await store.create(id) as session:
            write_turn(session, 1, "prompt")
    for attempt in (
        partial(store.create, "new"),
        partial(store.open, "s"),
        partial(store.fork, "s", 1, None, "child"),
        partial(store.delete, "other"),
    ):
        with anyio.CancelScope() as scope:
            scope.cancel()
            made = await attempt()
            if made is not None:
                await made.close()
    ids = {info.id for info in await store.list()}
    bench.need({"s"} <= ids <= {"s", "child", "other"}, "keeps what nobody has waited for")
    for id in ids:
        async with await store.open(id) as again:
            bench.need(again.next_seq >= 8, "keeps half of what nobody has waited for")
    async with await store.create("new"):
        pass


async def _fencing(bench: Bench, store: Store) -> None:
    """A writer that was silent for too long, and lost its session to another one, cannot append any more."""
    if bench.usurp is None:
        return
    session = await store.create("s")
    write_turn(session, 1, "prompt")
    await session.flush()
    other = await bench.store()
    usurper = await bench.usurp(other, "s")
    session.append(Opaque(name="plugin/late"), ignorable=True)
    await bench.refused("lets a writer append that has lost its lease", SessionLockedError, session.flush)
    write_turn(usurper, 2, "mine")
    await usurper.close()
    kept = await other.open("s", read_only=True)
    bench.need(kept.events == usurper.events, "mixes the lines of two writers")
    await session.close(discard=True)
    await other.close()


async def _nothing(bench: Bench, store: Store) -> None:
    """A session without an event is not kept, and what is not there is said not to be there."""
    async with await store.create("s"):
        bench.need(not await store.list(), "lists a session that has no event")
    for attempt in (store.open, partial(store.open, read_only=True), store.delete, store.fork):
        await bench.refused("finds a session that is not there", SessionNotFoundError, attempt, "s")
    async with await store.create("s"):
        pass


async def _listing(bench: Bench, store: Store) -> None:
    """The list tells of each session, the newest change first, whole or page by page."""
    for number in range(9):
        async with await store.create(f"s{number}", parent="s0" if number else None) as one:
            write_turn(one, 1, f"prompt {number}")
        await anyio.sleep(0.002)  # two changes within a millisecond are as new as each other
    session = await store.create("s9", parent="s0")
    write_turn(session, 1, "prompt 9")
    await session.flush()
    infos = await store.list()
    bench.need([info.id for info in infos] == [f"s{n}" for n in reversed(range(10))], "does not list the newest first")
    newest = infos[0]
    told = newest.events, newest.turns, newest.title, newest.parent, newest.locked
    expected = session.next_seq, 1, "prompt 9", Lineage("s0"), True
    bench.need(told == expected, f"tells {told} of a session where {expected} holds")
    bench.need(not any(info.locked for info in infos[1:]), "says that somebody writes what nobody has open")
    bench.need(type(infos) in (list, tuple), "lists in something that is no sequence of its own")
    bench.need(newest.created_at <= newest.updated_at == session.events[-1].time, "tells other times than events have")
    pages = [await store.list(limit=4, offset=offset) for offset in (0, 4, 8, 12)]
    bench.need([info for page in pages for info in page] == list(infos), "gives pages that do not make up the list")
    await session.close()
    titles = {"  \n\n two \x1b[31m  words \nmore": "two [31m words", "x" * 200: "x" * 79 + "…", " \n": ""}
    for number, (prompt, title) in enumerate(titles.items()):
        async with await store.create(f"title {number}") as one:
            context = user_message("context", source={"kind": "plugin"})
            one.append(UserMessageEvent(message=context), surface="append")
            one.append(UserMessageEvent(message=user_message(prompt)), surface="append")
        found = {info.id: info.title for info in await store.list()}[one.id]
        bench.need(found == title, f"calls {found!r} what a person began with {prompt[:20]!r}")


async def _deletion(bench: Bench, store: Store) -> None:
    """What is deleted is gone, and its id is free; what others were forked from stays."""
    async with await store.create("s") as session:
        write_turn(session, 1, "prompt")
    async with await store.fork("s", new_id="child"):
        pass
    refused = await bench.refused("deletes what others were forked from", SessionHasChildrenError, store.delete, "s")
    assert isinstance(refused, SessionHasChildrenError)
    bench.need(
        "child" in str(refused) and (refused.id, refused.children) == ("s", ("child",)),
        "does not name the forks that are in the way",
    )
    async with await store.fork("child", new_id="grandchild"):
        pass
    await bench.refused("deletes what others were forked from", SessionHasChildrenError, store.delete, "child")
    for id in ("grandchild", "child", "s"):
        await store.delete(id)
        await bench.refused("deletes twice", SessionNotFoundError, store.delete, id)
    bench.need(not await store.list(), "lists what was deleted")
    await bench.refused("opens what was deleted", SessionNotFoundError, store.open, "s")
    async with await store.create("s") as session:
        session.append(EndSeed())
    bench.need((await store.open("s", read_only=True)).next_seq == 1, "mixes a new session with a deleted one")


async def _forks(bench: Bench, store: Store) -> None:
    """A fork has the beginning of its parent, is kept whole when it is made, and is checked in order."""
    parent = await store.create("parent")
    write_turn(parent, 1, "one")
    write_turn(parent, 2, "two")
    parent.inbox.insert("next-turn", user_message("mine", id="mine"))
    child = await store.fork("parent", 1, new_id="child")
    bench.need(child.events[:8] == parent.events[:8], "forks with other events than the parent's")
    bench.need(child.lineage == Lineage("parent", 8), "forgets where a fork comes from")
    bench.need((await store.open("child", read_only=True)).events == child.events, "has not kept a fork it has made")
    await child.close()
    for turn in (2, 3):
        async with await store.open("child") as child:
            bench.need(child.lineage == Lineage("parent", 8), "forgets where a fork comes from when it goes on")
            write_turn(child, turn, "on")
    step = await store.fork("parent", 2, 1, "step")
    bench.need(step.events[:15] == parent.events[:15], "forks at a step with other events than the parent's")
    bench.need(step.events[15].data == TurnEnd(turn=2, reason=INTERRUPTED), "leaves a turn open that it forks within")
    bench.need(step.lineage == Lineage("parent", 15), "counts the events of a fork at a step wrongly")
    newest = await store.fork("parent")
    bench.need(newest.events[:16] == parent.events[:16], "forks elsewhere than at the newest turn that has ended")
    bench.need(not newest.inbox.pending, "lets a fork inherit input that waits for its parent")
    for fork in (step, newest):
        again = await store.open(fork.id, read_only=True)
        bench.need(again.events == fork.events and not again.inbox.pending, "has not kept a fork it has made")
        await fork.close()
        await store.delete(fork.id)
    async with await store.create("taken"):
        await bench.refused(
            "forks into what is about to be made", SessionLockedError, store.fork, "parent", 1, None, "taken"
        )
    await bench.refused("forks what is not there", SessionNotFoundError, store.fork, "none", 7, None, "parent")
    await bench.refused("forks into what is there", SessionExistsError, store.fork, "parent", 7, None, "child")
    await bench.refused("forks where no turn has ended", ForkError, store.fork, "parent", 7, None, "other")
    bench.need({info.id for info in await store.list()} == {"parent", "child"}, "keeps a fork that it has refused")
    await parent.close()


async def _ids(bench: Bench, store: Store) -> None:
    """An id is free text; what cannot be one is refused."""
    odd = (
        "../../x",
        "a/b",
        "a\\b",
        "A/b",
        "'; DROP TABLE sessions; --",
        "Überfall №1",
        "%s?#%2F",
        ".",
        "..",
        "x" * 200,
        "ü" * 200,
    )
    for id in odd:
        async with await store.create(id) as session:
            session.append(EndSeed())
    bench.need({info.id for info in await store.list()} == set(odd), "mistakes one id for another")
    for id in odd:
        bench.need((await store.open(id, read_only=True)).id == id, f"does not find {id!r} again")
    for id in ("", "a\nb", "x" * 201, "\ud800"):
        for attempt in (store.create, store.open, store.delete, store.fork, partial(store.fork, odd[0], None, None)):
            await bench.refused(f"takes {id[:10]!r} for an id", SessionError, attempt, id)


async def _large(bench: Bench, store: Store) -> None:
    """A very large event is kept, and what follows it."""
    session = await store.create("s")
    session.append(UserMessageEvent(message=user_message("ü" * (bench.megabytes * 500_000))), surface="append")
    session.append(EndSeed())
    await session.flush()
    session.append(Opaque(name="plugin/more"), ignorable=True)
    await session.close()
    bench.need((await store.open("s", read_only=True)).events == session.events, "does not keep a large event")


async def _many(bench: Bench, store: Store) -> None:
    """A place bears many sessions."""
    for number in range(bench.sessions):
        async with await store.create(f"s{number}") as session:
            session.append(EndSeed())
    infos = await store.list()
    bench.need(len(infos) == bench.sessions, f"lists {len(infos)} of {bench.sessions} sessions")
    for number in {0, bench.sessions // 2, bench.sessions - 1}:
        bench.need((await store.open(f"s{number}", read_only=True)).next_seq == 1, "loses one among many")


async def _readers(bench: Bench, store: Store) -> None:
    """Readers see a beginning of the log that only grows, while somebody writes."""
    session = await store.create("s")
    write_turn(session, 1, "prompt")
    await session.flush()
    done = anyio.Event()

    async def read() -> None:
        seen = 0
        while not done.is_set():
            events = (await store.open("s", read_only=True)).events
            bench.need(len(events) >= seen, "shows a reader less than before")
            bench.need(tuple(events) == session.events[: len(events)], "shows a reader what is no beginning of the log")
            seen = len(events)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(read)
        for turn in range(2, 40):
            write_turn(session, turn, "prompt")
            await session.flush()
        done.set()
    await session.close()


async def _repair(bench: Bench, store: Store) -> None:
    """A turn that was left open is there when the session is opened; its repair is kept, and made once."""
    session = await store.create("s")
    session.inbox.insert("next-turn", user_message("prompt", id="p"))
    session.append(TurnStart(turn=1))
    session.inbox.claim(first=True)
    session.append(StepStart(turn=1, step=1))
    await session.close()
    store = await bench.reopened(store)
    async with await store.open("s") as again:
        bench.need(again.open_turn == 1, "has closed a turn by itself")
        again.repair()
    async with await store.open("s") as once:
        bench.need(once.events == again.events, "does not keep a repair")
        bench.need([message.id for message in once.inbox.next_turn] == ["p"], "loses what a crash took")
        bench.need(once.repair() == (), "has something to repair twice")
    await store.close()


async def _closing(bench: Bench, store: Store) -> None:
    """Closing keeps what is open, is final, and may be done again."""
    session = await store.create("s")
    write_turn(session, 1, "prompt")
    await store.close()
    await store.close()
    bench.need(session.closed, "leaves a session open when it is closed")
    try:
        session.append(EndSeed())
    except SessionClosedError:
        pass
    else:
        raise StoreCheckError(bench.check, "lets a session go on that it has closed")
    for attempt in (store.open, store.create, store.delete, store.fork):
        await bench.refused("goes on after it was closed", StoreError, attempt, "s")


Check: TypeAlias = Callable[[Bench, Store], Awaitable[None]]
STORE_CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "order": _order,
        "batches": _batches,
        "side by side": _side_by_side,
        "one writer": _one_writer,
        "fencing": _fencing,
        "hindered": _hindered,
        "cancellation": _cancellation,
        "nothing": _nothing,
        "listing": _listing,
        "deletion": _deletion,
        "forks": _forks,
        "ids": _ids,
        "large event": _large,
        "many sessions": _many,
        "readers": _readers,
        "repair": _repair,
        "closing": _closing,
    }
)
"""The checks, by name."""
