"""The stores that every store test runs on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of 256 KiB; skipped where mounting one is not permitted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that everybody can reach, unlike that of pytest."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
