"""Floor 6, public: what tests of agents are made of. Scripted models, gates that hold them, and traces of a run."""

from .gates import Gate
from .models import Beat, Call, Line, Reply, ScriptedModel
from .trace import Entry, Trace

__all__ = ["Beat", "Call", "Entry", "Gate", "Line", "Reply", "ScriptedModel", "Trace"]
