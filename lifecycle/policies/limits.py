"""Limits: how many steps a turn may take, and how often it may make the very same call.

A model that goes round in circles, and a hook that sends it on whenever it wants to stop, both come to an end here,
which the log tells from a success: the turn ends `aborted` by a hook, and the reason says which limit it was. Nothing
that people have said meanwhile is lost; it waits for the next turn.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from lifecycle.errors import PolicyError
from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Next
from lifecycle.services.points import AgentHandle, Allow, Ask, CallPayload, Deny, Enter, PreStepPayload, Reject
from lifecycle.vocabulary.failures import HookCancel

from .checks import check_numbers

_Calls = Counter[tuple[str, str]]
"""How often each call was made: by the tool's name, and the arguments spelled in one way."""


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """What a turn may use.

    Args:
        max_steps: How many steps a turn may take. One more is not opened.
        same_calls: How often a turn may call one tool with the same arguments, in whatever order they are spelled; a
            further call is denied, and the model is told why. None sets no limit: some tools are there to be asked
            again.

    Raises:
        PolicyError: if a limit is no whole number, or less than 1.
    """

    max_steps: int = 100
    same_calls: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, whole=("max_steps", "same_calls"))
        for name, limit in (("max_steps", self.max_steps), ("same_calls", self.same_calls)):
            if limit is not None and limit < 1:
                raise PolicyError(f"LimitOptions: {name} is {limit}; give it at least 1")


def limiting(options: LimitOptions | None = None) -> Hooks:
    """Hooks that hold every turn of every agent they serve to the limits."""
    options = options or LimitOptions()
    hooks = Hooks(name="limits")
    calls: WeakKeyDictionary[AgentHandle, tuple[int, _Calls]] = WeakKeyDictionary()

    @hooks.on("agent/pre-step")
    async def hold(payload: PreStepPayload, next: Next[Enter | Reject]) -> Enter | Reject:
        if payload.step <= options.max_steps:
            return await next()
        reason = f"the turn has taken {options.max_steps} steps, which is its limit"
        payload.agent.cancel(HookCancel(reason=reason), keep_inbox=True)
        for message in payload.messages:  # said for a step that is not to be; a claim is not given back (CLM-04)
            payload.agent.inject(message.model_copy(update={"id": f"{message.id}-after-{payload.turn}"}))
        return Reject(reason)

    def made(payload: CallPayload) -> int:
        """How often this turn has made the call, this time included."""
        turn = payload.agent.session.last_turn
        counted, count = calls.get(payload.agent, (0, _Calls()))
        if counted != turn:
            count = _Calls()
        calls[payload.agent] = turn, count
        given = payload.arguments
        said = given if isinstance(given, str) else json.dumps(given, sort_keys=True)
        count[payload.call.name, said] += 1
        return count[payload.call.name, said]

    async def deny(payload: CallPayload, next: Next[Allow | Deny | Ask]) -> Allow | Deny | Ask:
        assert options.same_calls is not None
        if made(payload) <= options.same_calls:
            return await next()
        times = "once" if options.same_calls == 1 else f"{options.same_calls} times"
        return Deny(
            f"This turn has called {payload.call.name} with these very arguments {times} already. "
            "Do something else, or say what is in the way."
        )

    if options.same_calls is not None:
        hooks.listen("tools/pre-execute", deny)
    return hooks
