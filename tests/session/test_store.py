"""What stores tell of sessions. What every store must do, `check_store` holds (tests/testing/test_stores.py)."""

from __future__ import annotations

import pytest

from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.memory import MemoryStore
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.store import Store, shortened


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("", ""),
        (" \n\t", ""),
        ("one", "one"),
        ("\n\n  two \x1b[31m words \nmore", "two [31m words"),
        ("x" * 200, "x" * 79 + "…"),
        ("word " * 30, ("word " * 16)[:79].rstrip() + "…"),
    ],
)
def test_a_title_is_the_first_line_that_says_something(said: str, title: str) -> None:
    assert shortened(said) == title


def test_the_stores_keep_the_protocol() -> None:
    assert all(issubclass(kind, Store) for kind in (MemoryStore, SqliteStore, JsonlStore))
