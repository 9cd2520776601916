"""Asking on the terminal whether a call may run: the question goes to standard error, the answer is a line of input."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

import anyio

from lifecycle.services.hooks import Hooks
from lifecycle.services.points import Ask, CallPayload

from .console import Console
from .output import shorten

REASON = "it was called with --ask"
_LONGEST = 200
_YES = ("y", "yes")


def asking(hooks: Hooks) -> None:
    """Ask about every call."""

    @hooks.on("tools/pre-execute")
    async def ask(payload: CallPayload, next: Any) -> Ask:
        return Ask(REASON)


class Approval:
    """An approver: the person at the terminal. No more input is a no."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest = b""

    async def __call__(self, payload: CallPayload, reason: str) -> bool:
        given = payload.arguments
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        self._console.say(f"May {payload.call.name} {shorten(arguments, _LONGEST)} run ({reason})? Answer y or n.")
        answer = await self._line()
        if answer is None:
            self._console.say("There is no more input to answer with, so it may not.")
        return answer is not None and answer.strip().lower() in _YES

    async def _line(self) -> str | None:
        """The next line of input, waited for so that a cancel ends it; None if there is none."""
        while b"\n" not in self._rest:
            with suppress(OSError, ValueError):  # a file is always readable, and some loops cannot wait for one
                await anyio.wait_readable(sys.stdin.fileno())
            try:
                more = os.read(sys.stdin.fileno(), 4096)
            except (OSError, ValueError):  # it is closed
                more = b""
            if not more:
                break
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace") or None
