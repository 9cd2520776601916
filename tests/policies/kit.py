"""Stories in virtual time: a policy waits for hours, and the test for nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from lifecycle import Hooks
from lifecycle.proof.simulation import Backend, tell_virtually
from lifecycle.testing import Line
from tests.conformance.kit import Scene, scene

T = TypeVar("T")

BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")
each_backend = pytest.mark.parametrize("backend", BACKENDS)
HOURS = 1_000_000.0
"""A bound in virtual seconds that no story reaches."""


def wrong(given: object) -> Any:
    """What no type checker would let through."""
    return given


def virtually(story: Callable[[], Awaitable[T]], backend: Backend) -> T:
    """Run a story with a clock that moves on whenever nothing else can run."""
    return tell_virtually(story, backend=backend)


def played(backend: Backend, *script: Line, hooks: Hooks, prompts: int = 1, **given: Any) -> Scene:
    """The scene after so many prompts, one after another, in virtual time."""

    async def story() -> Scene:
        async with scene(*script, hooks=hooks, seconds=HOURS, **given) as s:
            for _ in range(prompts):
                await s.say("ping")
            return s

    return virtually(story, backend)
