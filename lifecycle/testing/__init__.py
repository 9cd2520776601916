"""Floor 6, public: what tests of agents are made of.

Scripted models, gated tools and traces for tests of one story; scenarios and simulated runs for a search through many;
`check_store` for whoever writes a store.
`lifecycle.testing.strategies` makes scenarios for Hypothesis, which only that module imports.
"""

from .arrows import Coverage
from .cases import Case, Fixture
from .checking import Report, Trial, check_case, check_hooks
from .gates import Gate
from .invariants import INVARIANTS, Invariant, problems
from .models import Beat, Call, Line, Reply, ScriptedModel
from .properties import invariant
from .scenario import Act, Answer, AskedCall, HookScript, Move, Scenario, ToolScript
from .simulation import Simulated, simulate
from .stores import STORE_CHECKS, StoreReport, check_store
from .tools import GatedTool
from .trace import Entry, Trace

__all__ = [
    "INVARIANTS",
    "STORE_CHECKS",
    "Act",
    "Answer",
    "AskedCall",
    "Beat",
    "Call",
    "Case",
    "Coverage",
    "Entry",
    "Fixture",
    "Gate",
    "GatedTool",
    "HookScript",
    "Invariant",
    "Line",
    "Move",
    "Reply",
    "Report",
    "Scenario",
    "ScriptedModel",
    "Simulated",
    "StoreReport",
    "ToolScript",
    "Trace",
    "Trial",
    "check_case",
    "check_hooks",
    "check_store",
    "invariant",
    "problems",
    "simulate",
]
