"""Where processes are killed: a process that forks one for each point at which it is to die.

    python -m tests.crash.nursery < CASES > FINDINGS

A case, a line of JSON, is a store and where its processes die: the first at point `kill`, the second, which takes over,
at point `again` (or not at all). A point is a durable append, or a return to the event loop: an await. A third one
goes on to the end. After each, the log is looked at. Findings are a line each: what is wrong, and how far it came.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio

from lifecycle import Agent, AgentOptions
from lifecycle.errors import SessionLockedError, SessionNotFoundError
from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.log import Session
from lifecycle.session.repair import torn
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.store import Store
from lifecycle.vocabulary.events import Event, ToolCallEvent, decode_event

from . import audit, story

OPTIONS = AgentOptions(approve=story.approve)
SECONDS = 60
"""How long a process may live."""


def make_store(kind: str, folder: Path, durability: Any) -> Store:
    """A store of this kind in a folder."""
    if kind == "sqlite":
        return SqliteStore(folder / "sessions.db", durability=durability)
    if kind == "postgres":
        from lifecycle_adapters.postgres import PostgresStore  # only where psycopg is there

        return PostgresStore(os.environ["CRASH_POSTGRES"], schema=folder.name, durability=durability)
    return JsonlStore(folder / "sessions", durability=durability)


class Points:
    """Counts points, and kills the process at one of them."""

    def __init__(self, kill: int) -> None:
        self.count, self._kill = 0, kill

    def passed(self) -> None:
        self.count += 1
        if self.count == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self, backend: str) -> dict[str, Any]:
        """Count appends from now on, and what the options of `anyio.run` make count, which are returned."""
        append: Any = Session.append
        passed = self.passed

        def counted(session: Session, *arguments: Any, **options: Any) -> Event:
            event: Event = append(session, *arguments, **options)
            passed()
            return event

        patch.object(Session, "append", counted).start()
        if backend == "trio":
            from trio.abc import Instrument

            class Steps(Instrument):
                def before_task_step(self, task: object) -> None:
                    passed()

            return {"backend": "trio", "backend_options": {"instruments": [Steps()]}}

        class Loop(asyncio.SelectorEventLoop):
            def _run_once(self) -> None:
                passed()
                super()._run_once()  # type: ignore[misc]  # the private heart of the loop

        return {"backend": "asyncio", "backend_options": {"loop_factory": Loop}}


def in_a_process(work: Callable[[], None]) -> int:
    """Do `work` in a process of its own; how that ended: 0, 1 if it raised, or the negative number of a signal."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(SECONDS)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Case:
    """One store and its processes."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.kill, self.again = int(told["kill"]), int(told["again"])
        self.kind, self.durability = str(told["store"]), str(told["durability"])
        self.backend, self.folder = str(told["backend"]), Path(told["folder"])
        self.found: list[str] = []
        self.seen = 0
        """How many lines of the witness were looked at."""

    def witness(self, line: str) -> None:
        file = os.open(self.folder / "witness", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{line}\n".encode())
        os.close(file)

    def process(self, live: Callable[[Store], Awaitable[None]], kill: int = 0) -> int:
        """Live in a process of its own, which dies at point `kill`, or never."""

        def work() -> None:
            points = Points(kill)

            async def main() -> None:
                store = make_store(self.kind, self.folder, self.durability)
                try:
                    await live(store)
                finally:
                    await store.close()

            anyio.run(main, **points.install(self.backend))
            (self.folder / "points").write_text(str(points.count))

        return in_a_process(work)

    async def first(self, store: Store) -> None:
        hanging = anyio.Event()

        async def started() -> None:
            hanging.set()

        tools = story.the_tools(self.witness, started)
        model, hooks, session = story.the_model(self.witness), story.the_hooks(asking=True), await store.create("s")
        async with Agent(model, tools=tools, hooks=hooks, session=session, options=OPTIONS, monitor=True) as agent:
            await story.live(agent, self.witness, hanging)

    async def later(self, store: Store) -> None:
        agents: list[Agent] = []

        async def started() -> None:
            agents[0].cancel(keep_inbox=True)

        tools, hooks = story.the_tools(self.witness, started), story.the_hooks(asking=True)
        model = story.the_model(self.witness)
        session: Session | None = None
        while session is None:
            with suppress(SessionLockedError):  # the server may still be about to see that the process is gone
                session = await _opened(store)
        async with Agent(model, tools=tools, hooks=hooks, session=session, options=OPTIONS, monitor=True) as agent:
            agents.append(agent)
            await story.finish(agent, self.witness)

    def log(self) -> list[Event]:
        """What the store holds now, read by a process of its own."""
        file = self.folder / "log"

        async def read(store: Store) -> None:
            try:
                events: Sequence[Event] = (await store.open("s", read_only=True)).events
            except SessionNotFoundError:
                events = ()
            file.write_text("".join(f"{event.encode()}\n" for event in events))

        file.unlink(missing_ok=True)
        if self.process(read):
            self.found.append("the log cannot be read")
            return []
        return [decode_event(line) for line in file.read_text().split("\n") if line]

    def look(self, before: Sequence[Event], *, whole: bool = False) -> list[Event]:
        """Look at the log after a process has ended: it has grown, is legal, and knows of all that happened."""
        events = self.log()
        if events[: len(before)] != list(before):
            self.found.append("durable events are gone or changed")
        if wrong := audit.illegal(events, whole=False):
            self.found.append(wrong)
        if whole:
            self.found += audit.problems(Session.restored(events, "s"))
        path = self.folder / "witness"
        happened = path.read_text().splitlines() if path.exists() else []
        recorded = {event.seq for event in before if isinstance(event.data, ToolCallEvent)}
        left = torn(before)
        if left is not None and left.parked is not None:  # somebody was asked about it: it had not started
            recorded.discard(left.parked.record.seq)
        for line in happened[self.seen :]:  # what the last process did, where an earlier one had recorded the call
            if line.startswith(("body charge", "body hang")) and int(line.rpartition(":")[2]) in recorded:
                self.found.append(f"{line} ran again, although it was recorded")
        self.seen = len(happened)
        if self.durability == "strict":
            promised = {line.removeprefix("accepted ") for line in happened if line.startswith("accepted ")}
            self.found += [f"{id}: followup() had returned" for id in sorted(promised - audit.accepted(events))]
        if self.durability != "none":  # which may lose the record of a call, and then gives its key to another one
            self.found += _unknown(happened, events)
            for line, times in Counter(happened).items():
                if times > 1 and line.startswith(("body charge", "body hang")):
                    self.found.append(f"{line} ran {times} times")
        return events

    def run(self) -> dict[str, Any]:
        """Perform the case; what was found, and how many events there were after each process."""
        self.folder.mkdir(parents=True)
        ended = [self.process(self.first, self.kill)]
        counts = [int((self.folder / "points").read_text()) if ended[0] == 0 else 0]
        events = self.look([])
        if self.again:
            ended.append(self.process(self.later, self.again))
            events = self.look(events)
        ended.append(self.process(self.later))
        after = self.look(events, whole=True)
        if any(code not in (0, -signal.SIGKILL) for code in ended) or ended[-1]:
            self.found.append(f"a process ended with {ended}")
        return {"found": self.found, "ended": ended, "points": counts[0], "events": [len(events), len(after)]}


async def _opened(store: Store) -> Session:
    try:
        return await store.open("s")
    except SessionNotFoundError:  # the first process has died before anything was kept
        return await store.create("s")


def _unknown(happened: Sequence[str], events: Sequence[Event]) -> list[str]:
    """What happened outside, and the log does not know of."""
    found: list[str] = []
    calls = {event.seq for event in events if isinstance(event.data, ToolCallEvent)}
    ids = {getattr(getattr(event.data, "message", None), "id", "") for event in events}
    for line in happened:
        kind, _, rest = line.partition(" ")
        if kind == "body" and int(rest.rpartition(":")[2]) not in calls:
            found.append(f"{line}: the log has no such call")
        if kind == "asked" and rest not in ids:
            found.append(f"the model was asked about {rest}, which the log does not hold")
    return found


def main() -> None:
    for line in sys.stdin:
        sys.stdout.write(json.dumps(Case(json.loads(line)).run()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
