"""What logs of the earlier revisions hold that the newest one does not know, so that they can be judged: record types
of their own, plug-ins of their day, and words of the language that only a checker meets.

Nothing here is known to a session of ours: it refuses such records.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lifecycle.vocabulary.rules import Rules

from ..machine import Lifecycle
from .r2026_08 import Adopted, Chunks

EARLIER: Mapping[str, Rules] = MappingProxyType(
    {
        "assistant/chunk": Rules(refers_to=("turn", "step")),
        "steering/message": Rules(refers_to=("turn", "step")),
    }
)
"""Record types of earlier revisions, and what they say of others."""

PLUGINS: Mapping[str, str] = MappingProxyType(
    {
        "approval/": "asks a person before a tool runs",
        "compaction/": "shortens the conversation",
        "goal/": "keeps a goal over several turns",
        "hook/": "runs hooks that are programs",
        "llm/retry": "makes failed requests again",
        "sandbox/": "says what tools may touch",
        "session/title": "names the session",
        "subagent/": "lets an agent be another one's tool",
        "todo/": "keeps a list of things to do",
        "tool-workflow/": "runs several agents as one tool",
        "tool/code-dispatch": "lets code call tools",
    }
)
"""How the types of known plug-ins' records begin, and what these do. Their records may stand between all others."""

INHERITED: Mapping[str, tuple[type[Lifecycle], ...]] = MappingProxyType({"2026-08": (Adopted,)})
"""By revision: what else may have recorded a prefix that `session/end-seed` closes."""

FRAGMENTS: Mapping[str, tuple[type[Lifecycle], ...]] = MappingProxyType({"2026-08": (Chunks,)})
"""By revision: what a log may hold in place of a session."""
