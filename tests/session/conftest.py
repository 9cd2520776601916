"""The stores that every store test runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.session.jsonl import JsonlStore
from lifecycle.session.memory import MemoryStore
from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.store import Store

from .logs import ticking


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store; the test closes it, because that needs its event loop."""
    if request.param == "memory":
        return MemoryStore(clock=ticking())
    if request.param == "jsonl":
        return JsonlStore(tmp_path / "sessions", clock=ticking())
    return SqliteStore(tmp_path / "sessions.db", clock=ticking())
