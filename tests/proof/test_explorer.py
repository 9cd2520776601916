"""The explorer: that our own lifecycle holds within its bounds, and that what is wrong on purpose is found."""

from __future__ import annotations

import pytest

from lifecycle.proof.explorer import DEADLOCK, explore
from lifecycle.proof.invariants import INVARIANTS
from lifecycle.proof.outside import Play
from lifecycle.proof.stepper import NEVER_RESTS
from lifecycle.proof.world import Bounds

from .seeded import SEEDED, Seeded

QUIET = Bounds(
    messages=1, odd=1, calls=0, causes=("user",), listeners=False, vetoes=False, crashes=False, hooks=False,
    edits=False, maintenance=False,
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDED.values(), ids=SEEDED)
def test_a_fault_on_purpose_is_found(seed: Seeded) -> None:
    bounds = QUIET.but(**seed.bounds)

    found = explore(Play(seed.lifecycle, bounds, seed.faulty))
    clean = explore(Play(bounds=bounds))

    assert found.broken is not None
    assert found.broken.invariant == seed.finds
    assert clean.complete
    assert clean.broken is None


def test_each_invariant_is_broken_by_some_fault() -> None:
    assert {seed.finds for seed in SEEDED.values()} == {*INVARIANTS, DEADLOCK, NEVER_RESTS}
