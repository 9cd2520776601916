"""The providers that need no address: the embedded demo, as the command line offers it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from .demo import DEMO_MODEL, demo_provider
from .openai_chat import OpenAIChat


@asynccontextmanager
async def demo(*, pace_seconds: float = 0.01, record: Path | None = None) -> AsyncGenerator[OpenAIChat]:
    """The demo provider behind real HTTP on the loopback interface. Its first answer is a refusal, to show a retry.

    Args:
        pace_seconds: The pause before each delta, so that a person can watch it arrive.
        record: A folder that gets each response as a file.
    """
    async with (
        demo_provider(pace_seconds=pace_seconds) as base_url,
        OpenAIChat(base_url, DEMO_MODEL, provider="demo", env=None, record=record) as model,
    ):
        yield model
