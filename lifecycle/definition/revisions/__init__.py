"""Every revision of the lifecycle by name: the newest, which is driven, and the earlier ones, which are drawn and
which recorded logs are judged by. A revision is told by its agent; the turns and steps follow from what it runs.

A document named `003` holds the diagram of `002` and describes the same lifecycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..agent import Agent
from ..machine import Lifecycle
from .r001 import Agent as Agent001
from .r002 import Agent as Agent002
from .r2026_08 import Agent as Agent2026

NEWEST = "000"

REVISIONS: Mapping[str, type[Lifecycle]] = MappingProxyType(
    {
        NEWEST: Agent,
        "2026-08": Agent2026,
        "001": Agent001,
        "002": Agent002,
    }
)
"""The revisions, the newest first."""
