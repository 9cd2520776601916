"""The working records: one per run of a lifecycle, filled by performers in the order that the definition gives.

Control state is the phase alone. Everything else here is data that effects hand to one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import anyio
from anyio.abc import TaskGroup

from lifecycle.definition.agent import AgentFacts
from lifecycle.definition.machine import NoFacts
from lifecycle.definition.step import StepFacts
from lifecycle.definition.turn import TurnFacts
from lifecycle.services.hooks import Hooks
from lifecycle.services.model import BoundCall, Models
from lifecycle.services.points import AgentHandle, Enter, PromptText, Reject, ToolOutcome
from lifecycle.services.prompt import Prompt
from lifecycle.services.signal import CancelSignal
from lifecycle.services.tools import StepTools, Tool, ToolContext, ToolRegistry
from lifecycle.session.log import Session
from lifecycle.vocabulary.chunks import Finish
from lifecycle.vocabulary.events import ApprovalAsked, Event, InboxTarget
from lifecycle.vocabulary.failures import COMPLETED, DISPOSED_CANCEL, CancelCause, Failure, TurnEndReason
from lifecycle.vocabulary.messages import ToolCallBlock, UserMessage
from lifecycle.vocabulary.requests import CallConfig, ModelSelection, Request, ToolSpec
from lifecycle.vocabulary.stream import StreamRecorder
from lifecycle.vocabulary.values import FrozenDict

from .feed import Feeds

if TYPE_CHECKING:
    from .options import AgentOptions
    from .performers.tooling import Pool
    from .program import Program
    from .walk import Drive


# Facts are few and frozen: each valuation is made once.
_agent_facts, _turn_facts, _step_facts = cache(AgentFacts), cache(TurnFacts), cache(StepFacts)
_NO_FACTS = NoFacts()


@dataclass(slots=True, eq=False)
class AgentRun:
    """One agent for its life, and the services that its turns use."""

    handle: AgentHandle
    program: Program
    call_program: Program
    session: Session
    hooks: Hooks
    models: Models
    tools: ToolRegistry
    prompt: Prompt
    options: AgentOptions
    feeds: Feeds
    phase: str = "idle"
    signal: CancelSignal = field(default_factory=CancelSignal)
    """Of the open turn or the maintenance task; fired once that is cancelled."""
    error: BaseException | None = None
    tasks: TaskGroup | None = None
    drive: Drive | None = None
    """The activity from a wake to the next rest, if there is one."""
    woken: bool = False
    status: Literal["idle", "running"] = "idle"
    turn: TurnRun | None = None
    """The last turn, also after it has ended."""
    parked: StepRun | None = None
    """The step that a lost process has left parked, until its turn goes on."""
    disposing: bool = False
    """Until the agent rests, or for good once it is `leaving`: input is parked."""
    leaving: bool = False
    """The context is being left, or the host has cancelled the tasks that the agent works in."""
    taking: bool = False
    """An arrow is being taken from outside the walk; who listens to its effects may ask for another one."""
    scopes: set[anyio.CancelScope] = field(default_factory=lambda: set())
    """Around everything that is done in a task of its own."""
    watch: anyio.CancelScope | None = None
    """Around the task that waits for the end of the grace period of a cancelled turn."""
    workers: set[object] = field(default_factory=set[object])
    """The tasks in which the agent's own work is done."""
    escaped: BaseException | None = None
    """What a listener raised that is no Exception, until somebody passes it on."""

    # what the arrow that is being taken is about
    sending: tuple[UserMessage, InboxTarget] | None = None
    cancelling: CancelCause | None = None
    keeping: bool = False
    discarded: tuple[UserMessage, ...] = ()
    inserted: tuple[UserMessage, ...] = ()
    editing: tuple[str, tuple[UserMessage, ...]] | None = None
    edited_out: tuple[UserMessage, ...] = ()
    edited_in: tuple[UserMessage, ...] = ()

    # what one request remembers for the next
    requested: bool = False
    """This instance has made a request (REQ-02, REQ-07)."""
    last_specs: tuple[ToolSpec, ...] | None = None
    last_generation: int = -1

    def unwatch(self) -> None:
        """The cancelled turn is over: nobody need be told that it takes long."""
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None

    def facts(self) -> AgentFacts:
        turn = self.turn
        healthy = turn is not None and turn.go_on
        return _agent_facts(self.session.inbox.pending, healthy, self.keeping, self.disposing, self.parked is not None)

    def interrupt(self) -> None:
        """The host is cancelled where the agent is used, but perhaps not where its tasks are."""
        for scope in self.scopes:
            scope.cancel()

    def stop(self, error: BaseException) -> None:
        """The host cancels the task that works here, or ends the process: the agent is disposed of (CAN-06)."""
        self.leaving = self.disposing = True
        if not isinstance(error, anyio.get_cancelled_exc_class()):
            self.escaped = error
        self.handle.cancel(DISPOSED_CANCEL, keep_inbox=True)

    def heard(self, point: str) -> bool:
        """Whether anybody would hear what is told there."""
        return bool(self.hooks.chains[point]) or bool(self.feeds.open)

    def tell(self, point: str, payload: Callable[..., Any], *values: Any) -> None:
        """Tell live listeners: build the payload only if somebody hears it.

        The feeds first: what a hook then does to the agent comes later in them than what it was told.
        """
        heard, feeds = self.hooks.chains[point], self.feeds
        if heard or feeds.open:
            made = payload(self.handle, *values)
            if feeds.open:
                feeds.live(point, made)
            if heard:
                self.hooks.emit(point, made)


@dataclass(slots=True, eq=False)
class TurnRun:
    """One turn."""

    agent: AgentRun
    number: int
    phase: str = ""
    signal: CancelSignal = field(default_factory=CancelSignal)
    error: BaseException | Failure | None = None
    step: StepRun | None = None
    """The proposed or open step."""
    steps: int = 0
    """The number of the last step that was opened."""
    proposals: int = 0
    claimed: tuple[UserMessage, ...] = ()
    reason: TurnEndReason = COMPLETED
    """How it ends unless it fails or is cancelled; a token ceiling sticks (TRN-06)."""
    owed: bool = False
    """The last step owes another request."""
    pauses: int = 0
    """How many steps in a row ended because the provider paused."""
    go_on: bool = True
    """The next turn may follow at once."""

    def stop(self, error: BaseException) -> None:
        self.agent.stop(error)

    def facts(self) -> TurnFacts:
        return _turn_facts(self.owed, bool(self.agent.session.inbox.next_step))


@dataclass(slots=True, eq=False)
class Attempt:
    """One stream of one request."""

    number: int
    recorder: StreamRecorder = field(default_factory=StreamRecorder)
    """The accepted chunks; each was told as the frame of its index."""
    finish: Finish | None = None
    settling: bool = False
    """A settlement was tried; there is no second one."""
    settlement: Event | None = None
    ended: bool = False
    """The live end was told."""
    failure: Failure | None = None


@dataclass(slots=True, eq=False)
class StepRun:
    """One step, from its proposal to its end."""

    turn: TurnRun
    agent: AgentRun = field(init=False)
    number: int
    signal: CancelSignal
    batch: tuple[UserMessage, ...]
    owed: bool
    """The step before owes this one, whatever is entered (PRE-09)."""
    phase: str = ""
    selection: ModelSelection | None = None
    published: ModelSelection | None = None
    """`agent.step`: from the choice of the model to the end of the step (STB-05, STB-07)."""
    decision: Enter | Reject | None = None
    opened: bool = False
    closed: bool = False
    tools: StepTools | None = None
    sections: tuple[PromptText, ...] = ()
    contexts: tuple[PromptText, ...] = ()
    specs: tuple[ToolSpec, ...] = ()
    config: CallConfig | None = None
    bound: BoundCall | None = None
    starts_series: bool = False
    request: Request | None = None
    attempts: int = 0
    attempt: Attempt | None = None
    retry: bool = False
    pool: Pool | None = None

    def __post_init__(self) -> None:
        self.agent = self.turn.agent

    @property
    def error(self) -> BaseException | Failure | None:
        return self.turn.error

    @error.setter
    def error(self, error: BaseException | Failure | None) -> None:
        self.turn.error = error

    def stop(self, error: BaseException) -> None:
        self.agent.stop(error)

    def facts(self) -> StepFacts:
        decision, pool = self.decision, self.pool
        admitted = isinstance(decision, Enter) and (bool(decision.messages) or self.owed)
        if pool is None:
            return _step_facts(admitted, self.retry, False, False, False)
        return _step_facts(admitted, self.retry, pool.unstarted, pool.unsettled, pool.undecided)


@dataclass(slots=True, eq=False)
class ToolCallRun:
    """One tool call."""

    step: StepRun
    block: ToolCallBlock
    arguments: FrozenDict | str
    tool: Tool | None
    phase: str
    signal: CancelSignal
    error: BaseException | None = None
    record: Event | None = None
    """Its `tool/call`."""
    asked: ApprovalAsked | None = None
    """What somebody is asked about it, if anybody is."""
    kwargs: Mapping[str, Any] | None = None
    """The arguments as the body takes them, once they were checked."""
    invoked: bool = False
    """The body was called."""
    context: ToolContext | None = None
    """What the body was handed, where it runs with nothing around it."""
    lost: bool = False
    """Its process was lost while it ran, and this one finds out what came of it."""
    outcome: ToolOutcome | None = None
    own: ToolOutcome | None = None
    """The outcome as the tool made it, checked and frozen; a hook may put another in its place."""
    result: UserMessage | None = None
    drive: Drive | None = None
    running: bool = False
    """Its body has begun in a task of its own and has not ended."""

    @property
    def agent(self) -> AgentRun:
        return self.step.agent

    def stop(self, error: BaseException) -> None:
        self.step.stop(error)

    def facts(self) -> NoFacts:
        return _NO_FACTS
