"""Floor 6, public: what tests of agents are made of. Scripted models, gated tools, and traces of a run."""

from .gates import Gate
from .models import Beat, Call, Line, Reply, ScriptedModel
from .tools import GatedTool
from .trace import Entry, Trace

__all__ = ["Beat", "Call", "Entry", "Gate", "GatedTool", "Line", "Reply", "ScriptedModel", "Trace"]
