"""A throw-away PostgreSQL, where the machine has the server: a cluster in a folder of its own, on a socket in there."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

IN_CI = os.environ.get("CI", "") not in ("", "false", "0")


def lacking() -> str | None:
    """What this machine lacks for a server and a client of it, in a sentence; None if nothing."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed: pip install 'turn-lifecycle[postgres]'"
    if _programs() is None:
        return (
            "the programs of a PostgreSQL server are not installed: apt-get install postgresql, or put initdb on PATH"
        )
    return None


def demand(lack: str | None, *, in_ci: bool = IN_CI) -> None:
    """Skip the test that needs what is lacking; in CI, where nothing may be left untried, fail it."""
    if lack is not None and in_ci:
        pytest.fail(f"CI tries every store, and {lack}")
    if lack is not None:
        pytest.skip(lack)


def _programs() -> Path | None:
    """The folder of the server's programs, if there is one."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


@contextmanager
def postgres() -> Generator[str]:
    """A running server; how to connect to it. It syncs as in earnest. As root it runs as `nobody`, since it must.

    Where it cannot run, the test is skipped, or in CI fails.
    """
    demand(lacking())
    programs = _programs()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # not below pytest's own folder, where nobody may pass
    user = "nobody" if getpass.getuser() == "root" else None
    try:
        if user is not None:
            shutil.chown(folder, user)

        def run(*command: str) -> None:
            # Not captured through a pipe: the server would inherit it, and it would never end.
            with (folder / "log").open("ab") as log:
                subprocess.run(
                    command, check=True, user=user, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    timeout=60, env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(folder)},
                )  # fmt: skip

        data = str(folder / "data")
        run(str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8")
        options = f"-c listen_addresses='' -k {folder} -c max_connections=50"
        run(str(programs / "pg_ctl"), "-D", data, "-w", "-l", str(folder / "server.log"), "-o", options, "start")
        try:
            yield f"host={folder} user=postgres dbname=postgres"
        finally:
            run(str(programs / "pg_ctl"), "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
