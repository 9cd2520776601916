"""Mutants of recorded logs: the acceptor rejects, at the right place, what a brute-force matcher of the declared
language rejects, and nothing else. The matcher shares nothing with the acceptor but the definition.

What became of the mutants is printed: `pytest -s --run-slow tests/definition/test_mutants.py`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from .matcher import Rec, first_illegal
from .recorded import SNAPSHOT, Mutant, judged, mutants, of_file

snapshot = pytest.mark.skipif(not SNAPSHOT, reason="LIFECYCLE_SNAPSHOT_LOGS names no folder of recorded logs")


class Tally:
    """What became of mutants. Those that stay in the language are counted by what was done to them."""

    def __init__(self) -> None:
        self.judged = self.outside = self.found = self.placed = 0
        self.legal: Counter[str] = Counter()
        self.alarms: list[Mutant] = []

    def judge(self, made: Iterable[Mutant], revision: str) -> None:
        for mutant in made:
            self.judged += 1
            right, said = first_illegal(mutant.records, revision), judged(mutant.records, revision)
            if right is None:
                self.legal[f"{mutant.kind} {mutant.name}"] += 1
                self.alarms += [mutant] if said is not None else []
            else:
                self.outside += 1
                self.found += said is not None
                self.placed += said == right

    def told(self, name: str) -> str:
        lines = [
            f"{name}: {self.judged} mutants, {self.outside} of them outside the language",
            f"  rejected {self.found}, at the right line {self.placed}; false alarms {len(self.alarms)}",
            "  legal all the same, by class:",
        ]
        return "\n".join([*lines, *(f"    {n:5} {kind}" for kind, n in self.legal.most_common())])


def logs() -> Sequence[Path]:
    return sorted(Path(SNAPSHOT).glob("*.jsonl"))


@snapshot
def test_every_log_of_the_snapshot_is_legal_by_both_judges() -> None:
    found = logs()

    assert len(found) == 84
    for path in found:
        records = of_file(path)
        assert (path.name, judged(records, "2026-08"), first_illegal(records, "2026-08")) == (path.name, None, None)


def _test_snapshot(every: int) -> None:
    tally = Tally()
    for path in logs():
        tally.judge(list(mutants(of_file(path)))[len(path.name) % every :: every], "2026-08")

    sys.stdout.write(f"\n{tally.told('snapshot')}\n")
    assert tally.alarms == []
    assert tally.found >= 0.99 * tally.outside
    assert tally.placed >= 0.99 * tally.outside


@snapshot
def test_mutants_of_the_snapshot_are_rejected_at_the_right_line() -> None:
    _test_snapshot(every=12)


@snapshot
@pytest.mark.slow
def test_all_mutants_of_the_snapshot_are_rejected_at_the_right_line() -> None:
    _test_snapshot(every=1)


WORD: Sequence[tuple[str, dict[str, object]]] = (
    ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [{}]}),
    ("turn/start", {"turn": 1}),
    ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1}),
    ("step/start", {"turn": 1, "step": 1}),
    ("user/message", {}),
    ("step/end", {"turn": 1, "step": 1}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error"}}),
)


def test_both_judges_know_the_same_words_of_one_short_turn() -> None:
    """Every way to leave out some records of a turn: few of them are words."""
    words: list[list[str]] = []
    for chosen in range(1 << len(WORD)):
        records = [Rec(*one) for n, one in enumerate(WORD) if chosen >> n & 1]
        assert judged(records, "000") == first_illegal(records, "000")
        if judged(records, "000") is None:
            words.append([record.name for record in records])

    whole = [name for name, _ in WORD]
    step = ["step/start", "user/message", "step/end"]
    assert [word for word in words if "turn/start" in word] == [
        [whole[0], "turn/start", "turn/end"],
        [whole[0], "turn/start", whole[0], "turn/end"],
        [whole[0], "turn/start", "step/start", "step/end", "turn/end"],
        [whole[0], "turn/start", whole[0], "step/start", "step/end", "turn/end"],
        [whole[0], "turn/start", *step, "turn/end"],
        whole,
    ]
