"""Commands as people run them: child processes whose lines are waited for, each wait bounded."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from lifecycle.commands import main

BOUND = 60.0
"""Seconds that any wait may take, on a machine that has other things to do."""

LIFECYCLE = (sys.executable, "-m", "lifecycle")
HOST = (sys.executable, str(Path(__file__).with_name("host.py")))
"""The command with tools or a provider of the test's; the next argument says which."""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Child:
    """A running command. Leaving it kills what still runs."""

    def __init__(
        self,
        *command: str | os.PathLike[str],
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        before = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits it where it is ignored
        try:
            self.process = subprocess.Popen(
                [os.fspath(part) for part in command],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=_environment(env),
            )
        finally:
            signal.signal(signal.SIGINT, before)
        self._out = _Lines(self.process.stdout)
        self._err = _Lines(self.process.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(BOUND)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def says(self, part: str) -> str:
        """The next line on standard output with `part` in it."""
        return self._out.until(part)

    def notes(self, part: str) -> str:
        """The next line on standard error with `part` in it."""
        return self._err.until(part)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> Ended:
        """Wait for the end; all that was written, also the lines that were waited for."""
        code = self.process.wait(BOUND)
        return Ended(code, self._out.all(), self._err.all())


class _Lines:
    """The lines of a pipe, read in a thread as they come."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._seen: list[str] = []
        self._thread = threading.Thread(target=self._read, args=(pipe or (),), daemon=True)
        self._thread.start()

    def _read(self, pipe: Iterable[bytes]) -> None:
        for line in pipe:
            self._seen.append(line.decode())
            self._queue.put(self._seen[-1])
        self._queue.put(None)

    def until(self, part: str) -> str:
        while (line := self._queue.get(timeout=BOUND)) is not None:
            if part in line:
                return line
        raise AssertionError(f"no line with {part!r} came; there were:\n{''.join(self._seen)}")

    def all(self) -> str:
        self._thread.join(BOUND)
        assert not self._thread.is_alive(), "something that the command started holds its output open"
        return "".join(self._seen)


def run(
    *command: str | os.PathLike[str],
    input: bytes | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Run a command to its end."""
    done = subprocess.run(
        [os.fspath(part) for part in command],
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        timeout=BOUND,
        cwd=cwd,
        env=_environment(env),
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def here(*args: object) -> Ended:
    """Run `lifecycle ARGS` in this process."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main([str(arg) for arg in args])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return Ended(code, out.getvalue(), err.getvalue())


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """Ours, without what would hide mistakes: buffers are as people have them."""
    return {**{name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}, **(more or {})}


def in_namespace(script: str, *args: str | os.PathLike[str]) -> Sequence[str | os.PathLike[str]]:
    """A command that runs a shell script which may mount: its mounts are its own, and end with it."""
    return ("unshare", "--mount", "sh", "-c", script, "sh", *args)


def can_mount(at: Path) -> bool:
    """Whether this user may mount in a namespace of its own."""
    try:
        return run(*in_namespace('mount -t tmpfs -o size=64k tmpfs "$1"', at)).code == 0
    except FileNotFoundError:
        return False
