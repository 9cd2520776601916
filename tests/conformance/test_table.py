"""The table of items and the tests that prove them agree, in both directions."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.items import HALF_PENDING, ITEMS, PENDING

FOLDER = Path(__file__).resolve().parent
NO_GROUP = {Path(__file__).name, "test_traces.py"}
"""Tests of the list itself, and of whole stories, in which many items meet."""
NAMED = re.compile(r"test_([a-z]{3})_(\d\d)_\w+")


def proofs(folder: Path = FOLDER) -> dict[str, list[str]]:
    """Item id to the tests that name it, read off the source: also a test that cannot be imported is seen."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("test_*.py")):
        if path.name in NO_GROUP:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                named = NAMED.fullmatch(node.name)
                item = f"{named[1].upper()}-{named[2]}" if named else "no item"
                found.setdefault(item, []).append(f"{path.name}::{node.name}")
    return found


def objections(proved: dict[str, list[str]], pending: dict[str, str]) -> list[str]:
    """Everything in which tests and table disagree."""
    said: list[str] = []
    for item, tests in proved.items():
        if item not in ITEMS:
            said += [f"{test} names {item}, which the specification does not have" for test in tests]
            continue
        home = f"test_{item[:3].lower()}.py::"
        said += [f"{test} proves {item}, so it belongs into {home[:-2]}" for test in tests if not test.startswith(home)]
        if item in pending:
            said.append(f"{item} has a test ({tests[0]}); take it out of PENDING[{pending[item]!r}]")
    said += [
        f"PENDING[{topic!r}] names {item}, which is unknown" for item, topic in pending.items() if item not in ITEMS
    ]
    said += [f"{item} ({title}) has no test" for item, title in ITEMS.items() if item not in proved | pending]
    return said


def topics() -> dict[str, str]:
    return {item: topic for topic, items in PENDING.items() for item in items}


def test_the_specification_has_two_hundred_items_numbered_without_gaps() -> None:
    groups = Counter(item[:3] for item in ITEMS)

    assert len(ITEMS) == 200
    assert list(ITEMS) == [f"{group}-{n:02}" for group, count in groups.items() for n in range(1, count + 1)]


def test_every_item_has_a_test_or_is_pending_and_never_both() -> None:
    assert objections(proofs(), topics()) == []


def test_an_item_is_pending_once() -> None:
    times = Counter(item for items in PENDING.values() for item in items)

    assert [item for item, n in times.items() if n > 1] == []


def test_a_half_is_pending_only_of_an_item_that_is_known_and_not_pending_as_a_whole() -> None:
    written = {item for items in HALF_PENDING.values() for item in items} - set(PENDING.get("not written yet", ()))

    assert written <= set(ITEMS)
    assert written.isdisjoint(topics())


@pytest.mark.parametrize(
    ("proved", "pending", "objection"),
    [
        ({"INB-01": ["test_inb.py::test_inb_01_x"]}, {"INB-01": "later"}, "take it out of PENDING['later']"),
        ({"INB-99": ["test_inb.py::test_inb_99_x"]}, {}, "names INB-99, which the specification does not have"),
        ({"no item": ["test_inb.py::test_something"]}, {}, "names no item"),
        ({"INB-01": ["test_trn.py::test_inb_01_x"]}, {}, "belongs into test_inb.py"),
        ({}, {"XYZ-01": "later"}, "names XYZ-01, which is unknown"),
        ({}, {}, "INB-01 (followup order) has no test"),
    ],
)
def test_a_disagreement_is_said(proved: dict[str, list[str]], pending: dict[str, str], objection: str) -> None:
    assert any(objection in said for said in objections(proved, pending))
