"""A fixed set of scenarios that between them walk every arrow that can be walked, most of them for one arrow's sake."""

from __future__ import annotations

from collections.abc import Mapping

from .scenarios import AFTER, Scenario

ONE = (("followup",),)
SPLICED = "session/append agent/inbox/spliced"


def asked(*replies: str, limit: int = 10, **deeds: str) -> Scenario:
    """One prompt; `deeds` names places as they are spelt in Python, each for the first time."""
    return Scenario(ONE, replies, {(_PLACES[name], 0): verbs for name, verbs in deeds.items()}, limit=limit)


_PLACES = {
    "boundary": "agent/step-boundary",
    "model": "agent/model",
    "pre_step": "agent/pre-step",
    "assembly": "system-prompt/assemble",
    "request": "agent/request",
    "prepare": "prepare",
    "chunk": "chunk",
    "opening": "llm/stream",
    "error": "agent/request-error",
    "allow": "tools/pre-execute",
    "approve": "approve",
    "guard": "tools/guard",
    "check": "check",
    "execute": "tools/execute",
    "body": "body",
    "post": "tools/post-execute",
    "stopping": "agent/turn-stopping",
    "status": "agent/status",
    "inserted": "agent/inbox/inserted",
    "claimed": "agent/inbox/claimed",
    "result": "session/append tool/result",
    "call": "session/append tool/call",
    "message": "session/append assistant/message",
    "turn_start": "session/append turn/start",
    "turn_end": "session/append turn/end",
    "step_start": "session/append step/start",
    "step_end": "session/append step/end",
    "stepped": "session/event step/end",
}

STORIES: Mapping[str, Scenario] = {
    # -- steps, as they are meant to go --
    "an answer": asked(),
    "calls": asked("looks", "acts"),
    "calls one after another": asked("looks", limit=1),
    "a retry": asked("fail", error="retry"),
    "a retry that admits the context again": asked("fail", error="forget and retry"),
    "a failure": asked("fail"),
    "a pause": asked("pause"),
    "steered": asked("look", body="steer"),
    "kept going at the end": asked(stopping="inject"),
    "unknown and unfit": asked("unknown", "unfit"),
    "an event of the tool": asked("look", "text", body="own and defer"),
    "events of tools that overlap": asked("looks", body="meanwhile own"),
    "concluded": asked("acts", body="conclude"),
    "two turns": Scenario((("followup", "followup"),)),
    "two turns, one after another": Scenario((("inject", "followup"), ("followup",))),
    # -- hooks --
    "rejected": asked(pre_step="reject"),
    "emptied": asked(pre_step="empty"),
    "a later batch emptied": Scenario(
        ONE, ("text",), {("agent/turn-stopping", 0): "inject", ("agent/pre-step", 1): "empty"}
    ),
    "denied": asked("look", allow="deny"),
    "denied by a guard": asked("look", guard="deny"),
    "asked about": asked("look", allow="ask"),
    "asked about in vain": asked("look", allow="ask", approve="refuse"),
    "asked about while another one runs": Scenario(
        ONE, ("looks",), {("tools/pre-execute", 1): "ask", ("approve", 0): "meanwhile queue"}
    ),
    "blocked": asked("look", post="block"),
    "replaced": asked("look", execute="answer"),
    "a boundary raises": asked(boundary="raise"),
    "a model hook raises": asked(model="raise"),
    "a proposal raises": asked(pre_step="raise"),
    "the assembly raises": asked(assembly="raise"),
    "shaping raises": asked(request="raise"),
    "a preparation raises": asked(prepare="raise"),
    "an adapter raises": asked(chunk="raise"),
    "a wrapper raises": asked(opening="raise"),
    "recovery raises": asked("fail", error="raise"),
    "allowing raises": asked("look", allow="raise"),
    "approving raises": asked("look", allow="ask", approve="raise"),
    "a guard raises": asked("look", guard="raise"),
    "a check raises": asked("look", check="raise"),
    "execution raises": asked("look", execute="raise"),
    "looking raises": asked("look", post="raise"),
    "the checkpoint raises": asked(stopping="raise"),
    # -- records that are refused --
    "a refused start of a turn": asked(turn_start="raise"),
    "a refused end of a turn": asked(turn_end="raise"),
    "a refused start of a step": asked(step_start="raise"),
    "a refused end of a step": asked(step_end="raise"),
    "a refused end of a failed step": asked("fail", step_end="raise"),
    "a refused answer": asked(message="raise"),
    "a refused call": asked("looks", call="raise"),
    "a refused result": asked("looks", result="raise"),
    "a refused claim": Scenario(ONE, (), {(SPLICED, 1): "raise"}),
    "a refused later claim": Scenario(ONE, ("text",), {("agent/turn-stopping", 0): "inject", (SPLICED, 3): "raise"}),
    "a refused input": Scenario(
        (("inject", "followup"),), (), {(SPLICED, 0): "raise", (SPLICED, 1): "cancel and raise"}
    ),
    # -- a cancel --
    "cancelled at the boundary": asked(boundary="cancel"),
    "cancelled at the model": asked(model="cancel"),
    "cancelled at the proposal": asked(pre_step="meanwhile cancel"),
    "cancelled at the assembly": asked(assembly="cancel"),
    "cancelled at the request": asked(request="cancel"),
    "cancelled at the preparation": asked(prepare="meanwhile cancel"),
    "cancelled with nothing to see": asked(chunk="cancel"),
    "cancelled with something to see": Scenario(ONE, (), {("chunk", 1): "meanwhile cancel"}),
    "cancelled while failing": asked("fail", error="cancel"),
    "cancelled in recovery, which retries": asked("fail", error="cancel and retry"),
    "cancelled before a call": asked("looks", allow="cancel"),
    "cancelled while asked about": asked("looks", allow="ask", approve="meanwhile cancel"),
    "cancelled while asked about beside another one": Scenario(
        ONE, ("looks",), {("tools/pre-execute", 1): "ask", ("approve", 0): "meanwhile cancel"}
    ),
    "cancelled by a guard": asked("looks", guard="cancel"),
    "cancelled by a check that raises": asked("looks", check="cancel and raise"),
    "cancelled in a body": asked("acts", body="meanwhile cancel"),
    "cancelled with a body to come": asked("acts", execute="cancel"),
    "cancelled in overlapping bodies": asked("looks", body="meanwhile cancel"),
    "cancelled while looking": asked("looks", post="cancel"),
    "cancelled at the end of a step": asked("look", stepped="cancel"),
    "cancelled at the checkpoint": asked(stopping="cancel"),
    "cancelled while opening": asked(turn_start="cancel and raise"),
    "cancelled while claiming": Scenario(ONE, (), {(SPLICED, 1): "cancel and raise"}),
    "cancelled while claiming later": Scenario(
        ONE, ("text",), {("agent/turn-stopping", 0): "inject", (SPLICED, 3): "cancel and raise"}
    ),
    "cancelled with input pending": Scenario(
        (("followup", "inject", "queue"),), (), {("prepare", 0): "meanwhile cancel"}
    ),
    "cancelled before it began": asked(status="cancel"),
    "cancelled before it began, and replaced": asked(status="cancel and followup"),
    "the host cancels while a call is looked at": asked("look", post="meanwhile cancel of the host"),
    "the process ends with the turn": asked(turn_end="interrupt"),
    "the process ends as the turn begins": asked(turn_start="interrupt"),
    # -- from outside, phase by phase --
    "while it runs": asked(prepare="queue and inject and replace"),
    "removed while it runs": asked(prepare="queue and inject and remove"),
    "after a cancel": asked(prepare="cancel, keeping and inject and replace and cancel"),
    "edited after a cancel": asked(prepare="queue and cancel, keeping and replace and remove"),
    "removed after a cancel": asked(prepare="queue and cancel, keeping and remove"),
    "cleared by a second cancel": asked(prepare="queue and inject and cancel, keeping and cancel"),
    "during disposal": asked(prepare="cancel, disposed and followup"),
    "at the end of disposal": Scenario(ONE, (), {("prepare", 0): "cancel, disposed", ("agent/status", 1): "followup"}),
    "latched": asked(prepare="cancel and followup and queue and inject"),
    "latched and edited": asked(prepare="cancel and queue and replace"),
    "latched and removed": asked(prepare="cancel and queue and remove"),
    "latched and kept": asked(prepare="cancel and followup and cancel, keeping"),
    "latched and withdrawn": asked(prepare="cancel and inject and followup and cancel"),
    "idle": Scenario((("inject", "queue"), ("queue", "cancel, keeping", "inject", "cancel")), (), {}),
    "parked and cleared": Scenario(
        (("followup", "queue", "inject"), ("cancel",)), (), {("prepare", 0): "cancel, keeping"}
    ),
    "parked and cleared, and cancelled once more": Scenario(
        (("followup", "queue", "inject"), ("cancel",), ("followup",)),
        (),
        {("prepare", 0): "cancel, keeping", ("prepare", 1): "cancel"},
    ),
    "parked and edited": Scenario((("followup", "queue"), ("replace",)), (), {("prepare", 0): "cancel, keeping"}),
    "parked and removed": Scenario((("followup", "queue"), ("remove",)), (), {("prepare", 0): "cancel, keeping"}),
    "maintained": Scenario((("maintain",), ("followup",)), (), {}),
    "staged in maintenance": Scenario((("maintain",),), (), {("maintenance", 0): "inject and cancel"}),
    "input parked before maintenance": Scenario(
        (("followup", "queue"), ("maintain",)), (), {("prepare", 0): "cancel, keeping", ("maintenance", 0): "replace"}
    ),
    "input removed in maintenance": Scenario(
        (("followup", "queue"), ("maintain",)), (), {("prepare", 0): "cancel, keeping", ("maintenance", 0): "remove"}
    ),
    "input cleared in maintenance": Scenario(
        (("followup", "queue", "inject"), ("maintain",)),
        (),
        {("prepare", 0): "cancel, keeping", ("maintenance", 0): "cancel"},
    ),
    "held in maintenance": Scenario(
        (("maintain",),), (), {("maintenance", 0): "queue and followup and inject and replace"}
    ),
    "held and kept": Scenario((("maintain",),), (), {("maintenance", 0): "queue and cancel, keeping"}),
    "held and removed": Scenario((("maintain",),), (), {("maintenance", 0): "queue and remove"}),
    "held and withdrawn": Scenario((("maintain",),), (), {("maintenance", 0): "queue and inject and cancel"}),
    "left while it runs": Scenario(ONE, (), {}, leaves=True),
    # -- listeners that act within what they hear --
    "a prompt within an announcement": asked(inserted="followup"),
    "a prompt within a discard": Scenario(
        (("followup", "inject", "queue", "cancel"),), (), {("agent/inbox/discarded", 0): "followup"}
    ),
    "an edit within the record of an input": Scenario(ONE, (), {("session/event agent/inbox/spliced", 0): "remove"}),
    "a prompt at rest": Scenario(ONE, (), {("agent/status", 1): "followup"}),
    "cancelled from within a record": asked(stepped="cancel"),
    "cancelled from within the input's record": Scenario(ONE, (), {("session/event agent/inbox/spliced", 0): "cancel"}),
}
"""By name."""

__all__ = ["AFTER", "STORIES"]
