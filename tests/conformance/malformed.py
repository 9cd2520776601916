"""Small logs for LOG-07: one that breaks each invariant, and some that break none."""

from __future__ import annotations

from collections.abc import Sequence

from ..definition.matcher import Rec


def spliced(removed: int = 0) -> Rec:
    came: dict[str, object] = {"removedCount": removed} if removed else {"inserted": [{}]}
    return Rec("agent/inbox/spliced", {"target": "next-turn", "start": 0, **came})


def turn(kind: str, number: int = 1) -> Rec:
    reason: dict[str, object] = {"reason": {"kind": "completed"}} if kind == "end" else {}
    return Rec(f"turn/{kind}", {"turn": number, **reason})


def step(name: str, number: int = 1, in_turn: int = 1, **more: object) -> Rec:
    return Rec(name, {"turn": in_turn, "step": number, **more})


def answer(*calls: str) -> Rec:
    return step("assistant/message", message={"content": [{"type": "tool-call", "id": call} for call in calls]})


def call(id: str) -> Rec:
    return step("tool/call", callId=id)


def result(id: str, code: str = "", **place: int) -> Rec:
    told: dict[str, object] = {"turn": 1, "step": 1, "message": {"source": {"callId": id}}, **place}
    return Rec("tool/result", {**told, "error": {"code": code}} if code else told)


OPEN = (spliced(), turn("start"), spliced(removed=1))
STEP = (*OPEN, step("step/start"))
CALLED_ONE = (*STEP, answer("a", "b"), call("a"))
ANOTHER = (step("step/start", 2), step("assistant/message", 2, message={"content": []}))


MALFORMED: dict[str, tuple[Sequence[Rec], str]] = {
    "turns do not nest": ((*OPEN, turn("start", 2)), "turn/start cannot follow here"),
    "turns are numbered without gaps": ((spliced(), turn("start", 2)), "it says turn 2, where turn 1 is due"),
    "a turn is not numbered twice": (
        (*OPEN, turn("end"), spliced(), turn("start", 1)),
        "it says turn 1, where turn 2 is due",
    ),
    "a turn ends by its number": ((*OPEN, turn("end", 2)), "it says turn 2, where turn 1 is open"),
    "a turn does not end with an open step": ((*STEP, turn("end")), "turn/end cannot follow here"),
    "steps begin at one": ((*OPEN, step("step/start", 2)), "it says step 2, where step 1 is due"),
    "steps are numbered without gaps": (
        (*STEP, answer(), step("step/end"), step("step/start", 3)),
        "it says step 3, where step 2 is due",
    ),
    "a step starts in its turn": ((*OPEN, step("step/start", in_turn=2)), "it says turn 2, where turn 1 is open"),
    "an attempt names the open step": ((*STEP, step("assistant/attempt", 2)), "it says step 2, where step 1 is open"),
    "an answer names the open turn": (
        (*STEP, step("assistant/message", in_turn=3, message={"content": []})),
        "it says turn 3, where turn 1 is open",
    ),
    "a call names the open step": ((*STEP, answer("a"), step("tool/call", 4, callId="a")), "where step 1 is open"),
    "a result names the open step": ((*CALLED_ONE, result("a", step=2)), "it says step 2, where step 1 is open"),
    "a result needs a call": ((*STEP, answer("a"), result("a")), "of which no tool/call is left in this step"),
    "a result needs a call of the same step": (
        (*CALLED_ONE, result("a"), call("b"), result("b"), step("step/end"), *ANOTHER, result("a", step=2)),
        "of which no tool/call is left in this step",
    ),
    "a call has one result": ((*CALLED_ONE, result("a"), result("a")), "of which no tool/call is left"),
    "results come in the order of the calls": (
        (*CALLED_ONE, call("b"), result("b")),
        "it is of 'b', where 'a' is due by the order of tool/call",
    ),
    "calls come in the order of the answer": ((*STEP, answer("a", "b"), call("b")), "where 'a' is due by the order of"),
    "a header needs an open turn": ((spliced(), Rec("request/header", {})), "request/header cannot follow here"),
    "a context needs an open turn": ((spliced(), Rec("request/context", {})), "request/context cannot follow here"),
    "a replaced result needs an open turn": (
        (spliced(), Rec("tool/result", {}, replaces=True)),
        "it replaces a message outside an open turn",
    ),
    "a request is settled once": ((*STEP, answer(), step("assistant/attempt")), "assistant/attempt cannot follow here"),
    "a request that was cut off is settled once": (
        (*STEP, step("assistant/message", message={"content": []}, interrupted=True), step("assistant/attempt")),
        "the request of this step was settled for good",
    ),
    "nothing follows a turn's end": ((*OPEN, turn("end"), step("step/start")), "step/start cannot follow here"),
    "a claim takes no more than waits": ((*OPEN[:2], spliced(removed=2)), "it takes 2 from place 0 of next-turn"),
}
"""By what is broken: records of which the last one breaks it, and what is said of it."""

_TAILS: dict[str, Sequence[Rec]] = {
    "calls overlap": [call("b"), result("a"), result("b")],
    "an unresolved call is tolerated": [],
    "repaired: a result without a call": [result("a"), result("b", "TOOL_NOT_STARTED")],
    "a result is replaced in the open turn": [Rec("tool/result", {}, replaces=True)],
    "messages and splices are free": [Rec("user/message", {}, replaces=True), spliced()],
}
TOLERATED = {name: [*CALLED_ONE, *tail, step("step/end"), turn("end")] for name, tail in _TAILS.items()}
"""Whole logs that a stricter rule would refuse."""
