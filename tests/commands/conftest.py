"""What the tests of commands share: a store of their own, and a folder to work in."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's sessions are kept; commands are told by the environment. No test touches the user's own."""
    path = tmp_path / "sessions.db"
    monkeypatch.setenv("LIFECYCLE_STORE", str(path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "README.md").write_text("# Greenhouse\n\nTomatoes want water.\n", encoding="utf-8")
    return folder
