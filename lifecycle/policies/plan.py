"""Plan mode: the model may look and think, and acts only once somebody has approved of its plan (STB-03).

Tools are withheld by the kind that they declare. The model leaves by a tool of this policy, whose call is put before
the agent's approver; a host may enter and leave at any time. A switch holds from the next step boundary on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lifecycle.errors import PolicyError
from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Next
from lifecycle.services.points import (
    AgentHandle,
    Allow,
    Ask,
    AssemblePayload,
    CallPayload,
    Deny,
    PromptAssembly,
    SessionStartPayload,
    StepPayload,
)
from lifecycle.services.tools import Tool, tool
from lifecycle.session.log import Session
from lifecycle.vocabulary.events import ToolCallEvent, ToolResultEvent

from .narration import Narration

EXIT = "exit_plan_mode"
_ON = (
    "Plan mode is on. Look at what you need with the tools that are left, change nothing, and work out a plan. When it"
    f" stands, call {EXIT} with it: if it is approved, plan mode ends and you carry it out."
)
_OFF = "Plan mode is off. All tools are there again."


class PlanMode:
    """One agent's plan mode. Give the agent both its `hooks` and its `tool`.

        plan = PlanMode()
        agent = Agent(..., tools=[..., plan.tool], hooks=plan.hooks, options=AgentOptions(approve=ask_the_user))
        plan.enter()

    Args:
        allowed: The kinds of tools that stay. A tool that declares none is withheld.
        active: Whether it is on from the start. A session that is resumed goes on as its log says.

    Raises:
        PolicyError: if no kind is allowed; a plan that may look at nothing is no plan.
    """

    def __init__(self, *, allowed: Iterable[str] = ("read",), active: bool = False) -> None:
        self.allowed = frozenset((allowed,) if isinstance(allowed, str) else allowed)
        if not self.allowed:
            raise PolicyError("PlanMode: no kind of tool is allowed; name those that only look, such as 'read'")
        self.hooks = Hooks(name="plan-mode")
        self.pending: bool | None = True if active else None
        """What waits for the next step boundary."""
        self._narration = Narration(self.hooks, "plan-mode", lambda on: _ON if on else _OFF, state=False, lasting=True)
        self.hooks.listen("agent/session-start", self.recall)
        self.hooks.listen("agent/step-boundary", self.commit)
        self.hooks.listen("system-prompt/assemble", self.withhold)
        self.hooks.listen("tools/pre-execute", self.ask)
        self.tool = self._exit_tool()

    @property
    def active(self) -> bool:
        """Whether the open step, or the next one, is one of plan mode."""
        return self._narration.state

    def enter(self) -> None:
        """Turn it on, from the next step boundary on."""
        self.pending = True

    def leave(self) -> None:
        """Turn it off, from the next step boundary on."""
        self.pending = False

    def recall(self, payload: SessionStartPayload) -> None:
        """Go on as the log of a resumed session says; what the host has switched already comes after that."""
        session = payload.agent.session
        told = self._narration.recall(session, (True, False)) if payload.source == "resume" else -1
        if self.active and self.pending is None and _has_left(session, told):
            self.leave()

    def commit(self, payload: StepPayload) -> None:
        """Let the pending switch hold."""
        if self.pending is not None:
            self._narration.state, self.pending = self.pending, None

    async def withhold(self, payload: AssemblePayload, next: Next[PromptAssembly]) -> PromptAssembly:
        """Take the tools out of the step that it may not use: the model is not told of them, and cannot call them."""
        assembly = await next()
        if not self.active:
            return assembly
        return replace(
            assembly, tools=tuple(one for one in assembly.tools if one.name == EXIT or one.kind in self.allowed)
        )

    async def ask(self, payload: CallPayload, next: Next[Allow | Deny | Ask]) -> Allow | Deny | Ask:
        """Ask before plan mode is left."""
        verdict = await next()
        if payload.call.name != EXIT or not isinstance(verdict, Allow):
            return verdict
        plan = payload.arguments if isinstance(payload.arguments, str) else payload.arguments.get("plan", "")
        return Ask(f"Leave plan mode and carry out this plan?\n\n{plan}")

    def _exit_tool(self) -> Tool:
        def offered(agent: AgentHandle) -> bool:
            return self.active

        @tool(name=EXIT, kind="plan", when=offered)
        async def exit_plan_mode(plan: str) -> str:
            """Present a finished plan for approval. If it is approved, plan mode ends and you carry it out.

            Args:
                plan: What you are going to do, step by step.
            """
            self.leave()
            return "The plan is approved. Plan mode ends with this step: carry it out."

        return exit_plan_mode


def _has_left(session: Session, since: int) -> bool:
    """Whether a plan was approved after a record of the log."""
    later = session.events[since + 1 :]
    exits = {event.data.call_id for event in later if isinstance(event.data, ToolCallEvent) and event.data.name == EXIT}
    return any(
        isinstance(event.data, ToolResultEvent)
        and event.data.error is None
        and event.data.message.source.get("callId") in exits
        for event in later
    )
