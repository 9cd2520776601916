"""A witness: it tells what a real agent does as happenings, so that the invariants of abstract runs judge it as well.

It asks nothing, changes nothing and judges nothing. It listens in front of everybody else, because who hears of a thing
may do the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, NamedTuple

from lifecycle import Agent, Hooks, Session
from lifecycle.driver.activity import Activity
from lifecycle.driver.runs import AgentRun
from lifecycle.proof.happenings import Happening
from lifecycle.proof.invariants import PUBLISHED, SUSPENDING, UNPUBLISHED
from lifecycle.services.model import Model
from lifecycle.services.points import CallPayload, Mode, PreStepPayload
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.events import (
    AssistantAttempt,
    AssistantMessageEvent,
    Event,
    EventData,
    InboxSpliced,
    InboxTarget,
    Replace,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import USER_CANCEL, Aborted, CancelCause
from lifecycle.vocabulary.messages import ToolCallBlock, ToolResultBlock

ASKED = (*SUSPENDING, "tools/post-execute")
TOLD = ("agent/status", "agent/error", "agent/inbox/inserted", "agent/inbox/claimed", "agent/inbox/discarded")
STREAM = "agent/assistant-stream"


class Seen(NamedTuple):
    """Something that happened, and the seq of the next record at that moment."""

    seq: int
    happening: Happening


class Witness:
    """What it has seen of one agent is its `story`."""

    def __init__(self) -> None:
        self.story: list[Seen] = []
        self._agent: Agent | None = None
        self._verb = ""
        self._asked: tuple[str, ...] = ()
        self._calls: dict[int, str] = {}
        self._weighed = False
        self._held: list[Seen] = []

    def tell(self, name: str, *args: Any, **more: Any) -> None:
        """Something happens."""
        agent = self._agent
        if agent is not None:
            if name in PUBLISHED or name in UNPUBLISHED:
                more["step"] = agent.step is not None
            seen = Seen(agent.session.next_seq, Happening(name, *args, **more))
            (self._held if self._weighed else self.story).append(seen)

    def attend(self, agent: Agent) -> None:
        """See what happens from now on. Nobody may have a veto on the agent's session or observe it before."""
        self._agent = agent
        agent.session.veto(self._weigh)
        agent.session.observe(self._recorded)

    def _weigh(self, event: Event) -> None:
        """What those do who may refuse a record comes after the record."""
        self._weighed = True

    def refused(self, type: str) -> None:
        """Nothing was recorded: somebody has refused it, or it could not be."""
        if self._weighed:
            self._weighed = False
            self.tell("vetoed", type)
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        self.story += held

    @contextmanager
    def sending(self, verb: str) -> Generator[None]:
        """Within the block, input is sent."""
        before, self._verb = self._verb, verb
        try:
            yield
        finally:
            self._verb = before

    def give_up(self) -> None:
        """See no more."""
        self._agent = None

    # -- what it records ------------------------------------------------------------------------------------------

    def _recorded(self, event: Event) -> None:
        self._weighed = False
        if self._agent is not None:
            self._told(event)
        self._release()

    def _told(self, event: Event) -> None:
        match event.data:
            case _ if isinstance(event.surface, Replace):
                pass  # it takes the place of what was told before; nothing has happened to the run
            case InboxSpliced():
                self._spliced(event.data)
            case TurnStart(turn=number):
                self.tell(event.type, number=number)
            case TurnEnd(turn=number, reason=reason):
                cause = f" {reason.reason.kind}" if isinstance(reason, Aborted) else ""
                self.tell(event.type, f"{reason.kind}{cause}", number=number)
            case StepStart(step=number) | StepEnd(step=number):
                self.tell(event.type, number=number)
            case UserMessageEvent(message=message):
                self.tell(event.type, ids=(message.id,))
            case AssistantMessageEvent(message=message, interrupted=interrupted):
                blocks = () if interrupted else message.content
                self._asked = tuple(block.id for block in blocks if isinstance(block, ToolCallBlock))
                self._calls = {}
                self.tell(event.type, "interrupted" if interrupted else "", number=len(self._asked))
            case AssistantAttempt():
                self.tell(event.type)
            case ToolCallEvent(call_id=id):
                self._calls[event.seq] = id
                self.tell(event.type, number=self._number(id))
            case ToolResultEvent(message=message):
                answered = [block.tool_call_id for block in message.content if isinstance(block, ToolResultBlock)]
                cited = [self._calls.get(seq, "") for seq in event.sources or ()]
                self.tell(event.type, number=self._number(answered[0]) if answered == cited else 0)
            case _ if event.type in PUBLISHED:
                self.tell(event.type)
            case _:
                pass

    def _spliced(self, data: InboxSpliced) -> None:
        assert self._agent is not None
        inbox = self._agent.session.inbox  # which still is as it was (INB-02)
        waiting = inbox.next_step if data.target == "next-step" else inbox.next_turn
        gone = tuple(one.id for one in waiting[data.start : data.start + (data.removed_count or 0)])
        new = tuple(one.id for one in data.inserted)
        if gone and new:
            self.tell(data.type, "replace", (*gone, *new), target=data.target)
        elif gone:
            self.tell(data.type, "claim" if data.outcome is None else "canceled", gone, target=data.target)
        else:
            self.tell(self._verb or "inject", ids=new)  # what a tool defers, nobody has sent
            self.tell(data.type, "insert", new, target=data.target)

    def _number(self, id: str) -> int:
        """Which call of the answer that is, counted from 1; 0 if none."""
        return self._asked.index(id) + 1 if id in self._asked else 0

    def _called(self, payload: object) -> int:
        return self._number(payload.call.id) if isinstance(payload, CallPayload) else 0

    # -- what it tells and asks -----------------------------------------------------------------------------------

    def listen(self, hooks: Hooks) -> None:
        """Listen in front of those who listen by now."""
        for name in (*TOLD, *ASKED, STREAM):
            if name in hooks.points:
                listener = self._around(name) if hooks.points[name].mode is Mode.WATERFALL else self._hears(name)
                hooks.listen(name, listener, prepend=True)

    def _hears(self, name: str) -> Callable[[Any], None]:
        def hears(payload: Any) -> None:
            if name == STREAM:
                if payload.frame.type != "chunk":
                    self.tell(f"{name} {payload.frame.type}")
            elif name == "agent/status":
                self.tell(name, payload.status)
            elif name in TOLD and name != "agent/error":
                self.tell(name, ids=(payload.message.id,))
            else:
                self.tell(name, number=self._called(payload))

        return hears

    def _around(self, name: str) -> Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]:
        async def around(payload: Any, next: Callable[[], Awaitable[Any]]) -> Any:
            self.tell(name, number=self._called(payload))
            answer = await next()
            if isinstance(payload, PreStepPayload):
                self._proposal(payload, answer)
            return answer

        return around

    def _proposal(self, payload: PreStepPayload, decision: Any) -> None:
        if not decision.enters:
            self.tell("proposal", "reject")
            return
        kept = decision.messages == payload.messages
        self.tell("proposal", "enter" if kept else "rewrite", _ids(decision.messages))


def _ids(messages: Iterable[Any]) -> tuple[str, ...]:
    return tuple(message.id for message in messages)


class WitnessedSession(Session):
    """A session in memory that says so if an append is refused."""

    def __init__(self, witness: Witness, id: str, *, clock: Callable[[], int]) -> None:
        super().__init__(id, clock=clock)
        self._witness = witness

    def append(self, data: EventData, **how: Any) -> Event:
        before = self.next_seq
        try:
            return super().append(data, **how)
        except BaseException:
            if self.next_seq == before and self.appending is None:
                self._witness.refused(data.type)
            raise


class WitnessedAgent(Agent):
    """An agent that says what is asked of it before it does so."""

    def __init__(self, witness: Witness, model: Model, **how: Any) -> None:
        super().__init__(model, **how)
        self._witness = witness
        self._activity = _WitnessedActivity(witness, self._run)

    def _send(self, content: Any, target: InboxTarget, *, wakeup: bool) -> Any:
        with self._witness.sending(("followup" if target == "next-turn" else "steer") if wakeup else "inject"):
            return super()._send(content, target, wakeup=wakeup)

    def cancel(self, cause: CancelCause = USER_CANCEL, *, keep_inbox: bool = False) -> bool:
        if self._run.tasks is not None:
            kept = keep_inbox or self.session.appending is not None
            self._witness.tell("dispose" if self._run.leaving else "cancel", cause.kind, keep=kept)
        try:
            return super().cancel(cause, keep_inbox=keep_inbox)
        except BaseException:  # a veto keeps it from discarding: it may be half done, which no declaration speaks of
            self._witness.give_up()
            raise

    async def run_maintenance(self, task: Callable[[CancelSignal], Awaitable[Any]]) -> Any:
        async def told(signal: CancelSignal) -> Any:
            self._witness.tell("maintenance")
            try:
                return await task(signal)
            finally:
                self._witness.tell("maintained")

        return await super().run_maintenance(told)


class _WitnessedActivity(Activity):
    """An activity that says when it rests."""

    __slots__ = ("_witness",)

    def __init__(self, witness: Witness, run: AgentRun) -> None:
        super().__init__(run)
        self._witness = witness

    def rest(self) -> None:
        super().rest()
        if self._run.drive is None:
            self._witness.tell("rest")
