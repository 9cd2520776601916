"""Block assembly, as a table."""

from __future__ import annotations

import pytest
from hypothesis import given

from lifecycle.vocabulary.assembly import Assembler, told_once
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
from lifecycle.vocabulary.messages import Block, ReasoningBlock, TextBlock, ToolCallBlock

from .strategies import recorded, timed_chunks


def assembled(*chunks: Chunk) -> Assembler:
    assembler = Assembler()
    for chunk in chunks:
        assembler.add(chunk)
    return assembler


def say(text: str) -> TextBlock:
    return TextBlock(text=text)


def call(id: str, arguments: str = "") -> ToolCallBlock:
    return ToolCallBlock(id=id, name="f", arguments=arguments)


@pytest.mark.parametrize(
    ("chunks", "blocks"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([TextDelta(0, "a"), TextDelta(0, "b")], [say("ab")], id="deltas join"),
        pytest.param([TextDelta(1, "b"), TextDelta(0, "a")], [say("a"), say("b")], id="blocks in order of their index"),
        pytest.param([BlockStart(0, "text"), TextDelta(0, "a")], [say("a")], id="an announced block"),
        pytest.param([TextDelta(0, "a"), BlockEnd(0, say("whole"))], [say("whole")], id="an end wins over deltas"),
        pytest.param([BlockEnd(0, say("1")), BlockEnd(0, say("2"))], [say("1")], id="the first end wins"),
        pytest.param([BlockEnd(0, say("1")), TextDelta(0, "x")], [say("1")], id="stragglers are ignored"),
        pytest.param([TextDelta(0, "a"), ReasoningDelta(0, "x")], [say("a")], id="a delta of another kind is ignored"),
        pytest.param([ReasoningDelta(0, "hm")], [ReasoningBlock(text="hm")], id="reasoning"),
        pytest.param(
            [ToolCallDelta(0, "id", "f", "{"), ToolCallDelta(0, None, None, "}")], [call("id", "{}")], id="a call"
        ),
        pytest.param([ToolCallDelta(3, None, "f", "{}")], [call("call-3", "{}")], id="a call without an id"),
        pytest.param([BlockEnd(2, call("", "{}"))], [call("call-2", "{}")], id="a closed call without an id"),
        pytest.param([ToolCallDelta(0, "id", None, "{}")], [], id="a call without a name is none"),
        pytest.param([BlockStart(0, "hologram")], [], id="an unknown block that never ends is none"),
        pytest.param([BlockStart(0, "text")], [say("")], id="an announced block without text"),
    ],
)
def test_str_07_blocks_are_assembled(chunks: list[Chunk], blocks: list[Block]) -> None:
    assert list(assembled(*chunks, Finish()).result().blocks) == blocks


@pytest.mark.parametrize("end", [[], [Finish(FinishKind.UNKNOWN)]], ids=["no finish", "no reason"])
def test_str_07_a_call_that_was_never_closed_is_none_if_nobody_said_that_the_answer_is_whole(end: list[Chunk]) -> None:
    result = assembled(
        TextDelta(0, "a"), BlockEnd(1, call("whole", "{}")), ToolCallDelta(2, "half", "f"), *end
    ).result()

    assert result.blocks == (say("a"), call("whole", "{}"))


def test_str_07_a_missing_finish_counts_as_stop() -> None:
    assert assembled(TextDelta(0, "a")).result().finish == Finish(FinishKind.STOP)


@pytest.mark.parametrize(("replay", "kept"), [((1, 2), (1, 2)), ((1,), None), ((1, 2, 3), None), (None, None)])
def test_str_07_replay_state_is_kept_if_it_lines_up_with_the_blocks(
    replay: tuple[int, ...] | None, kept: tuple[int, ...] | None
) -> None:
    result = assembled(TextDelta(0, "a"), TextDelta(1, "b"), Finish(replay=replay)).result()

    assert result.replay == kept


@pytest.mark.parametrize("kind", [FinishKind.MAX_TOKENS, FinishKind.REFUSAL, FinishKind.CONTENT_FILTER])
def test_str_08_an_answer_cut_off_or_withheld_loses_every_call_and_its_replay_state(kind: FinishKind) -> None:
    result = assembled(
        TextDelta(0, "a"),
        BlockEnd(1, call("whole", "{}")),
        TextDelta(2, "b"),
        ToolCallDelta(3, "id", "f", "{trunc"),
        Finish(kind, replay=("r0", "r1", "r2", "r3")),
    ).result()

    assert result.blocks == (say("a"), say("b"))
    assert result.replay == ("r0", "r2")


def test_str_08_what_remains_may_be_nothing() -> None:
    assert assembled(ToolCallDelta(0, "i", "f"), Finish(FinishKind.MAX_TOKENS)).result().blocks == ()


@pytest.mark.parametrize(
    ("chunks", "visible"),
    [
        pytest.param([TextDelta(0, "par")], [say("par")], id="open text"),
        pytest.param([BlockEnd(0, say("whole"))], [say("whole")], id="closed text"),
        pytest.param([ReasoningDelta(0, "hm")], [ReasoningBlock(text="hm")], id="reasoning"),
        pytest.param([TextDelta(0, " \n")], [], id="blanks"),
        pytest.param([ToolCallDelta(0, "i", "f", "{}")], [], id="an open call"),
        pytest.param([BlockEnd(0, call("i", "{}"))], [], id="a closed call"),
        pytest.param([BlockStart(0, "hologram")], [], id="an unknown open block"),
        pytest.param([TextDelta(0, " "), TextDelta(1, "b")], [say("b")], id="a blank block beside a visible one"),
    ],
)
def test_set_06_the_visible_prefix_is_text_and_reasoning(chunks: list[Chunk], visible: list[Block]) -> None:
    assert list(assembled(*chunks).visible()) == visible


def test_set_06_usage_that_had_arrived_is_kept() -> None:
    usage = Usage(input_tokens=3)

    assert assembled(TextDelta(0, "a"), UsageReport(usage)).usage == usage


def test_a_call_that_is_told_twice_is_one_and_its_replay_with_it() -> None:
    blocks = say("so"), call("x", "1"), call("x", "1"), call("y", "1")

    assert told_once(blocks, ("a", "b", "c", "d")) == ((*blocks[:2], blocks[3]), ("a", "b", "d"))


def test_calls_that_share_an_id_are_told_apart_and_nothing_is_replayed_that_has_the_old_one() -> None:
    blocks = call("x", "1"), call("x-2"), call("x", "2"), call("x", "2"), call("x", "3")

    apart = call("x", "1"), call("x-2"), call("x-3", "2"), call("x-4", "3")
    assert told_once(blocks, ("a",) * 5) == (apart, None)


def test_an_answer_in_which_each_call_has_its_id_is_the_very_same() -> None:
    blocks, replay = (call("x"), say("so"), call("y")), ("a", "b", "c")

    assert told_once(blocks, replay) == (blocks, replay)
    assert told_once(blocks, replay)[0] is blocks


@given(timed_chunks)
def test_a_packed_stream_amounts_to_what_its_chunks_do_one_by_one(timed: list[tuple[Chunk, int]]) -> None:
    packed, one_by_one = Assembler(recorded(timed)), assembled(*(chunk for chunk, _ in timed))

    assert packed.result() == one_by_one.result()
    assert packed.visible() == one_by_one.visible()
