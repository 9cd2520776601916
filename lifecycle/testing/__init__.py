"""Floor 6, public: what tests of agents are made of.

Scripted models, gated tools and traces for tests of one story; scenarios and simulated runs for a search through many.
`lifecycle.testing.strategies` makes scenarios for Hypothesis, which only that module imports.
"""

from .gates import Gate
from .invariants import INVARIANTS, Invariant, problems
from .models import Beat, Call, Line, Reply, ScriptedModel
from .scenario import Act, Answer, AskedCall, HookScript, Move, Scenario, ToolScript
from .simulation import Simulated, simulate
from .tools import GatedTool
from .trace import Entry, Trace

__all__ = [
    "INVARIANTS",
    "Act",
    "Answer",
    "AskedCall",
    "Beat",
    "Call",
    "Entry",
    "Gate",
    "GatedTool",
    "HookScript",
    "Invariant",
    "Line",
    "Move",
    "Reply",
    "Scenario",
    "ScriptedModel",
    "Simulated",
    "ToolScript",
    "Trace",
    "problems",
    "simulate",
]
