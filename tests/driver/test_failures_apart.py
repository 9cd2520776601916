"""Two failures of one turn, of which neither has caused the other."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from lifecycle import Hooks
from lifecycle.testing import GatedTool, Reply
from lifecycle.vocabulary.events import Event, StepStart
from lifecycle.vocabulary.failures import Errored

from ..conformance.kit import scene

pytestmark = pytest.mark.anyio


async def test_a_later_failure_is_not_told_as_the_consequence_of_an_earlier_one() -> None:
    hooks = Hooks()

    @hooks.on("tools/pre-execute")
    async def fail_first(payload: object, next: object) -> Any:
        await anyio.lowlevel.checkpoint()
        raise LookupError("the first")

    def fail_then(event: Event) -> None:
        if event.data == StepStart(turn=1, step=2):
            raise OSError("the second")

    work = GatedTool("work", free=True)
    async with scene(Reply(calls=[("work", {})]), tools=[work], hooks=hooks, only=()) as s:
        s.session.veto(fail_then)
        await s.say("go")
        (reason,) = s.reasons
        assert isinstance(reason, Errored)
        assert reason.error.message == "OSError: the second"
