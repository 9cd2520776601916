"""The world of an abstract run: one agent with its turn, step and calls, and what the outside may still do to it.

Everything here is an immutable value in one flat record, so that a world is copied and compared at the cost of a
tuple. This is data only; `stepper` moves it, `performers` say what each effect does to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from lifecycle.definition.agent import AgentFacts
from lifecycle.definition.machine import NoFacts
from lifecycle.definition.step import StepFacts
from lifecycle.definition.turn import TurnFacts

from .flat import Flat
from .happenings import Happening, Ledger
from .invariants import Broken, broken

Ids: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far the outside world goes.

    An `odd` move is one out of the ordinary: a cancel, a rejection, something that raises, a failing provider, a
    refused append, a crash, and so on. Ordinary moves are free, so a search covers every way in which so many odd
    things can meet.
    """

    messages: int = 2
    """Inputs of any kind."""
    odd: int = 2
    steps: int = 2
    """Steps of one turn; the provider's last answers ask for nothing more."""
    calls: int = 2
    """Calls of one answer, each parallel or not."""
    cap: int = 2
    """Calls that may run at once."""
    retries: int = 1
    """Of one step."""
    causes: tuple[str, ...] = ("user", "disposed")
    listeners: bool = True
    """Listeners and observers do something when they are told of something, and not only hooks and other tasks."""
    vetoes: bool = True
    """Appends may be refused."""
    crashes: bool = True
    """The process may stop anywhere, and the session is repaired."""
    hooks: bool = True
    """Hooks do odd things, and not only the outside world."""
    edits: bool = True
    """Pending input may be removed."""
    maintenance: bool = True

    def but(self, **changes: Any) -> Bounds:
        """The same, with some of it changed."""
        return replace(self, **changes)


class Call(NamedTuple):
    """One tool call."""

    parallel: bool
    phase: str = ""
    outcome: str = ""
    """`ok` or the code of its error, once there is one."""
    error: bool = False
    running: bool = False
    """Its body has a task of its own that has not ended."""
    context: str = ""
    """A message that its result stages."""
    frame: Any = None
    """Where it goes on."""

    @property
    def told(self) -> str:
        """The outcome as its result shows it."""
        return self.outcome.partition(",")[0]


class BrokenError(Exception):
    """The run has broken an invariant."""

    def __init__(self, how: Broken) -> None:
        super().__init__(str(how))
        self.how = how


@dataclass
class World(Flat):
    """One state of everything. The comments name what in the driver's working records a field stands for."""

    # what the outside may still do
    odd: int
    sendable: Ids

    # where everything is: the phases, and by task the frames of the walk
    agent: str
    turn: str = ""
    step: str = ""
    main: tuple[Any, ...] = ()
    bodies: tuple[Any, ...] = ()
    takes: tuple[Any, ...] = ()

    # AgentRun
    next_step: Ids = ()
    next_turn: Ids = ()
    cause: str = ""
    woken: bool = False
    disposing: bool = False
    leaving: bool = False
    gone: bool = False
    status: str = "idle"
    sending: tuple[str, str] | None = None
    cancelling: str = ""
    keeping: bool = False
    discarded: Ids = ()
    inserted: Ids = ()
    editing: tuple[str, str] = ("", "")
    """The message that is edited, and what comes in its place."""
    edited_out: Ids = ()
    edited_in: Ids = ()

    # TurnRun
    number: int = 0
    claimed: Ids = ()
    unsettled: tuple[tuple[str, str], ...] = ()
    """Claimed messages of which the log does not say yet what has become of them, each with its list."""
    steps: int = 0
    proposals: int = 0
    reason: str = "completed"
    owed: bool = False
    go_on: bool = True
    error: bool = False

    # StepRun
    batch: Ids = ()
    step_owed: bool = False
    published: bool = False
    decision: Ids | None = None
    opened: bool = False
    tools: bool = False
    attempts: int = 0
    stream: str = ""
    """The attempt: `open`, `failed`, `shown` if something of it is visible; then `settling`, then `ended`."""
    finish: str = ""
    retry: bool = False

    # Pool
    calls: tuple[Call, ...] = ()
    waiting: tuple[int, ...] = ()
    started: tuple[int, ...] = ()
    exclusive: bool = False
    concluded: bool = False
    undecided: bool = False
    """The only call that has started is one that a lost process had asked about."""

    @property
    def pending(self) -> bool:
        return bool(self.next_step or self.next_turn)

    def facts(self, level: int) -> Any:
        """What the guards of that level's lifecycle may read; 0 is the agent, 3 and more are calls."""
        match level:
            case 0:
                healthy = self.go_on and self.number > 0
                return AgentFacts(self.pending, healthy, self.keeping, self.disposing, self.undecided)
            case 1:
                return TurnFacts(self.owed, bool(self.next_step))
            case 2:
                admitted = self.decision is not None and (bool(self.decision) or self.step_owed)
                return StepFacts(admitted, self.retry, bool(self.waiting), bool(self.started), self.undecided)
            case _:
                return NoFacts()

    def call(self, n: int, **changes: Any) -> None:
        """Change one call."""
        calls = list(self.calls)
        calls[n] = calls[n]._replace(**changes)
        self.calls = tuple(calls)


@dataclass
class Scene:
    """A world together with what is known of its run, which judges whatever it tells."""

    world: World
    ledger: Ledger
    bounds: Bounds
    story: list[Happening] | None = field(default=None, compare=False)
    """All that happened, if somebody keeps it."""
    told: bool = field(default=False, compare=False)
    """Something was told since this was last unset."""

    def copy(self) -> Scene:
        return Scene(self.world.copy(), self.ledger.copy(), self.bounds, self.story)

    def tell(self, now: Happening) -> None:
        """Something happens. Raises BrokenError if it must not."""
        if self.story is not None:
            self.story.append(now)
        self.told = True
        how = broken(self.ledger, now)
        if how is not None:
            raise BrokenError(how)
        self.ledger.note(now)


_PLAIN = Bounds(hooks=False, vetoes=False, crashes=False)

SCOPES: Mapping[str, Bounds] = MappingProxyType(
    {
        "anything odd once": Bounds(odd=1),
        "faults that meet": Bounds(messages=1, causes=("user",)),
        "cancels and wakes that meet": _PLAIN.but(calls=0, steps=1),
        "many inputs": Bounds(messages=3, odd=1, calls=0, steps=1, causes=("user",), vetoes=False, crashes=False),
        "many calls": Bounds(messages=1, odd=1, calls=3, causes=("user",)),
    }
)
"""What is searched by default, each by what it is for; together some ten seconds."""

WIDE: Mapping[str, Bounds] = MappingProxyType(
    {
        **SCOPES,
        "anything odd twice": Bounds(calls=1),
        "odd things in other tasks": Bounds(listeners=False, causes=("user",), edits=False),
        "three cancels and wakes that meet": _PLAIN.but(odd=3, calls=0, steps=1),
        "three faults that meet": Bounds(messages=1, odd=3, calls=1, causes=("user",)),
        "every cause": Bounds(messages=1, calls=1, causes=("user", "parent", "hook", "disposed"), crashes=False),
    }
)
"""A wider search, for some minutes."""
