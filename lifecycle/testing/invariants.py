"""Invariants: what holds of every run, whatever the hooks do. Each is a function that says what is wrong with a run.

Most of them are those of the abstract runs, written there; here are only those about a run as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from lifecycle.proof.invariants import INVARIANTS as lifecycle_invariants  # this module has its own

from .simulation import Simulated

Invariant: TypeAlias = Callable[[Simulated], Iterator[str]]
"""Yields a sentence for each thing that is wrong."""


def _holds(name: str, run: Simulated) -> Iterator[str]:
    if run.broken is not None and run.broken[1].invariant == name:
        yield f"{run.broken[1].how}, at seq {run.broken[0]}"


def steps_outlive_their_parts(run: Simulated) -> Iterator[str]:
    """When a step ends, its stream is closed, and the bodies of its calls have ended."""
    for seq in run.outlived:
        yield f"the step that ends at seq {seq} left a body or a stream behind"


def comes_to_rest(run: Simulated) -> Iterator[str]:
    """Everything that was asked for is done in the end, the agent is idle, and nothing of the run is left."""
    if run.end != "idle":
        yield f"the run is {run.end} in phase {run.phase or '?'}: {run.error!r}"
        return
    if run.statuses != ("running", "idle") * (len(run.statuses) // 2):
        yield f"the status went {' '.join(run.statuses)}"
    left = {
        "things that wait": run.waiting,
        "tasks": run.leaked,
        "open streams": run.streaming,
        "running bodies": run.bodies,
        "tool sets": run.open_sets,
        "published steps": run.published,
    }
    for what, remains in left.items():
        if remains:
            yield f"there are {what} left: {remains}"


INVARIANTS: Mapping[str, Invariant] = MappingProxyType(
    {name.replace(" ", "_"): partial(_holds, name) for name in lifecycle_invariants}
    | {invariant.__name__: invariant for invariant in (steps_outlive_their_parts, comes_to_rest)}
)
"""The built-in invariants by name."""


def problems(run: Simulated, invariants: Mapping[str, Invariant] = INVARIANTS) -> list[str]:
    """What is wrong with a run, each with the name of the invariant that says so. Empty if nothing is."""
    return [f"{name}: {said}" for name, invariant in invariants.items() for said in invariant(run)]
