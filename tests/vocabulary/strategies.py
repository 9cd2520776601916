"""Everything that can be said, for property tests: JSON, messages, chunks and events."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary import failures as fl
from lifecycle.vocabulary import messages as ms
from lifecycle.vocabulary.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishKind,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
)
from lifecycle.vocabulary.requests import CallConfig, Header, ToolSpec
from lifecycle.vocabulary.stream import StreamRecorder, TimedStream
from lifecycle.vocabulary.values import FrozenDict, freeze, freeze_object

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
small = st.integers(0, 9)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
frozen_json = json_values.map(freeze)
frozen_objects: st.SearchStrategy[FrozenDict] = st.dictionaries(words, json_values, max_size=3).map(freeze_object)


def made(kind: Any, /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Build `kind` by the Python names of its fields; `st.builds` would take the aliases of a model for more fields."""
    return st.fixed_dictionaries(fields).map(lambda given: kind(**given))


texts = made(ms.TextBlock, text=words)
images = made(ms.ImageBlock, data=st.none() | words, url=st.none() | words)
calls = made(ms.ToolCallBlock, id=words, name=words, arguments=words)
results = made(
    ms.ToolResultBlock,
    tool_call_id=words,
    content=st.lists(texts | images, max_size=2).map(tuple),
    is_error=st.booleans(),
)
blocks = st.one_of(texts, images, made(ms.ReasoningBlock, text=words), calls, results)
contents = st.lists(blocks, max_size=3).map(tuple)

user_messages = made(ms.UserMessage, id=words, content=contents, source=frozen_objects)
assistant_messages = made(
    ms.AssistantMessage,
    id=words,
    content=contents,
    source=frozen_objects,
    replay=st.none() | st.lists(frozen_json, max_size=2).map(tuple),
)
system_messages = made(
    ms.SystemMessage, id=words, content=st.lists(texts, max_size=2).map(tuple), source=frozen_objects
)

usages = made(Usage, input_tokens=small, output_tokens=small, reasoning_tokens=st.none() | small)
failures = made(
    fl.Failure,
    message=words,
    code=words,
    status=st.none() | small,
    retryable=st.none() | st.booleans(),
    retry_after=st.none() | st.floats(0, 100),
)
_unknown = st.none() | st.dictionaries(words.map("x-{}".format), json_values, min_size=1, max_size=2).map(freeze_object)
chunks: st.SearchStrategy[Chunk] = st.one_of(
    made(BlockStart, at=small, block_type=words, extra=_unknown),
    made(TextDelta, at=st.integers(0, 1), text=words, extra=_unknown),
    made(TextDelta, at=st.integers(0, 1), text=words),
    made(ReasoningDelta, at=st.integers(0, 1), text=words),
    made(
        ToolCallDelta,
        at=st.integers(0, 1),
        id=st.none() | st.sampled_from("ab"),
        name=st.none() | st.just("f"),
        arguments=words,
        extra=_unknown,
    ),
    made(BlockEnd, at=small, block=blocks, extra=_unknown),
    made(UsageReport, usage=usages, extra=_unknown),
    made(
        Finish,
        kind=st.sampled_from(FinishKind),
        failure=st.none() | failures,
        replay=st.none() | st.lists(frozen_json, max_size=2).map(tuple),
        extra=_unknown,
    ),
)
timed_chunks = st.lists(st.tuples(chunks, st.integers(0, 2**45)), max_size=12)


def recorded(timed: list[tuple[Chunk, int]]) -> TimedStream:
    """The compact stream of chunks and their times."""
    recorder = StreamRecorder()
    for chunk, time in timed:
        recorder.add(chunk, time)
    return recorder.stream()


streams = timed_chunks.map(recorded)
configs = made(
    CallConfig,
    provider=st.none() | words,
    max_tokens=st.none() | small,
    temperature=st.none() | st.floats(0, 2),
    options=frozen_objects,
)
tools = made(ToolSpec, name=words, description=words, input_schema=frozen_objects, kind=st.none() | words)
headers = made(
    Header,
    config=configs,
    tools=st.none() | st.lists(tools, max_size=2).map(tuple),
    defaults=st.none() | st.lists(words, max_size=2).map(tuple),
)
_causes = st.one_of(
    st.sampled_from([fl.USER_CANCEL, fl.PARENT_CANCEL, fl.DISPOSED_CANCEL]), made(fl.HookCancel, reason=words)
)
reasons = st.one_of(
    st.sampled_from([fl.COMPLETED, fl.MAX_TOKENS, fl.BLOCKED, fl.INTERRUPTED]),
    made(fl.Aborted, reason=_causes),
    made(fl.Errored, error=failures),
)

_step: dict[str, st.SearchStrategy[Any]] = {"turn": small, "step": small}
EVENT_DATA: dict[type[ev.EventData], st.SearchStrategy[Any]] = {
    ev.TurnStart: made(ev.TurnStart, turn=small),
    ev.TurnEnd: made(ev.TurnEnd, turn=small, reason=reasons),
    ev.StepStart: made(ev.StepStart, **_step),
    ev.StepEnd: made(ev.StepEnd, **_step),
    ev.InboxSpliced: made(
        ev.InboxSpliced,
        target=st.sampled_from(["next-turn", "next-step"]),
        start=small,
        removed_count=st.none() | small,
        inserted=st.lists(user_messages, max_size=2).map(tuple),
        outcome=st.sampled_from([None, "canceled"]),
    ),
    ev.SystemMessageEvent: made(ev.SystemMessageEvent, **_step, message=system_messages),
    ev.UserMessageEvent: made(ev.UserMessageEvent, message=user_messages),
    ev.RequestHeader: made(ev.RequestHeader, header=headers, reason=st.sampled_from(["initial", "resume", "change"])),
    ev.RequestContext: made(ev.RequestContext, provider=words, model=words, context_window=st.none() | small),
    ev.AssistantMessageEvent: made(
        ev.AssistantMessageEvent,
        **_step,
        message=assistant_messages,
        stream=streams,
        finish=st.sampled_from(FinishKind),
        usage=st.none() | usages,
        interrupted=st.sampled_from([None, True]),
    ),
    ev.AssistantAttempt: made(ev.AssistantAttempt, **_step, stream=streams),
    ev.ToolCallEvent: made(ev.ToolCallEvent, **_step, call_id=words, name=words, arguments=words),
    ev.ApprovalAsked: made(ev.ApprovalAsked, id=words, call_id=words, tool_name=words, reason=words),
    ev.ApprovalDecided: made(ev.ApprovalDecided, id=words, outcome=st.sampled_from(get_args(ev.ApprovalOutcome))),
    ev.ToolResultEvent: made(
        ev.ToolResultEvent,
        **_step,
        message=user_messages,
        error=st.none() | made(ev.ToolFault, code=words, name=st.none() | words),
        value=frozen_json,
    ),
    ev.LlmRetry: made(
        ev.LlmRetry,
        **_step,
        retry_id=words,
        provider=words,
        retry=small,
        delay_ms=small,
        failure=failures,
        mode=st.none() | words,
        max_retries=st.none() | small,
        shown=st.sampled_from([None, True]),
    ),
    ev.LlmRetryStarted: made(ev.LlmRetryStarted, **_step, retry_id=words, retry=small),
    ev.CompactionStart: made(
        ev.CompactionStart,
        compaction_id=words,
        trigger=st.sampled_from(["pressure", "overflow", "manual"]),
        turn=st.none() | small,
    ),
    ev.CompactionSummary: made(
        ev.CompactionSummary,
        compaction_id=words,
        summary=st.lists(texts, max_size=2).map(tuple),
        shadowed_seqs=st.lists(small, max_size=3).map(tuple),
        shadowed_token_count=small,
        provider=words,
        model=words,
        usage=st.none() | usages,
    ),
    ev.CompactionEnd: made(ev.CompactionEnd, compaction_id=words, turn=st.none() | small, error=st.none() | words),
    ev.CompactionPrune: made(
        ev.CompactionPrune, turn=small, call_id=words, shadowed_seq=small, shadowed_token_count=small
    ),
    ev.EndSeed: made(ev.EndSeed),
}
"""How to make the data of each event type."""
