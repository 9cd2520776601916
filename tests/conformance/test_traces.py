"""The traces of the commonest stories, whole: what is recorded and what is told, in the one order of both.

Each story has a text file in `traces/`, which is a reference and not a snapshot: when a test here fails, the trace has
changed for everybody who replays logs or listens; change the file by hand, and only with the lifecycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from lifecycle import AgentOptions, Hooks, Prompt, Reject, Retry, Section, tool
from lifecycle.services.points import Allow, Ask, CallPayload, Deny, Enter, PreStepPayload
from lifecycle.testing import Gate, GatedTool, Line, Reply, ScriptedModel
from lifecycle.vocabulary.chunks import Finish, TextDelta, ToolCallDelta
from lifecycle.vocabulary.events import (
    AssistantMessageEvent,
    Event,
    InboxSpliced,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
)

from .kit import Next, Scene, scene

pytestmark = pytest.mark.anyio

TRACES = Path(__file__).parent / "traces"
ADMISSION = {"system/message", "user/message", "request/header", "request/context"}
Decision = Enter | Reject
Verdict = Allow | Deny | Ask


@tool
def look() -> str:
    """Look."""
    return "a cat"


class Story:
    """What happens in one story: the model's script, and what a person does."""

    def __init__(self, *script: Line, preparing: Iterable[Gate] = (), tools: Iterable[GatedTool] = ()) -> None:
        self.gate = Gate()
        self.hooks = Hooks()
        self.model = ScriptedModel(*script, otherwise=Reply(text="ok"), preparing=[*preparing])
        self.tools = [look, *tools]

    async def tell(self, s: Scene) -> None:
        await s.say("hello")


class Deciding(Story):
    """The proposal of the first step is decided by a hook."""

    def __init__(self, decide: Callable[[PreStepPayload], Decision]) -> None:
        super().__init__()

        @self.hooks.on("agent/pre-step")
        async def first(payload: PreStepPayload, next: Next[Decision]) -> Decision:
            return decide(payload)


def refuse(payload: PreStepPayload) -> Decision:
    raise OSError("no decision")


class Cancelled(Story):
    """A person cancels while the story stands at its gate; `then` follows before the agent has converged."""

    def __init__(self, *beats: TextDelta | ToolCallDelta, preparing: bool = False, then: str = "") -> None:
        gate = Gate()
        super().__init__([*beats, gate, Finish()], preparing=[gate] if preparing else ())
        self.gate, self.then = gate, then

    async def tell(self, s: Scene) -> None:
        s.agent.followup("hello")
        await self.gate.reached()
        s.agent.cancel()
        if self.then:
            s.agent.followup(self.then)
        self.gate.open()
        await s.idle()


class Steered(Story):
    """Input comes while the first step streams."""

    def __init__(self) -> None:
        gate = Gate()
        super().__init__([TextDelta(0, "he"), gate, TextDelta(0, "llo"), Finish()])
        self.gate = gate

    async def tell(self, s: Scene) -> None:
        s.agent.followup("hello")
        await self.gate.reached()
        s.agent.steer("be brief")
        self.gate.open()
        await s.idle()


class Retried(Story):
    """The first attempt fails, and a hook asks for another one."""

    def __init__(self) -> None:
        super().__init__(Reply.failure("OVERLOADED"))
        self.hooks.listen("agent/request-error", lambda payload, next: Retry())


class CancelledInTools(Story):
    """Of three calls, two may run at once and have started; the cancel reaches their bodies."""

    def __init__(self) -> None:
        self.work = GatedTool()
        super().__init__(Reply(calls=[("work", {}), ("work", {}), ("work", {})]), tools=[self.work])

        @self.hooks.on("tools/pre-execute")
        async def one_after_another(payload: CallPayload, next: Next[Verdict]) -> Verdict:
            if payload.call.id == "call-1-2":  # bodies begin in tasks of their own, in whichever order
                await self.work.started("call-1-1")
            return await next()

    async def tell(self, s: Scene) -> None:
        s.agent.followup("hello")
        await self.work.started("call-1-1", "call-1-2")
        s.agent.cancel()
        await s.idle()


class TwoPrompts(Story):
    async def tell(self, s: Scene) -> None:
        await s.say("hello", "and bye")


OPEN = "insert, turn/start 1, claim, "
STEP = "step/start 1, [adm], "
ANSWER = "assistant/message, step/end 1, "
STORIES: dict[str, tuple[Callable[[], Story], str]] = {
    "one answer": (Story, OPEN + STEP + ANSWER + "turn/end 1 {completed}"),
    "reject first": (lambda: Deciding(lambda payload: Reject()), OPEN + "turn/end 1 {blocked}"),
    "empty first": (lambda: Deciding(lambda payload: Enter(())), OPEN + "turn/end 1 {completed}"),
    "pre-step raises": (lambda: Deciding(refuse), OPEN + "turn/end 1 {error}"),
    "cancel in prepare": (
        lambda: Cancelled(preparing=True),
        OPEN + "step/start 1, step/end 1, turn/end 1 {aborted}",
    ),
    "tool round": (
        lambda: Story(Reply(calls=[("look", {})])),
        OPEN
        + STEP
        + "assistant/message, tool/call 1, tool/result 1, step/end 1, step/start 2, assistant/message, step/end 2, "
        + "turn/end 1 {completed}",
    ),
    "steer in step 1": (
        Steered,
        OPEN
        + STEP
        + "insert, assistant/message, step/end 1, claim, step/start 2, [adm], assistant/message, step/end 2, "
        + "turn/end 1 {completed}",
    ),
    "retry once": (Retried, OPEN + STEP + "assistant/attempt, " + ANSWER + "turn/end 1 {completed}"),
    "unrecovered": (
        lambda: Story(Reply.failure("OVERLOADED")),
        OPEN + STEP + "assistant/attempt, step/end 1, turn/end 1 {error}",
    ),
    "cancel, visible": (
        lambda: Cancelled(TextDelta(0, "he")),
        OPEN + STEP + "assistant/message {interrupted}, step/end 1, turn/end 1 {aborted}",
    ),
    "cancel, invisible": (
        lambda: Cancelled(ToolCallDelta(0, "c", "look")),
        OPEN + STEP + "assistant/attempt, step/end 1, turn/end 1 {aborted}",
    ),
    "cancel in tools": (
        CancelledInTools,
        OPEN
        + STEP
        + "assistant/message, tool/call 1, tool/call 2, tool/result 1 {ABORTED}, tool/result 2 {ABORTED}, "
        + "tool/call 3, tool/result 3 {ABORTED_BEFORE_DISPATCH}, step/end 1, turn/end 1 {aborted}",
    ),
    "two prompts": (
        TwoPrompts,
        "insert, turn/start 1, claim, insert, "
        + STEP
        + ANSWER
        + "turn/end 1 {completed}, turn/start 2, claim, step/start 1, [adm], assistant/message, step/end 1, "
        + "turn/end 2 {completed}",
    ),
    "latched wake": (
        lambda: Cancelled(TextDelta(0, "he"), then="and on"),
        OPEN
        + STEP
        + "insert, assistant/message {interrupted}, step/end 1, turn/end 1 {aborted}, turn/start 2, claim, "
        + "step/start 1, [adm], assistant/message, step/end 1, turn/end 2 {completed}",
    ),
}
"""Name to the story and its durable trace in short: `[adm]` is what an admission block writes, a claim is one."""


def in_short(events: Iterable[Event]) -> str:
    """The durable trace in short."""
    calls: list[str] = []

    def short(event: Event) -> str:
        match event.data:
            case InboxSpliced(removed_count=removed, outcome=outcome):
                return "insert" if not removed else "claim" if outcome is None else outcome
            case TurnStart(turn=turn):
                return f"turn/start {turn}"
            case StepStart(step=step) | StepEnd(step=step):
                return f"{event.type} {step}"
            case TurnEnd(turn=turn, reason=reason):
                return f"turn/end {turn} {{{reason.kind}}}"
            case AssistantMessageEvent(interrupted=True):
                return "assistant/message {interrupted}"
            case ToolCallEvent(call_id=id):
                calls.append(id)
                return f"tool/call {len(calls)}"
            case ToolResultEvent(message=message, error=error):
                number = calls.index(str(message.source["callId"])) + 1
                return f"tool/result {number}" + ("" if error is None else f" {{{error.code}}}")
            case _:
                return "[adm]" if event.type in ADMISSION else event.type

    said: list[str] = []
    for one in map(short, events):
        if said[-1:] != [one] or one not in ("[adm]", "claim"):
            said.append(one)
    return ", ".join(said)


async def told(story: Story) -> Scene:
    """The scene after the story was told in it."""
    prompt = Prompt([Section("who", "be brief")], contexts=[Section("where", "at home")])
    options = AgentOptions(system=prompt, max_parallel_tools=2)
    async with scene(model=story.model, hooks=story.hooks, tools=story.tools, options=options) as s:
        await story.tell(s)
    return s


@pytest.mark.parametrize("name", STORIES)
async def test_a_story_leaves_this_log(name: str) -> None:
    begin, expected = STORIES[name]

    assert in_short((await told(begin())).session.events) == expected


@pytest.mark.parametrize("name", STORIES)
async def test_a_story_is_told_in_this_order_in_both_domains(name: str) -> None:
    begin, _ = STORIES[name]
    trace = (await told(begin())).trace

    assert trace.lines() == (TRACES / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def test_every_reference_trace_belongs_to_a_story() -> None:
    assert {path.stem for path in TRACES.iterdir()} == set(STORIES)
