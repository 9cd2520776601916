"""The providers that need no address: the embedded demo, as the command line offers it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from lifecycle.services.hooks import Hooks

from .demo import DEMO_MODEL, demo_provider, retry_once
from .openai_chat import OpenAIChat


@asynccontextmanager
async def demo(hooks: Hooks, *, pace_seconds: float = 0.01, record: Path | None = None) -> AsyncGenerator[OpenAIChat]:
    """The demo provider behind real HTTP on the loopback interface, and the retry that its first failure needs.

    Args:
        hooks: The agent's listeners; gets one that sends a request again at once that may pass by itself.
        pace_seconds: The pause before each delta, so that a person can watch it arrive.
        record: A folder that gets each response as a file.
    """
    async with (
        demo_provider(pace_seconds=pace_seconds) as base_url,
        OpenAIChat(base_url, DEMO_MODEL, provider="demo", env=None, record=record) as model,
    ):
        with retry_once(hooks):
            yield model
