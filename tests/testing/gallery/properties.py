"""What the authors of the hook sets say must hold: the properties that nobody but them could know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from lifecycle.testing import Simulated
from lifecycle.vocabulary.chunks import FinishKind
from lifecycle.vocabulary.events import (
    AssistantMessageEvent,
    EventData,
    InboxSpliced,
    RequestHeader,
    StepEnd,
    StepStart,
    SystemMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import FailureCode
from lifecycle.vocabulary.messages import TextBlock, ToolCallBlock, ToolResultBlock, text_of

D = TypeVar("D", bound=EventData)


def _told(run: Simulated, kind: type[D]) -> Iterator[tuple[int, D]]:
    """The events of one kind, with their `seq`."""
    return ((event.seq, event.data) for event in run.events if isinstance(event.data, kind))


def _struck(run: Simulated, *does: str) -> bool:
    """Whether a scripted hook did one of these."""
    return any(hook.does in does for hook in run.struck)


def prompts_are_not_rejected(run: Simulated) -> Iterator[str]:
    """No turn is blocked, unless a hook of the scenario rejects."""
    if not _struck(run, "reject"):
        for n, reason in enumerate(run.reasons, 1):
            if reason.kind == "blocked":
                yield f"turn {n} is blocked"


def what_is_claimed_is_admitted(run: Simulated) -> Iterator[str]:
    """Whatever a turn has claimed is said to the model, if the turn completes."""
    if run.vetoed or _struck(run, "reject", "empty"):
        return
    claimed: set[str] = set()
    waiting: dict[str, list[str]] = {"next-step": [], "next-turn": []}
    for event in run.events:
        match event.data:
            case TurnStart():
                claimed = set()
            case InboxSpliced(target=target, start=start, removed_count=count, inserted=new, outcome=outcome):
                gone = waiting[target][start : start + (count or 0)]
                waiting[target][start : start + (count or 0)] = [message.id for message in new]
                claimed |= set(gone) if outcome is None and not new else set()
            case UserMessageEvent(message=message):
                claimed.discard(message.id)
            case TurnEnd(turn=turn, reason=reason) if reason.kind == "completed" and claimed:
                yield f"turn {turn} completed, and never said {sorted(claimed)}"
            case _:
                pass


def what_is_cancelled_is_not_said(run: Simulated) -> Iterator[str]:
    """A message that a cancel discarded does not come back."""
    discarded = {one.payload.message.id for one in run.live("agent/inbox/discarded")}
    for seq, said in _told(run, UserMessageEvent):
        if said.message.id in discarded:
            yield f"message {said.message.id} was discarded, and is said at seq {seq}"


def no_prompt_waits(run: Simulated) -> Iterator[str]:
    """An agent that rests after turns that neither failed nor were cancelled has no prompt left."""
    if run.end == "idle" and run.pending[1] and all(one.kind in ("completed", "blocked") for one in run.reasons):
        yield f"the prompts {[message.id for message in run.pending[1]]} wait for somebody to prompt again"


def no_prompt_of_a_hook_waits(run: Simulated) -> Iterator[str]:
    """What these hooks have sent does not wait when the agent rests."""
    waits = [message.id for message in run.pending[1] if text_of(message) == "please go on"]
    if run.end == "idle" and run.phase == "idle" and waits:
        yield f"{waits} wait for somebody to prompt"


def _vetoed_by_the_scenario(run: Simulated) -> bool:
    return any(hook.point == "session/append" for hook in run.struck)


def every_call_has_its_result(run: Simulated) -> Iterator[str]:
    """A call that has started has a result, however the turn ends."""
    if _vetoed_by_the_scenario(run):
        return
    open_calls: set[str] = set()
    for event in run.events:
        match event.data:
            case ToolCallEvent(call_id=id):
                open_calls.add(id)
            case ToolResultEvent(message=message):
                open_calls -= {block.tool_call_id for block in message.content if isinstance(block, ToolResultBlock)}
            case TurnEnd(turn=turn):
                if open_calls:
                    yield f"turn {turn} ends at seq {event.seq}, and the calls {sorted(open_calls)} have no result"
                open_calls.clear()
            case _:
                pass


def every_attempt_is_settled(run: Simulated) -> Iterator[str]:
    """A stream that was begun is settled in the log."""
    if not _vetoed_by_the_scenario(run):
        begun = sum(one.payload.frame.type == "start" for one in run.live("agent/assistant-stream"))
        settled = sum(event.type in ("assistant/message", "assistant/attempt") for event in run.events)
        if begun != settled:
            yield f"{begun} attempts were begun, and {settled} are settled"


def act_never_runs(run: Simulated) -> Iterator[str]:
    """No call of the tool `act` runs."""
    yield from _runs(run, lambda name: name == "act")


def denied_calls_do_not_run(run: Simulated) -> Iterator[str]:
    """What a hook of the scenario has denied is answered so."""
    denied = sum(hook.point == "tools/pre-execute" and hook.does == "deny" for hook in run.struck)
    answered = sum(one.error is not None and one.error.code == "DENIED" for _, one in _told(run, ToolResultEvent))
    if denied > answered and all(reason.kind == "completed" for reason in run.reasons):
        yield f"{denied} calls were denied, and {answered} are answered so"


def contexts_are_sent_once(run: Simulated) -> Iterator[str]:
    """Nobody defers a message that waits already."""
    for record in run.logged:
        if "deferred a message that is pending already" in record.getMessage():
            yield record.getMessage()


def no_step_takes_minutes(run: Simulated) -> Iterator[str]:
    """A step is over within two minutes of virtual time."""
    begun: dict[tuple[int, int], int] = {}
    for event in run.events:
        match event.data:
            case StepStart(turn=turn, step=step):
                begun[turn, step] = event.time
            case StepEnd(turn=turn, step=step) if event.time - begun.get((turn, step), event.time) > 120_000:
                yield f"step {turn}.{step} ends at seq {event.seq}, {(event.time - begun[turn, step]) // 1_000} s later"
            case _:
                pass


def _runs(run: Simulated, forbidden: Callable[[str], bool]) -> Iterator[str]:
    names: dict[str, str] = {}
    for event in run.events:
        match event.data:
            case ToolCallEvent(call_id=id, name=name):
                names[id] = name
            case ToolResultEvent(message=message, error=None):
                for block in message.content:
                    if isinstance(block, ToolResultBlock) and forbidden(names[block.tool_call_id]):
                        yield f"call {block.tool_call_id} of {names[block.tool_call_id]} has run"
            case _:
                pass


def results_name_their_call(run: Simulated) -> Iterator[str]:
    """Every result that says which call it answers says the right one."""
    for _, result in _told(run, ToolResultEvent):
        for block in result.message.content:
            if not isinstance(block, ToolResultBlock):
                continue
            for part in block.content:
                said = part.text.partition("for ")[2] if isinstance(part, TextBlock) else ""
                if said.startswith("call-") and said != block.tool_call_id:
                    yield f"the result of {block.tool_call_id} says that it is for {said}"


def blocked_calls_give_no_context(run: Simulated) -> Iterator[str]:
    """What a blocked call has deferred is not said to the model."""
    blocked = {
        block.tool_call_id
        for _, result in _told(run, ToolResultEvent)
        if result.error is not None and result.error.code == "BLOCKED"
        for block in result.message.content
        if isinstance(block, ToolResultBlock)
    }
    for seq, spliced in _told(run, InboxSpliced):
        for message in spliced.inserted:
            if message.source.get("callId") in blocked:
                yield f"the context {message.id} of a blocked call is passed on at seq {seq}"


def answers_are_the_models(run: Simulated) -> Iterator[str]:
    """Answers that are whole say what the model said, with its calls and its finish."""
    if _struck(run, "rewrite", "cut"):
        return
    scripted = {("".join(answer.text), len(answer.calls)) for answer in run.scenario.answers} | {("ok", 0)}
    for seq, data in _told(run, AssistantMessageEvent):
        if data.interrupted or data.finish in (FinishKind.MAX_TOKENS, FinishKind.ABORTED) or not data.message.content:
            continue
        calls = sum(isinstance(block, ToolCallBlock) for block in data.message.content)
        if not any(calls == n and text_of(data.message) == text for text, n in scripted):
            yield f"the answer at seq {seq} says {text_of(data.message)!r} with {calls} calls; nobody said that"


def tools_stay(run: Simulated) -> Iterator[str]:
    """Every request offers all tools."""
    for seq, data in _told(run, RequestHeader):
        if len(data.header.tools or ()) != len(run.scenario.tools):
            yield f"the request at seq {seq} offers {len(data.header.tools or ())} tools"


def the_prompt_stays(run: Simulated) -> Iterator[str]:
    """No section of the prompt is ever told a second time: that would spend the provider's cache."""
    told = Counter(str(data.message.source.get("section")) for _, data in _told(run, SystemMessageEvent))
    for section, times in told.items():
        if times > 1 and not _struck(run, "change"):
            yield f"the section {section} is told {times} times"


def limits_stay_small(run: Simulated) -> Iterator[str]:
    """No request is allowed more than 4,000 tokens."""
    for seq, data in _told(run, RequestHeader):
        if (data.header.config.max_tokens or 0) > 4_000:
            yield f"the request at seq {seq} may take {data.header.config.max_tokens} tokens"


def somebody_serves_the_route(run: Simulated) -> Iterator[str]:
    """No turn fails for want of an adapter."""
    for n, reason in enumerate(run.reasons, 1):
        if reason.kind == "error" and reason.error.code == FailureCode.NO_ADAPTER:
            yield f"turn {n} asks a provider that is not there"


def only_cancelled_turns_are_aborted(run: Simulated) -> Iterator[str]:
    """A turn is aborted by a cancel of the scenario only."""
    acts = [*run.scenario.moves, *(act for hook in run.scenario.hooks for act in hook.acts)]
    acts += [act for tool in run.scenario.tools for act in tool.does]
    if not any(act.verb in ("cancel", "dispose") for act in acts):
        for n, reason in enumerate(run.reasons, 1):
            if reason.kind == "aborted":
                yield f"turn {n} is aborted, and nobody cancelled it"


def steps_are_few(run: Simulated) -> Iterator[str]:
    """A turn in which the model asks for nothing takes two steps at most."""
    asked = 0
    for event in run.events:
        match event.data:
            case TurnStart():
                asked = 0
            case AssistantMessageEvent(message=message):
                asked += any(isinstance(block, ToolCallBlock) for block in message.content)
            case StepEnd(step=step) if step > 8 + asked:
                yield f"step {step} ends at seq {event.seq}, though the model asked for tools {asked} times"
            case _:
                pass


def no_call_fails_in_a_hook(run: Simulated) -> Iterator[str]:
    """No call ends with an error that a hook has made, unless a hook of the scenario did."""
    if not _struck(run, "raise", "nonsense"):
        for seq, result in _told(run, ToolResultEvent):
            if result.error is not None and result.error.code == "HOOK_FAILED":
                yield f"the call answered at seq {seq} has failed in a hook"
