"""What a record says of other records, as data beside its type (LOG-07). Whoever judges a log reads this and the
lifecycle, and knows no rule besides.

Fields are named as they are on the wire; a dot leads into an object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, cast

Scope: TypeAlias = Literal["turn", "step"]


@dataclass(frozen=True, slots=True)
class Form:
    """Records of one type that mean something else: those that have some fields and lack others.

    An effect records them if its `act` begins with the name of the form. None of the types in `bars` follows in the
    same step.
    """

    name: str
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    bars: tuple[str, ...] = ()

    def fits(self, data: Any) -> bool:
        """Whether a record is of this form."""
        for field in self.has:
            if not at(data, field):
                return False
        for field in self.lacks:  # noqa: SIM110  # loops: a generator costs more than what it looks at
            if at(data, field):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Rules:
    """What must hold of a record where it stands.

    Args:
        counts: It opens a turn or a step, numbered one more than the one before; steps begin at 1 in every turn.
        refers_to: It names the open turn, the open step.
        closes: It ends the open turn or step.
        key: The field that holds its identity, or the blocks whose identities it announces.
        adds: The fact that its identities make true, until another record takes them.
        takes: The fact whose identities it takes, one at a time.
        ordered_by: The type of the records that gave the identities; they are taken in the order in which they came.
        about: The fact whose newest identity it is about, which the field `about_key` names.
        waits: The fact that must be over before it comes.
        unstarted: The error code of a record that takes an identity of `unstarted` instead: a repaired log has results
            of calls that never started.
        lists: The field that names a list in which messages wait; it takes no more of them than there are.
        replacing: Where it may stand when it replaces what is on the surface: anywhere, in an open turn, or in an open
            step. None: where it may stand anyhow.
        hooked: Whoever listens to a hook point may append one while a step is open, beside those of the lifecycle.
        adopts: All before it was adopted from another log (RSM-01).
        answers: It answers the request of the open step, unless it is of one of its forms.
        reasons: The kinds of reasons that what it closes may have come to its end for.
        natural: Those of them for which every step has come to an answer.
        forms: The forms that are told apart.
    """

    counts: Scope | None = None
    refers_to: tuple[Scope, ...] = ()
    closes: Scope | None = None
    key: str = ""
    adds: str = ""
    takes: str = ""
    ordered_by: str = ""
    about: str = ""
    about_key: str = ""
    waits: str = ""
    unstarted: str = ""
    lists: str = ""
    replacing: Literal["anywhere", "turn", "step"] | None = None
    hooked: bool = False
    adopts: bool = False
    answers: bool = False
    reasons: tuple[str, ...] = ()
    natural: tuple[str, ...] = ()
    forms: tuple[Form, ...] = ()

    def form(self, act: str) -> str:
        """The form that an effect of this act records; empty if it is none."""
        first = act.partition(" ")[0]
        return first if any(form.name == first for form in self.forms) else ""


FREE = Rules()
"""Nothing is said."""


def at(data: Any, field: str) -> Any:
    """A field of a record, be it JSON or a value of ours; None where it is not there."""
    for name, attribute in _path(field):
        data = _item(data, name) if isinstance(data, dict) else getattr(data, attribute, None)
    return data


_item = cast("Callable[[Any, str], Any]", dict[str, Any].get)


@cache
def _path(field: str) -> tuple[tuple[str, str], ...]:
    """The names that lead to a field: as they are on the wire, and as attributes."""
    return tuple((name, _attribute(name)) for name in field.split("."))


def _attribute(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
