"""`python host.py SCENARIO ARGS`: the command line with tools, a provider or a store that misbehave as SCENARIO says.

The demo calls the tools `list_files`, `read_file` and `search_text`; a scenario puts its own in their places.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from functools import partial
from importlib import import_module
from io import StringIO
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any
from unittest.mock import patch

import anyio

import lifecycle
import lifecycle.commands.calls as calls
import lifecycle.commands.run as run
import lifecycle.session.sqlite as sqlite
import lifecycle.session.sqlite_slot as sqlite_slot
from lifecycle.commands import main
from lifecycle.commands.stores import open_store
from lifecycle.services.tools import Tool, tool
from lifecycle.testing.stores import write_turn


@tool(parallel=True)
def list_files(path: str) -> str:
    """Raises."""
    raise ValueError("no \x1b[31mfiles\x1b[0m today")


@tool(parallel=True)
def read_file(path: str) -> object:
    """Prints in every way there is, and returns what is no JSON."""
    print("printed by a tool")  # noqa: T201  # that is the point
    os.write(1, b"written by a tool\n")
    subprocess.run(["echo", "spawned by a tool"], check=True)
    if sys.__stdout__ is not None:
        sys.__stdout__.write("left in a buffer by a tool")
    sys.stdout.close()
    return object()


@tool
def search_text(query: str) -> str:
    """Works."""
    return "found\nit"


async def _patient(query: str) -> str:
    """Hangs until it is cancelled."""
    _say("hanging")
    await anyio.sleep_forever()
    return ""


def _stuck(query: str) -> str:
    """Hangs in its thread whatever happens."""
    _say("stuck")
    Event().wait()
    return ""


async def _blocking(query: str) -> str:
    """Blocks the event loop whatever happens."""
    _say("blocking")
    while True:
        time.sleep(1)  # noqa: ASYNC251  # that is the point


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


def _with(search: Callable[..., Any]) -> None:
    _offer([list_files, read_file, tool(name="search_text")(search)])


def _offer(tools: Iterable[Tool]) -> None:
    def offered(root: object) -> tuple[Tool, ...]:
        return tuple(tools)

    patch.object(run, "workspace_tools", offered).start()


@asynccontextmanager
async def _never_starts() -> AsyncGenerator[None]:
    _say("starting")
    await anyio.sleep_forever()
    yield


def _small_files() -> None:
    """No file may grow beyond 100 kB; a larger write fails, as the interpreter ignores the signal for it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def _impatient() -> None:
    for module in (sqlite, sqlite_slot):
        patch.object(module, "LONG_WAIT", 0.1).start()


async def _keep_a_turn(name: str) -> None:
    async with open_store(name) as store:
        write_turn(await store.create("s"), 1, "one")


def _nobody() -> None:
    """Whom permissions bind, unlike root. All modules are loaded first, perhaps from where nobody may look."""
    for module in walk_packages(lifecycle.__path__, "lifecycle."):
        if module.name != "lifecycle.__main__":
            import_module(module.name)
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        for store in (f"{folder}/s.db", f"{folder}/s/"):  # what is loaded late
            anyio.run(_keep_a_turn, store)
            main(["sessions", "list", "--store", store])
            main(["check", "s", "--store", store])
            main(["run", "hi", "--session", "none", "--store", store])
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def _never() -> None:
    def found(group: str, name: str) -> Any:
        return _never_starts

    patch.object(run, "plugin", found).start()


def _nothing() -> None:
    pass


def _hurried(group: str, name: str) -> Any:
    """The demo without the pauses that let a person watch it."""
    found = calls.plugin(group, name)
    return partial(found, pace_seconds=0.0) if name == "demo" else found


SCENARIOS: dict[str, Callable[[], None]] = {
    "plain": _nothing,
    "bad-tools": lambda: _offer([list_files, read_file, search_text]),
    "hanging": lambda: _with(_patient),
    "stuck": lambda: _with(_stuck),
    "blocking": lambda: _with(_blocking),
    "never-starts": _never,
    "small-files": _small_files,
    "impatient": _impatient,
    "nobody": _nobody,
}

if __name__ == "__main__":
    patch.object(run, "plugin", _hurried).start()
    SCENARIOS[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
