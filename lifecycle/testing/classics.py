"""Classics: the scenarios that a check tries first. Each is one story that hooks are known to stumble over."""

from __future__ import annotations

from lifecycle.vocabulary.failures import Failure, FailureCode

from .cases import Case
from .scenario import Act, Answer, AskedCall, HookScript, Move, Scenario, ToolScript

_WORK = AskedCall(tool="work")
_LOOK = AskedCall(tool="look")
_TOOLS = (ToolScript(name="work", lasts=2), ToolScript(name="look", parallel=True, lasts=2))
_OVERLOADED = Answer(failure=Failure(message="as scripted", code=FailureCode.OVERLOADED.value))
_REFUSED = Answer(failure=Failure(message="as scripted", code=FailureCode.AUTH.value))
_SAID = Answer(text=("a", "b "))


def _of(
    *moves: Move,
    answers: tuple[Answer, ...] = (),
    tools: tuple[ToolScript, ...] = _TOOLS,
    hooks: tuple[HookScript, ...] = (),
) -> Scenario:
    return Scenario(moves=(Move(), *moves), answers=answers, tools=tools, hooks=hooks, context="here")


_SCENARIOS = (
    _of(answers=(_SAID,)),
    _of(Move(at=9, text="more"), answers=(Answer(text=("a",), calls=(_WORK,)), _SAID, _SAID)),
    _of(answers=(Answer(calls=(_WORK, _LOOK, _LOOK)), Answer(calls=(_LOOK,)), _SAID)),
    _of(answers=(_OVERLOADED, _OVERLOADED, _SAID)),
    _of(answers=(_OVERLOADED,) * 14),
    _of(Move(at=3, text="more"), answers=(_REFUSED,) * 14),
    _of(Move(at=2, verb="cancel"), answers=(_SAID,)),
    _of(Move(at=6, verb="cancel"), answers=(Answer(calls=(_WORK, _LOOK)), _SAID)),
    _of(
        Move(at=2, verb="steer", text="wait"), Move(at=4, verb="steer", text="more"), answers=(Answer(calls=(_WORK,)),)
    ),
    _of(
        Move(at=4, verb="cancel", keep_inbox=True),
        Move(at=4, text="more"),
        answers=(Answer(calls=(_LOOK, _LOOK)), Answer(calls=(_WORK,)), _SAID),
    ),
    _of(Move(at=5, verb="dispose"), answers=(Answer(calls=(_WORK,)), _SAID)),
    _of(
        answers=(Answer(calls=(_WORK, _LOOK, AskedCall(tool="unknown"), AskedCall(tool="work", arguments="{"))), _SAID),
        tools=(
            ToolScript(name="work", raises="as scripted", code="SCRIPTED"),
            ToolScript(name="look", parallel=True, defers=("context",), records=1),
        ),
    ),
    _of(
        Move(at=1, text="more"),
        Move(at=2, text="wait"),
        Move(at=3, verb="inject", text="more"),
        answers=(Answer(calls=(_WORK,)), _SAID),
        tools=(ToolScript(name="work", concludes=True), ToolScript(name="look", raises="as scripted")),
    ),
    _of(
        answers=(Answer(calls=(_WORK,)), _SAID),
        tools=(ToolScript(name="work", does=(Act(verb="steer", text="more"), Act(verb="cancel", keep_inbox=True))),),
    ),
    _of(Move(at=1, verb="maintain", lasts=2), Move(at=2, text="more"), answers=(Answer(text=("a",), breaks_at=1),)),
    _of(Move(at=1, verb="cancel"), Move(at=1, text="more"), answers=(_OVERLOADED, _OVERLOADED, _SAID)),
    _of(answers=(Answer(text=("a", "b "), ends_at=1),)),  # a stream that is cut without a word
)
# Other hooks behind those that are checked.
_SCENARIOS_WITH_OTHERS = (
    _of(Move(at=8, text="more"), hooks=(HookScript(point="agent/pre-step", does="reject", nth=2),)),
    _of(
        answers=(Answer(calls=(_WORK, _LOOK)), _SAID),
        hooks=(
            HookScript(point="tools/pre-execute", does="deny"),
            HookScript(point="agent/pre-step", does="empty", nth=2),
        ),
    ),
    _of(answers=(_OVERLOADED, _SAID), hooks=(HookScript(point="agent/request-error", does="retry", nth=0),)),
    _of(
        answers=(Answer(calls=(_WORK, _LOOK)), _SAID),
        hooks=(HookScript(point="tools/execute", does="raise"), HookScript(point="agent/turn-stopping", does="raise")),
    ),
    _of(
        Move(at=6, verb="cancel"),
        answers=(_SAID,),
        hooks=(HookScript(point="agent/model", does="slow", lasts=2), HookScript(point="agent/request", does="raise")),
    ),
)

CLASSICS: tuple[Case, ...] = (
    *(Case(scenario=scenario) for scenario in (*_SCENARIOS, *_SCENARIOS_WITH_OTHERS)),
    *(Case(scenario=_SCENARIOS[n], interrupt=at) for n, at in ((2, 1), (2, 4), (3, 1), (0, 2))),
)
"""The first cases of every check, the plainest first."""
