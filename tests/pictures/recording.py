"""What an agent really does, as the symbols of its full picture.

Only what can be observed is recorded: the events of both domains, the dispatches of hook points, and, of what has no
wire name, the call of its performer. Of an event is also known which performer was performing, and for which phase or
arrow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import CoroutineType, GeneratorType
from typing import Any, cast

from lifecycle import Agent, Hooks
from lifecycle.definition.effects import USER, Kind, Message
from lifecycle.definition.machine import Lifecycle
from lifecycle.definition.table import Row, Table
from lifecycle.driver.program import Action, Perform, Program, Station
from lifecycle.driver.programs import Programs
from lifecycle.driver.walk import Cuttable, Flow
from lifecycle.pictures.graph import arrow_key
from lifecycle.services.points import Mode
from lifecycle.vocabulary.events import Event

from .symbols import REFUSED, SEVERAL, STRAY, called, declared_in, spelt, told_as

BODY = STRAY + "body"
TOOL_OWNED = "tool-owned events when applicable"
UNDRAWN = frozenset({"agent/created", "agent/session-start"})
"""What is told before an agent takes anything: no lifecycle says it."""
DOMAIN = frozenset({"session/append", "session/event"})
"""The points by which the log itself is watched; a recording listens at the session instead."""

_performing: ContextVar[tuple[str, str]] = ContextVar("performing", default=("", ""))
"""The arrow or phase for which is being performed, and the key of the effect."""


class Recording:
    """Records an agent from now on. `symbols` is the word, `arrows` the keys of the arrows that were taken.

    To be made before the agent is entered. The lifecycle is the one that the agent performs.
    """

    def __init__(self, agent: Agent, lifecycle: type[Lifecycle], programs: Programs) -> None:
        messages = [effect for _, effect in declared_in(lifecycle) if isinstance(effect, Message)]
        self._names = {effect.key: told_as(effect) for effect in messages if effect.performed}
        self._known = {name for effect in messages for name in (*told_as(effect), *effect.names)}
        self._records = {effect.key for effect in messages if effect.performed and effect.kind is Kind.RECORD}
        self._called = {effect.key for effect in messages if called(effect)}
        self.symbols: list[str] = []
        self.arrows: set[str] = set()
        self.unknown: set[str] = set()
        """The names of what was observed and is in no lifecycle."""
        self._tried: int | None = None
        """Where the record stands that is being appended."""
        self._attempts = 0
        self._foreign = False
        run: Any = agent._run  # pyright: ignore[reportPrivateUsage]  # the programs are nowhere else
        run.program, run.call_program = self._watched(programs.agent), self._watched(programs.call)
        self._listen(agent.hooks)
        agent.session.veto(self._tries)
        agent.session.observe(self._commits)

    def note(self, symbol: str) -> None:
        """Add what only the scenario sees."""
        self.symbols.append(symbol)

    @contextmanager
    def unseen(self) -> Generator[None]:
        """What is appended within is a listener's own record, which no lifecycle makes."""
        self._foreign = True
        try:
            yield
        finally:
            self._foreign = False

    @property
    def word(self) -> tuple[str, ...]:
        """What happened. A record that was tried and never committed was refused."""
        self._settle()
        return tuple(self.symbols)

    # -- events -------------------------------------------------------------------------------------------------------

    def _listen(self, hooks: Hooks) -> None:
        for name, point in hooks.points.items():
            if name in DOMAIN:
                continue
            hooks.listen(
                name, self._wrapper(name) if point.mode is Mode.WATERFALL else self._listener(name), prepend=True
            )

    def _listener(self, name: str) -> Callable[[Any], None]:
        def tell(payload: Any) -> None:
            told = name
            if name in SEVERAL:
                told += f" {payload.status if hasattr(payload, 'status') else payload.frame.type}"
            self._happens(told)

        return tell

    def _wrapper(self, name: str) -> Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]:
        def dispatch(payload: Any, next: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
            self._happens(name)
            return next()

        return dispatch

    def _tries(self, event: Event) -> None:
        self._settle()
        if not self._foreign:
            self._attempts += 1
            self._tried = len(self.symbols)
            self._happens(event.type, TOOL_OWNED)

    def _commits(self, event: Event) -> None:
        self._tried = None

    def _settle(self) -> None:
        if self._tried is not None:
            self.symbols[self._tried] = REFUSED + self.symbols[self._tried]
            self._tried = None

    def _happens(self, name: str, otherwise: str = "") -> None:
        if name not in self._known:
            if not otherwise:
                self.unknown.add(name)
                return
            name = otherwise
        by, key = _performing.get()
        names = self._names.get(key, ())
        self.symbols.append(spelt(by, key, name if len(names) > 1 else "") if name in names else STRAY + name)

    # -- performers ---------------------------------------------------------------------------------------------------

    def _watched(self, program: Program) -> Program:
        table = _WatchedTable(
            program.table.name,
            program.table.initial,
            program.table.final,
            program.table.phases,
            program.table.rows,
            self._takes,
        )
        name = program.table.name
        stations = {key: self._watched_station(name, station) for key, station in program.stations.items()}
        emits = {
            row: self._watched_all(arrow_key(name, row.event, row.arrow), actions)
            for row, actions in program.emits.items()
        }
        return replace(program, table=table, stations=stations, emits=emits)

    def _watched_station(self, lifecycle: str, station: Station) -> Station:
        nested = None if station.nested is None else self._watched(station.nested)
        actions = self._watched_all(f"{lifecycle}.{station.name}", station.actions)
        return replace(station, actions=actions, nested=nested)

    def _watched_all(self, by: str, actions: Iterable[Action]) -> tuple[Action, ...]:
        return tuple(action._replace(perform=self._performer(by, action)) for action in actions)

    def _performer(self, by: str, action: Action) -> Perform:
        key, perform, shows = action.key, action.perform, action.key in self._called

        def seen(result: Any) -> Any:
            if isinstance(result, Cuttable):
                return Cuttable(on(result.work), result.signal)
            if isinstance(result, GeneratorType):
                return through(cast("Flow", result))
            return on(cast("Any", result)) if isinstance(result, CoroutineType) else result

        def through(flow: Flow) -> Flow:
            step: Any = flow.send
            given: Any = None
            while True:
                token = _performing.set((by, key))
                try:
                    pending = step(given)
                except StopIteration as end:
                    return cast("str | None", end.value)
                finally:
                    _performing.reset(token)
                try:
                    step, given = flow.send, (yield seen(pending))
                except BaseException as error:
                    step, given = flow.throw, error

        async def on(result: Coroutine[Any, Any, str | None]) -> str | None:
            token = _performing.set((by, key))
            try:
                return await result
            finally:
                _performing.reset(token)

        def performing(run: Any) -> Any:
            if shows:
                self.symbols.append(spelt(by, key))
            token, before = _performing.set((by, key)), self._attempts
            try:
                result = perform(run)
            except Exception:
                if key in self._records and self._attempts == before:  # refused before anybody could be asked
                    self.symbols.append(REFUSED + spelt(by, key))
                raise
            finally:
                _performing.reset(token)
            return seen(result)

        return performing

    def _takes(self, table: str, event: str, row: Row) -> None:
        by = arrow_key(table, event, row.arrow)
        self.arrows.add(by)
        asked = [effect for effect in row.emits if isinstance(effect, Message) and effect.sender is USER]
        self.symbols += [spelt(by, effect.key) for effect in asked]


@dataclass(frozen=True, slots=True, eq=False)
class _WatchedTable(Table):
    """A table that says which of its rows are taken."""

    takes: Callable[[str, str, Row], None]

    def choose(self, phase: str, event: str, facts: Callable[[], Any]) -> Row:
        row = Table.choose(self, phase, event, facts)
        self.takes(self.name, event, row)
        return row
