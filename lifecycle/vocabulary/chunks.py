"""What a model streams: chunks, usage and the ways to finish.

Chunks are named tuples because thousands of them pass in one answer. `extra` keeps fields that we do not know,
so that a recorded stream gives back exactly what came (SET-05). `at` is the index of the block, `index` on the wire
(a tuple has a method of that name).
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from pydantic import TypeAdapter

from lifecycle.errors import NotJsonError

from .failures import Failure
from .messages import Block
from .values import FrozenDict, JsonValue, Value, freeze_object, mend


class Usage(Value, frozen=True):
    """Tokens of one answer, by the provider's count. The optional ones are parts of the others; None is not known."""

    input_tokens: int = 0
    """All that was read: what came out of the provider's cache, and what was put into it, included on every wire."""
    output_tokens: int = 0
    """All that was written, reasoning included."""
    cache_read_tokens: int | None = None
    """Of the input: what the provider had in its cache."""
    cache_write_tokens: int | None = None
    """Of the input: what it put there."""
    reasoning_tokens: int | None = None
    """Of the output: what was thought."""


class FinishKind(StrEnum):
    STOP = "stop"
    TOOL_CALLS = "tool-calls"
    MAX_TOKENS = "max-tokens"
    CONTENT_FILTER = "content-filter"
    REFUSAL = "refusal"
    PAUSE = "pause"
    """The provider wants to go on in another request (DECISIONS of `pause`: at most eight in a row)."""
    UNKNOWN = "unknown"
    """A terminal mark without a reason; treated as stop."""
    ERROR = "error"
    ABORTED = "aborted"

    @property
    def failed(self) -> bool:
        """Whether the call ended without an answer."""
        return self is FinishKind.ERROR or self is FinishKind.ABORTED


class BlockStart(NamedTuple):
    at: int
    block_type: str
    extra: FrozenDict | None = None
    type: str = "block-start"


class TextDelta(NamedTuple):
    at: int
    text: str
    extra: FrozenDict | None = None
    type: str = "text-delta"


class ReasoningDelta(NamedTuple):
    at: int
    text: str
    extra: FrozenDict | None = None
    type: str = "reasoning-delta"


class ToolCallDelta(NamedTuple):
    at: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    extra: FrozenDict | None = None
    type: str = "tool-call-delta"


class BlockEnd(NamedTuple):
    """The block as the provider closed it; it wins over the deltas seen before."""

    at: int
    block: Block
    extra: FrozenDict | None = None
    type: str = "block-end"


class UsageReport(NamedTuple):
    """The count so far. `extra` has `input` where the provider's own number of input tokens leaves cached ones out."""

    usage: Usage
    extra: FrozenDict | None = None
    type: str = "usage"


class Finish(NamedTuple):
    """The stream's end. `failure` goes with `error` and `aborted`; `replay` is provider state, an entry a block."""

    kind: FinishKind = FinishKind.STOP
    failure: Failure | None = None
    replay: tuple[JsonValue, ...] | None = None
    extra: FrozenDict | None = None
    type: str = "finish"


Chunk: TypeAlias = BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageReport | Finish


@cache
def _blocks() -> TypeAdapter[Block]:
    """What reads blocks; made when the first one is read."""
    return TypeAdapter(Block)


def failed(failure: Failure) -> Finish:
    """The finish of a call that failed."""
    return Finish(FinishKind.ERROR, failure)


def mended(chunk: Chunk) -> Chunk:
    """`chunk` with lone surrogates in its text replaced by U+FFFD."""
    match chunk:
        case TextDelta() | ReasoningDelta():
            return chunk if chunk.text.isascii() else chunk._replace(text=mend(chunk.text))
        case ToolCallDelta(id=id, name=name, arguments=arguments):
            if arguments.isascii() and (name is None or name.isascii()) and (id is None or id.isascii()):
                return chunk
            return chunk._replace(
                arguments=mend(arguments),
                name=None if name is None else mend(name),
                id=None if id is None else mend(id),
            )
        case BlockStart(block_type=kind) if not kind.isascii():
            return chunk._replace(block_type=mend(kind))
        case BlockEnd(block=block):
            whole = _mended(block)
            return chunk if whole is block else chunk._replace(block=whole)
        case _:
            return chunk


def _mended(block: Block) -> Block:
    """`block` with every field of text mended; the very block if none needs it."""
    said = {one.name: getattr(block, one.name) for one in fields(block)}
    texts = {name: value for name, value in said.items() if isinstance(value, str) and not value.isascii()}
    told = {name: mend(value) for name, value in texts.items()}
    return block if told == texts else block.model_copy(update=told)


def chunk_to_json(chunk: Chunk) -> dict[str, Any]:
    """The chunk as a JSON object, spelled as on the wire."""
    made: dict[str, Any] = {"type": chunk.type}
    match chunk:
        case BlockStart():
            made |= {"index": chunk.at, "blockType": chunk.block_type}
        case TextDelta() | ReasoningDelta():
            made |= {"index": chunk.at, "text": chunk.text}
        case ToolCallDelta():
            made |= {"index": chunk.at, "argumentsDelta": chunk.arguments}
            made |= {} if chunk.id is None else {"id": chunk.id}
            made |= {} if chunk.name is None else {"name": chunk.name}
        case BlockEnd():
            made |= {"index": chunk.at, "block": chunk.block.to_json()}
        case UsageReport():
            made |= {"usage": chunk.usage.to_json()}
        case Finish():
            error = {} if chunk.failure is None else {"error": chunk.failure.to_json()}
            made |= {"reason": {"kind": chunk.kind.value, **error}}
            made |= {} if chunk.replay is None else {"replay": chunk.replay}
    return made | (chunk.extra or {})


def chunk_from_json(value: object) -> Chunk:
    """The chunk that a JSON object spells; fields that we do not know are kept in `extra`.

    Raises:
        NotJsonError: if it is no chunk.
    """
    rest: dict[str, Any] = dict(freeze_object(value, "chunk"))
    kind = rest.pop("type", None)
    try:
        made = _chunk(kind, rest)
    except (KeyError, ValueError, TypeError, AttributeError) as wrong:
        raise NotJsonError("chunk", str(kind), f"is no chunk of the stream: {wrong!r}") from wrong
    return made._replace(extra=FrozenDict(rest)) if rest else made


def _chunk(kind: object, rest: dict[str, Any]) -> Chunk:
    """Build the chunk, taking out of `rest` what belongs to it."""
    match kind:
        case "block-start":
            return BlockStart(rest.pop("index"), rest.pop("blockType"))
        case "text-delta":
            return TextDelta(rest.pop("index"), rest.pop("text"))
        case "reasoning-delta":
            return ReasoningDelta(rest.pop("index"), rest.pop("text"))
        case "tool-call-delta":
            return ToolCallDelta(
                rest.pop("index"), rest.pop("id", None), rest.pop("name", None), rest.pop("argumentsDelta", "")
            )
        case "block-end":
            return BlockEnd(rest.pop("index"), _blocks().validate_python(rest.pop("block")))
        case "usage":
            return UsageReport(Usage.model_validate(rest.pop("usage")))
        case "finish":
            reason = dict(rest.pop("reason"))
            error = reason.pop("error", None)
            finish = Finish(
                FinishKind(reason.pop("kind")),
                None if error is None else Failure.model_validate(error),
                rest.pop("replay", None),
            )
            return finish
        case _:
            raise ValueError(f"unknown type {kind!r}")
