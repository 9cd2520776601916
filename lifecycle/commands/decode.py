"""`lifecycle decode WIRE FILE...`: what an adapter makes of recorded responses."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio

from lifecycle.services.results import parse_arguments, thaw
from lifecycle.vocabulary.assembly import Assembler
from lifecycle.vocabulary.chunks import BlockEnd, Chunk, Finish, FinishKind, ToolCallDelta, UsageReport
from lifecycle.vocabulary.failures import Failure, FailureCode
from lifecycle.vocabulary.messages import ReasoningBlock, TextBlock, ToolCallBlock
from lifecycle.vocabulary.values import EMPTY

from .calls import CallError, plugin
from .jsonlines import dump
from .output import Output, own_output, printable, shorten

LONGEST_WAIT_SECONDS = 60
"""A server that asks for a longer pause is not asked again by itself."""

_FINISHES: Mapping[FinishKind, str] = {
    FinishKind.STOP: "stop",
    FinishKind.TOOL_CALLS: "tool_calls",
    FinishKind.MAX_TOKENS: "length",
    FinishKind.CONTENT_FILTER: "content_filter",
    FinishKind.REFUSAL: "refusal",
    FinishKind.PAUSE: "pause",
    FinishKind.UNKNOWN: "unknown",
}
_CUT = frozenset({FailureCode.TRANSPORT, FailureCode.TIMEOUT})
_CALLLESS = frozenset({FinishKind.MAX_TOKENS, FinishKind.CONTENT_FILTER, FinishKind.REFUSAL})


class _Decoded(Protocol):
    @property
    def chunks(self) -> list[Chunk]: ...
    @property
    def sent_back(self) -> Any: ...


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "decode",
        help="show what an adapter makes of recorded responses",
        description="Show what an adapter makes of recorded responses, for bug reports. `lifecycle run --record DIR` "
        "makes such files, without keys. Nobody is asked and nothing runs.",
        epilog="With --json a line for each file: file, outcome (complete, truncated, empty, error), text, reasoning, "
        "tool_calls, finish, usage, blocks (what goes back to the provider), error. "
        "Exit code: 0 if every file was decoded, whatever it says; 2 if the call was wrong or a file cannot be read.",
        allow_abbrev=False,
    )
    parser.add_argument("wire", metavar="WIRE", help="openai-chat, openai-responses or anthropic-messages")
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="a raw response, head and body, if its name ends in .http; else the body of a stream",
    )
    parser.add_argument("--json", action="store_true", help="an object a line instead")
    parser.set_defaults(perform=perform, name="lifecycle decode")


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    wire: Any = plugin("lifecycle.wires", args.wire)
    if not hasattr(wire, "decode"):
        raise CallError(f"the wire {args.wire} cannot decode files: it has no `decode`")
    with own_output() as out:
        anyio.run(partial(_decode, wire, args.files, out, as_json=args.json))
    return 0


async def _decode(wire: Any, files: Sequence[Path], out: Output, *, as_json: bool) -> None:
    for path in files:
        raw = path.suffix.lower() == ".http"
        try:
            decoded: _Decoded = await wire.decode(await anyio.Path(path).read_bytes(), raw=raw)
        except OSError as wrong:
            raise CallError(f"the file {path} cannot be read: {wrong.strerror}") from wrong
        except ValueError as wrong:
            raise CallError(f"{path} is no HTTP response ({wrong}); a body alone is named .sse") from wrong
        told = account(decoded.chunks, decoded.sent_back)
        out.write((dump({"file": str(path), **told}) if as_json else printable(_page(str(path), told))) + "\n")


def account(chunks: Iterable[Chunk], sent_back: Any = None) -> dict[str, Any]:
    """What an answer amounts to, as plain data.

    Returns:
        `outcome`: `complete`, `truncated` (no mark of its end came), `empty` or `error`;
        `text` and `reasoning`, as far as they were told;
        `tool_calls`: of a complete answer, each with `id`, `name`, `arguments` (an object or None), `arguments_raw` (as
        they were written) and whether it is `runnable`;
        `finish` and `finish_raw`: why it ended, in our words and, where they say more, in the server's;
        `usage`: `input` and `output` tokens by the server's own count, or None;
        `blocks`: what goes back to the provider with the next request, or None;
        `error`: `class`, `retry`, `after_s`, `message`, `status`, `request_id`, or None.
    """
    assembler = Assembler()
    calls: dict[int, ToolCallBlock] = {}
    wrote: dict[int, str] = {}
    usage: dict[str, Any] | None = None
    for chunk in chunks:
        assembler.add(chunk)
        if isinstance(chunk, UsageReport):
            said = (chunk.extra or EMPTY).get("input", chunk.usage.input_tokens)
            usage = {"input": said, "output": chunk.usage.output_tokens}
        elif isinstance(chunk, BlockEnd) and isinstance(chunk.block, ToolCallBlock):
            calls.setdefault(chunk.at, chunk.block)
        elif isinstance(chunk, ToolCallDelta):
            wrote[chunk.at] = wrote.get(chunk.at, "") + chunk.arguments
    made = assembler.result()
    finish, extra = made.finish, made.finish.extra or EMPTY
    outcome = _outcome(finish)
    runs = finish.kind not in _CALLLESS
    said = {"complete": _FINISHES.get(finish.kind), "empty": _FINISHES.get(FinishKind(extra.get("instead", "unknown")))}
    return {
        "outcome": outcome,
        "text": "".join(block.text for block in made.blocks if isinstance(block, TextBlock)),
        "reasoning": "".join(block.text for block in made.blocks if isinstance(block, ReasoningBlock)),
        "tool_calls": [_call(calls[at], wrote.get(at, ""), runs) for at in sorted(calls)]
        if outcome == "complete"
        else [],
        "finish": said.get(outcome),
        "finish_raw": extra.get("said"),
        "usage": usage,
        "blocks": sent_back,
        "error": finish.failure and _error(finish.failure),
    }


def _outcome(finish: Finish) -> str:
    if finish.failure is None:
        return "complete"
    if finish.failure.code == FailureCode.EMPTY_RESPONSE:
        return "empty"
    return "truncated" if finish.failure.code in _CUT else "error"


def _call(call: ToolCallBlock, wrote: str, runs: bool) -> dict[str, Any]:
    said = parse_arguments(call.arguments)
    whole = not isinstance(said, str)
    return {
        "id": call.id,
        "name": call.name,
        "arguments": thaw(said) if whole else None,
        "arguments_raw": wrote or call.arguments,
        "runnable": runs and whole and bool(call.name),
    }


def _error(failure: Failure) -> dict[str, Any]:
    known = failure.code in FailureCode.__members__
    code = "transport" if failure.code == FailureCode.TIMEOUT else failure.code.lower()
    return {
        "class": code if known else failure.code,
        "retry": bool(failure.retryable) and (failure.retry_after or 0) <= LONGEST_WAIT_SECONDS,
        "after_s": failure.retry_after,
        "message": failure.message,
        "status": failure.status,
        "request_id": failure.request_id,
    }


def _page(file: str, told: dict[str, Any]) -> str:
    """The same for people."""
    how = f", {told['finish']}" if told["finish"] else ""
    how += f" ({told['finish_raw']})" if told["finish_raw"] else ""
    lines = [f"{file}: {told['outcome']}{how}"]
    lines += [f"  {name}: {shorten(told[name], 300)}" for name in ("reasoning", "text") if told[name]]
    for call in told["tool_calls"]:
        runs = "" if call["runnable"] else "  (does not run)"
        lines.append(f"  call {call['id']}: {call['name']} {shorten(call['arguments_raw'], 200)}{runs}")
    if told["usage"]:
        lines.append(f"  usage: {told['usage']['input']} in, {told['usage']['output']} out")
    error = told["error"]
    if error:
        after = f" after {error['after_s']:g} s" if error["after_s"] is not None else ""
        lines.append(f"  {error['class']}, {f'may be sent again{after}' if error['retry'] else 'not sent again'}")
        lines.append(f"  {error['message']}")
    return "\n".join(lines)
