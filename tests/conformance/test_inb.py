"""Group INB: inbox and wake."""

from __future__ import annotations

import pytest

from .kit import scene

pytestmark = pytest.mark.anyio


async def test_inb_01_followup_records_the_insertion_before_anything_live() -> None:
    async with scene() as s:
        s.agent.followup("hello")

        assert s.trace.lines()[:4] == [
            "D agent/inbox/spliced {target:next-turn, start:0, inserted:[m1]}",
            "L agent/inbox/inserted {message:m1}",
            "L agent/status {status:running}",
            "D turn/start {turn:1}",
        ]
        await s.idle()
