"""Lifecycles: python-statemachine classes whose phases do and whose arrows emit.

`Phase` is the library's State, `Arrow` its Transition and `Lifecycle` its StateMachine, so that everything the
library offers still works, and its engine is the reference that the frozen table is compared with. Added are:

* what a phase does, which lifecycle it runs, and what an arrow emits, as data;
* guards that are boolean expressions over the fields of one frozen `facts` class, checked at import;
* `abort` and `fault`, which every phase must answer once a lifecycle declares them;
* inheritance by copy: a subclass owns fresh phases and arrows, so that extending never edits a parent.

This module is the only contact with the library; `tests/definition/test_machine.py` names what it leans on.
"""

# pyright: reportUnknownMemberType=false
# The library annotates its own signatures only in part.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias, cast

from statemachine import State, StateMachine
from statemachine.exceptions import InvalidDefinition, TransitionNotAllowed
from statemachine.factory import StateMachineMetaclass
from statemachine.spec_parser import replace_operators
from statemachine.transition import Transition
from statemachine.transition_list import TransitionList

from lifecycle.errors import DefinitionError, IllegalTransitionError

from .checks import ABORT as ABORT
from .checks import FAULT as FAULT
from .checks import check
from .effects import Effect, Note
from .formats import drawing
from .guards import atoms

Lane: TypeAlias = Literal["start", "body", "commit"]


@dataclass(frozen=True, slots=True)
class Fold:
    """How a picture draws an arrow that goes back: as a loop, as a note, or by drawing again where it leads."""

    note: Note | None = None
    replay: bool = False


LOOP = Fold()
REPLAY = Fold(replay=True)


class Arrow(Transition):
    """A guarded transition that says what it emits and when it is taken."""

    def __init__(
        self,
        source: State,
        target: State,
        *,
        cond: str | None = None,
        unless: str | None = None,
        when: str = "",
        emits: Iterable[Effect] = (),
        fold: Fold = LOOP,
        drawn: bool = True,
        internal: bool = False,
    ) -> None:
        self._guards = {"cond": cond, "unless": unless}
        mistaken = [guard for guard in (cond, unless) if guard is not None and not isinstance(cast(object, guard), str)]
        self.mistaken: object = next(iter(mistaken), None)
        """What was given for a guard and is none. Who wrote it is known once the class is made."""
        if mistaken:
            cond, unless = None, None
        super().__init__(source, target, cond=cond, unless=unless, internal=internal)
        self.emits = tuple(emits)
        self.when, self.fold, self.drawn = when, fold, drawn
        terms = [] if cond is None else [replace_operators(cond)]
        terms += [] if unless is None else [f"not ({replace_operators(unless)})"]
        self.guard = terms[0] if len(terms) == 1 else " and ".join(f"({term})" for term in terms)
        """The guard as one boolean expression; empty when the arrow is always open."""

    def but(self, **changes: Any) -> Arrow:
        """The same arrow with other options: `source`, `target`, or one of those that it was declared with."""
        kept: dict[str, Any] = {
            "source": self.source,
            "target": self.target,
            **self._guards,
            "when": self.when,
            "emits": self.emits,
            "fold": self.fold,
            "drawn": self.drawn,
            "internal": self.internal,
        }
        return Arrow(**{**kept, **changes})

    @property
    def goal(self) -> str:
        """The name of the phase it leads to."""
        return cast(State, self.target).id


class Arrows(TransitionList):
    """Arrows of one event."""

    def __iter__(self) -> Iterator[Arrow]:
        return iter(cast("list[Arrow]", self.transitions))

    def __or__(self, other: Iterable[Arrow]) -> Arrows:
        return Arrows([*self, *other])

    def but(self, **changes: Any) -> Arrows:
        """The same arrows with other options, such as `target=reviewing`, `when=...` or `emits=...`."""
        return Arrows([arrow.but(**changes) for arrow in self])


class Phase(State):
    """A state that says what is done when it is entered, and what may be asked of it again.

    Args:
        does: The effects, in order. The result of the last one that is performed is the event that follows.
        runs: Another lifecycle that is run to its end while this phase lasts.
        then: Which event of this lifecycle follows each event that ends the other one.
        pool: Another lifecycle of which several runs go side by side here; effects with a lane drive them.
        loops: The words over the loop of this phase's `again` arrows.
        lane: Where several runs go side by side: those in `start` come one at a time in order, those in `body` overlap,
            and those in `commit` come one at a time in order again.
        settles: A cancel waits until this phase has done what it does.
        parks: Of a pooled lifecycle: it waits for somebody outside, perhaps for days. Nothing else starts meanwhile,
            what has started goes on beside it, and a run whose process is lost here goes on here in the next one.
    """

    def __init__(
        self,
        *does: Effect,
        initial: bool = False,
        final: bool = False,
        runs: type[Lifecycle] | None = None,
        then: Mapping[str, str] | None = None,
        pool: type[Lifecycle] | None = None,
        loops: str = "",
        lane: Lane = "start",
        settles: bool = False,
        parks: bool = False,
    ) -> None:
        super().__init__(initial=initial, final=final)
        self.does = does
        self.runs, self.then = runs, MappingProxyType(dict(then or {}))
        self.pool, self.loops, self.settles = pool, loops, settles
        self.lane: Lane = lane
        self.parks = parks
        self.owner: type[Lifecycle] | None = None

    def but(self, *does: Effect, **changes: Any) -> Phase:
        """The same phase with other effects, if any are given, or with other options."""
        kept: dict[str, Any] = {
            "initial": self.initial,
            "final": self.final,
            "runs": self.runs,
            "then": self.then,
            "pool": self.pool,
            "loops": self.loops,
            "lane": self.lane,
            "settles": self.settles,
            "parks": self.parks,
        }
        return Phase(*(does or self.does), **{**kept, **changes})

    @property
    def arrows(self) -> Iterator[Arrow]:
        """The arrows that start here, in the order of declaration."""
        return iter(cast("list[Arrow]", list(self.transitions)))

    def to(  # type: ignore[override]  # a property of State; here a method with a known signature
        self,
        target: Phase,
        *,
        cond: str | None = None,
        unless: str | None = None,
        when: str = "",
        emits: Iterable[Effect] = (),
        fold: Fold = LOOP,
        drawn: bool = True,
    ) -> Arrows:
        """Declare an arrow. Nothing is added to the phase itself: it may belong to a parent lifecycle."""
        return Arrows([Arrow(self, target, cond=cond, unless=unless, when=when, emits=emits, fold=fold, drawn=drawn)])

    def again(
        self,
        *,
        cond: str | None = None,
        unless: str | None = None,
        when: str = "",
        emits: Iterable[Effect] = (),
        drawn: bool = True,
    ) -> Arrows:
        """An arrow back to this phase that does not enter it anew: its last effect is asked again."""
        return Arrows([Arrow(self, self, cond=cond, unless=unless, when=when, emits=emits, drawn=drawn, internal=True)])


class Sources:
    """Several phases as the source of one event's arrows."""

    def __init__(self, *phases: Phase) -> None:
        self._phases = phases

    def to(self, target: Phase, **options: Any) -> Arrows:
        """An arrow from each of them."""
        return Arrows([arrow for phase in self._phases for arrow in phase.to(target, **options)])

    def again(self, **options: Any) -> Arrows:
        """An arrow back to itself for each of them."""
        return Arrows([arrow for phase in self._phases for arrow in phase.again(**options)])


ANYWHERE = Phase()
"""As a source: every phase that is not final and has no arrow of its own for the event, in subclasses too."""


@dataclass(frozen=True, slots=True)
class NoFacts:
    """The facts of a lifecycle whose arrows carry no guard."""


@dataclass(frozen=True, slots=True)
class Spec:
    """All that a lifecycle declares; every reader starts here."""

    name: str
    doc: str
    facts: type[Any]
    phases: Mapping[str, Phase]
    declared: Mapping[str, Arrows]
    """The arrows by event as they were written, `ANYWHERE` and inherited ones included."""

    @property
    def initial(self) -> str:
        return next(name for name, phase in self.phases.items() if phase.initial)

    @property
    def final(self) -> frozenset[str]:
        return frozenset(name for name, phase in self.phases.items() if phase.final)

    @property
    def arrows(self) -> Iterator[tuple[str, Arrow]]:
        """Every arrow with its event, phase by phase, in the order of declaration."""
        for phase in self.phases.values():
            for arrow in phase.arrows:
                for event in arrow.events:
                    yield str(event), arrow

    @property
    def endings(self) -> frozenset[str]:
        """The events that may end it."""
        return frozenset(event for event, arrow in self.arrows if arrow.goal in self.final)

    @property
    def atoms(self) -> frozenset[str]:
        """Every fact that a guard reads."""
        return frozenset(atom for arrows in self.declared.values() for arrow in arrows for atom in atoms(arrow.guard))


RESERVED = (
    frozenset(dir(StateMachine))
    | {"spec", "facts", "model", "states", "listeners", "start_value", "initial_state", "final_states"}
    | {"history_values", "state_field", "start_configuration_values"}
    | {"prepare_event", "on_enter_state", "on_exit_state", "on_invoke_state"}
    | {"before_transition", "on_transition", "after_transition", "arrows"}
)
"""Names that the library's classes and machines have, or look for."""
_HARMLESS = frozenset({"send", "name"})
"""Those that are proven harmless as phases and events."""
_CALLED = ("before_", "on_", "after_", "on_enter_", "on_exit_", "on_invoke_")
"""What the library puts before the name of an event or a phase to find a function that it calls."""


class LifecycleMeta(StateMachineMetaclass):
    """Gives every lifecycle phases and arrows of its own, and checks what it declares."""

    facts: type[Any]
    spec: Spec
    _made: dict[str, Any]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        phases: dict[str, Phase] = {}
        declared: dict[str, Arrows] = {}
        for base in reversed(bases):
            inherited = getattr(base, "spec", None)
            if isinstance(inherited, Spec):
                phases.update(inherited.phases)
                declared.update(inherited.declared)
        written = {key: value for key, value in body.items() if isinstance(value, Phase)}
        phases.update(written)
        declared.update({key: value for key, value in body.items() if isinstance(value, Arrows)})
        _check_names(name, phases, declared, body)

        own = {key: phase.but() for key, phase in phases.items()}
        local = _Localiser(name, bases, phases, own)
        declared = {event: local.declared(event, arrows) for event, arrows in declared.items()}
        events = {event: local.arrows(arrows) for event, arrows in declared.items()}
        facts = body.get("facts") or next((base.facts for base in bases if isinstance(base, LifecycleMeta)), NoFacts)
        spec = Spec(name, (body.get("__doc__") or "").strip(), facts, MappingProxyType(own), MappingProxyType(declared))
        check(spec, events)
        for atom in sorted(spec.atoms & RESERVED):
            raise DefinitionError(f"{name}: the fact {atom!r} has a name of the library's; choose another")

        readers = {atom: _reader(atom) for atom in spec.atoms}
        made = {**body, **own, **events, **readers, "facts": facts, "spec": spec}
        lifecycle = super().__new__(cls, name, bases, made)
        lifecycle._made = {**body, **own, **events}
        for phase in own.values():
            phase.owner = cast("type[Lifecycle]", lifecycle)
        return lifecycle

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> None:
        try:
            super().__init__(name, cast("tuple[type]", bases), cls._made)
        except InvalidDefinition as wrong:
            raise DefinitionError(f"{name}: {wrong}") from wrong

    def add_inherited(cls, bases: tuple[type, ...]) -> None:
        """Nothing: inherited phases and arrows were copied in `__new__`."""

    def arrows(cls, event: str) -> Arrows:
        """The arrows of an event as they are declared, for a subclass that wants them otherwise.

            succeed = Step.arrows("succeed").but(target=reviewing)

        Raises:
            DefinitionError: if there is no such event.
        """
        found = cls.spec.declared.get(event)
        if found is None:
            raise DefinitionError(f"{cls.__name__} has no event {event!r}; it has {', '.join(cls.spec.declared)}")
        return found

    def __format__(cls, spec: str) -> str:
        """A picture by its name, as in `f"{Turn:sequence}"`; what is none of ours, the library draws."""
        draw = drawing(spec) if spec else None
        return draw(cls) if draw is not None else super().__format__(spec)


def _check_names(
    name: str, phases: Mapping[str, Phase], events: Mapping[str, Arrows], body: Mapping[str, object]
) -> None:
    called = {prefix + key for prefix in _CALLED for key in (*phases, *events)}
    for key in (*phases, *events):
        if key in phases and key in events:
            raise DefinitionError(f"{name}.{key}: {key!r} is both a phase and an event; choose another name for one")
        if key in RESERVED - _HARMLESS or key in called:
            raise DefinitionError(f"{name}.{key}: {key!r} is a name of the library's; choose another")
        if key in body and not isinstance(body[key], (Phase, Arrows)):
            what = "phase" if key in phases else "event"
            raise DefinitionError(f"{name}.{key}: the {what} {key!r} is replaced by {body[key]!r}, which is none")


class _Localiser:
    """Turns declared arrows, which may start or end in a parent's phases, into arrows between a lifecycle's own."""

    def __init__(
        self, name: str, bases: tuple[type, ...], phases: Mapping[str, Phase], own: Mapping[str, Phase]
    ) -> None:
        self._name, self._own = name, own
        self._ids = {id(phase): key for key, phase in phases.items()}
        self._family = {ancestor for base in bases for ancestor in base.__mro__}

    def phase(self, phase: Phase, event: str) -> Phase:
        if not isinstance(cast(object, phase), Phase):
            raise DefinitionError(f"{self._name}.{event}: leads from or to {phase!r}, which is no phase")
        key = self._ids.get(id(phase))
        if key is None and phase.owner in self._family:
            key = phase.id
        if key is None or key not in self._own:
            whose = "a phase that it has no name for" if phase.owner is None else f"{phase.owner.__name__}.{phase.id}"
            raise DefinitionError(f"{self._name}.{event}: leads from or to {whose}, which is no phase of {self._name}")
        return self._own[key]

    def declared(self, event: str, arrows: Arrows) -> Arrows:
        """The arrows as written, between own phases, so that a subclass finds its way from them."""
        return Arrows(
            arrow.but(
                source=ANYWHERE if arrow.source is ANYWHERE else self.phase(cast(Phase, arrow.source), event),
                target=self.phase(cast(Phase, arrow.target), event),
            )
            for arrow in arrows
        )

    def arrows(self, declared: Arrows) -> Arrows:
        """The arrows as they are taken: those from anywhere start in each phase that has none of its own."""
        taken = {arrow.source for arrow in declared}
        rest = [phase for phase in self._own.values() if not phase.final and phase not in taken]
        made: list[Arrow] = []
        for arrow in declared:
            made += [arrow.but(source=source) for source in rest] if arrow.source is ANYWHERE else [arrow]
        for arrow in made:
            arrow.source.transitions.add_transitions(arrow)
        return Arrows(made)


def _reader(atom: str) -> Any:
    """A guard for the library: reads one fact from the facts sent with the event."""

    def read(self: Any, facts: Any) -> Any:
        return getattr(facts, atom)

    read.__name__ = atom
    read.__qualname__ = f"facts.{atom}"
    return read


class Lifecycle(StateMachine, metaclass=LifecycleMeta):
    """The base of every lifecycle. A subclass names its phases and, by event, its arrows."""

    facts: ClassVar[type[Any]] = NoFacts
    spec: ClassVar[Spec]

    def on_transition(self, transition: Arrow) -> Arrow:
        """Makes the library hand back the arrow that was taken."""
        return transition


def fire(machine: Lifecycle, event: str, facts: Any = None) -> Arrow:
    """Take one arrow with the reference engine and return it.

    Raises:
        IllegalTransitionError: if no arrow of the event is open. The machine stays where it is.
    """
    here = phase_of(machine)
    try:
        taken = StateMachine.send(machine, event, facts=facts if facts is not None else NoFacts())
    except TransitionNotAllowed as refused:
        legal = dict.fromkeys(str(name) for arrow in type(machine).spec.phases[here].arrows for name in arrow.events)
        raise IllegalTransitionError(type(machine).__name__, here, event, legal) from refused
    return cast(Arrow, taken)


def phase_of(machine: Lifecycle) -> str:
    """The name of the phase that a reference machine is in."""
    return str(machine.current_state_value)
