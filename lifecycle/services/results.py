"""What a tool's body returned, as the outcome of its call."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import from_json, to_jsonable_python

from lifecycle.errors import NotJsonError
from lifecycle.vocabulary.events import ToolFault
from lifecycle.vocabulary.failures import render_chain
from lifecycle.vocabulary.messages import Content, ImageBlock, TextBlock, text
from lifecycle.vocabulary.values import FrozenDict, JsonValue, Value, freeze, mend

from .callables import close
from .points import ToolOutcome

_encoded = json.JSONEncoder(ensure_ascii=False).encode  # once: `json.dumps` makes an encoder for each call


def error_outcome(code: str, message: str, name: str | None = None) -> ToolOutcome:
    """An error that tells the model `message`; `name` is the exception's."""
    return ToolOutcome(text(mend(message)), error=ToolFault(code=mend(code), name=None if name is None else mend(name)))


def outcome_of(returned: object, tool: str) -> ToolOutcome:
    """The outcome that a returned value stands for.

    A string is the text, None is an empty one; content blocks are the content; a ToolOutcome is itself. A pydantic
    model, a dataclass or JSON is told as JSON text, and kept frozen as the value. Anything else is the error
    INVALID_RESULT, which names the tool and the type. Lone surrogates in text become U+FFFD.
    """
    if returned is None:
        return ToolOutcome(text(""))
    if isinstance(returned, str):
        return ToolOutcome(text(mend(str.__str__(returned))))
    if isinstance(returned, ToolOutcome):
        content, fault = _content(returned.content), cast("object", returned.error)
        if content is None or not isinstance(fault, ToolFault | None):
            return _invalid(returned, tool, "a ToolOutcome whose content is no tuple of text and image blocks")
        try:
            value = freeze(returned.value)
        except NotJsonError as wrong:
            return _invalid(returned, tool, f"a ToolOutcome whose value {wrong.reason}")
        return dataclasses.replace(returned, content=content, value=value, error=fault and _mended(fault))
    number = isinstance(returned, (int, float))
    content = None if number else _content((returned,) if isinstance(returned, (TextBlock, ImageBlock)) else returned)
    if content:
        return ToolOutcome(content)
    try:
        value = freeze(returned if number else plain(returned))
    except NotJsonError as wrong:
        return _invalid(returned, tool, f"{type(returned).__name__}: {wrong.path or 'it'} {wrong.reason}")
    except Exception as wrong:  # a serializer of the value's own
        why = render_chain(wrong)
        return _invalid(returned, tool, f"{type(returned).__name__}, which could not be told as JSON: {why}")
    told = str(value) if type(value) is int else _encoded(value)  # the same, at a tenth of the price
    return ToolOutcome(text(told), value=value)


def _mended(fault: ToolFault) -> ToolFault:
    return ToolFault(code=mend(fault.code), name=None if fault.name is None else mend(fault.name))


def _invalid(returned: object, tool: str, what: str) -> ToolOutcome:
    close(returned)
    return error_outcome(
        "INVALID_RESULT",
        f"the tool {tool} returned {what}; it may return text, content blocks, JSON, a dataclass or a model",
    )


def _content(blocks: object) -> Content | None:
    """`blocks`, mended, if they are content."""
    if not isinstance(blocks, (tuple, list)):
        return None
    mended: list[TextBlock | ImageBlock] = []
    for block in cast("tuple[object, ...]", blocks):
        if isinstance(block, TextBlock):
            mended.append(block if block.text.isascii() else TextBlock(text=mend(block.text)))
        elif isinstance(block, ImageBlock):
            mended.append(block)
        else:
            return None
    return tuple(mended)


def plain(value: object) -> object:
    """`value` with models and dataclasses in it as plain JSON, and its text mended. The rest is as it was."""
    if isinstance(value, str):
        return mend(str.__str__(value))
    if isinstance(value, (dict, Mapping)) and not isinstance(value, FrozenDict):
        items = cast("Mapping[object, object]", value).items()
        return {plain(key) if isinstance(key, str) else key: plain(item) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("list[object]", value)]
    if isinstance(value, Value):
        return plain(json.loads(value.model_dump_json()))
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(to_jsonable_python(value))
    return value


def shortened(content: Content, most: int) -> Content:
    """`content` if it has at most `most` characters of text; else with a mark in place of what is too much.

    It is left out between the first three quarters and the last one: what went wrong often stands at the end.
    """
    total = sum(len(block.text) for block in content if isinstance(block, TextBlock))
    if total <= most:
        return content
    head, tail = most - most // 4, total - most // 4
    mark = f"\n[... {tail - head:,} of {total:,} characters were left out here ...]\n"
    kept: list[TextBlock | ImageBlock] = []
    at = 0
    for block in content:
        if isinstance(block, TextBlock):
            start, at = at, at + len(block.text)
            if start < tail and at > head:
                before, after = block.text[: max(0, head - start)], block.text[max(0, tail - start) :]
                block = TextBlock(text=before + (mark if start <= head else "") + after)
                if not block.text:
                    continue
        kept.append(block)
    return tuple(kept)


def _parsed(raw: str) -> object:
    """What JSON text spells. The quick parser gives up on lone surrogates, and on what is nested deeply and sound."""
    try:
        return from_json(raw)
    except (ValueError, TypeError):
        return json.loads(raw)


def parse_arguments(raw: str) -> FrozenDict | str:
    """The arguments that a model wrote: a frozen JSON object, an empty one for nothing; else `raw` itself (TLS-02).

    Lone surrogates that JSON escapes spell become U+FFFD. What is JSON but no object, or beyond lossless JSON
    (NaN, integers beyond 64 bit), is passed on raw as well.
    """
    if not raw or raw.isspace():
        return FrozenDict()
    try:
        loaded = _parsed(raw)
        try:
            parsed: JsonValue = freeze(loaded)
        except NotJsonError:
            parsed = freeze(plain(loaded))  # it may only be its text that wants mending
    except (ValueError, NotJsonError, RecursionError):
        return raw
    return parsed if isinstance(parsed, FrozenDict) else raw


def thaw(value: object) -> Any:
    """Frozen JSON as the dicts and lists that a function expects."""
    if isinstance(value, FrozenDict):
        return {name: thaw(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return list(map(thaw, cast("tuple[object, ...]", value)))
    return value
