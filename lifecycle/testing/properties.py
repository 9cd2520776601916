"""Properties: what a user says holds of every run, besides what always does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TypeAlias, cast

from .simulation import Simulated

Said: TypeAlias = "Iterable[str] | str | bool | None"


class Property:
    """A function of a run that says what is wrong with it; made by `@invariant`."""

    def __init__(self, function: Callable[[Simulated], Said]) -> None:
        self.function = function
        self.name = function.__name__
        self.__name__, self.__qualname__, self.__module__ = self.name, function.__qualname__, function.__module__
        self.__doc__ = function.__doc__

    def __call__(self, run: Simulated) -> Said:
        return self.function(run)

    def problems(self, run: Simulated) -> list[str]:
        """Sentences; none if the run is in order."""
        try:
            said = self.function(run)
            if said is None or said is True:
                return []
            if said is False:
                return [f"it does not hold: {inspect.cleandoc(self.__doc__ or self.name).splitlines()[0]}"]
            return [said] if isinstance(said, str) else [str(one) for one in said]
        except AssertionError as failed:
            return [str(failed) or f"{self.name} does not hold"]
        except Exception as wrong:
            return [f"the property {self.name} cannot be judged: it raises {type(wrong).__name__}: {wrong}"]

    def __repr__(self) -> str:
        return f"<invariant {self.name}>"


def invariant(function: Callable[[Simulated], Said]) -> Property:
    """Decorate a property of runs, for `check_hooks(..., invariants=[...])`; `lifecycle fuzz` finds those beside the
    factory by itself.

        @invariant
        def one_approval_a_call(run):
            for event in run.durable("tool/result"):
                ...
                yield "what is wrong"

    It may yield or return sentences, return False (or True), or assert; None is in order. It sees the whole run
    (`Simulated`): `run.events`, `run.live("agent/status")`, `run.reasons`, and so on.
    """
    return Property(function)


def property_of(given: Callable[[Simulated], object]) -> Property:
    """What was given as an invariant, decorated or not."""
    return given if isinstance(given, Property) else Property(cast("Callable[[Simulated], Said]", given))
