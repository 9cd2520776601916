"""Scripted models: an adapter in process that answers as it is told, one entry of a script a request.

Opens no connection and knows no clock. What a test wants to happen between two chunks, it makes happen by a
gate in the script.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from lifecycle.services.model import PreparedCall
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.chunks import (
    Chunk,
    Finish,
    FinishKind,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
)
from lifecycle.vocabulary.failures import Failure, FailureCode
from lifecycle.vocabulary.requests import CallConfig, Request, SystemUpdate
from lifecycle.vocabulary.values import JsonValue

from .gates import Gate

Beat: TypeAlias = Chunk | Gate | anyio.Event | Exception
"""One beat of a stream: a chunk is streamed, a gate or an event is waited for, an exception is raised."""

Call: TypeAlias = tuple[str, Mapping[str, object] | str] | tuple[str, Mapping[str, object] | str, str]
"""A tool call of a reply: name, arguments (an object, or the raw text of one), and an id if it matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of a model. What it holds is streamed in this order: reasoning, text, calls, usage, finish.

    Args:
        text: The answer; a sequence is streamed piece by piece.
        reasoning: Likewise, in a block of its own before the text.
        calls: The tools that the model asks for. A call without an id gets `call-R-N`: the N-th of request R.
        usage: Reported before the finish.
        finish: How it ends; `tool-calls` if there are any, `stop` if not, `error` if `failure` is given.
        error: The failure that goes with the finish.
        replay: Provider state, an entry a block.
    """

    text: str | Sequence[str] = ""
    reasoning: str | Sequence[str] = ""
    calls: Sequence[Call] = ()
    usage: Usage | None = None
    finish: FinishKind | None = None
    error: Failure | None = None
    replay: tuple[JsonValue, ...] | None = None

    @classmethod
    def failure(
        cls,
        code: str | FailureCode = FailureCode.SERVER,
        message: str = "",
        *,
        text: str | Sequence[str] = "",
        retryable: bool | None = None,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> Reply:
        """A call that fails in band with `code`, after it has streamed `text`. `retry_after` is in seconds."""
        name = str(code)
        made = Failure(
            message=message or f"the script fails this request with {name}",
            code=name,
            status=status,
            retryable=retryable,
            retry_after=retry_after,
        )
        return cls(text=text, error=made)

    @property
    def numbered(self) -> bool:
        """Whether its chunks depend on the number of the request."""
        return any(len(call) == 2 for call in self.calls)

    def chunks(self, request: int = 1) -> tuple[Chunk, ...]:
        """The chunks that it streams as the answer to the `request`-th request."""
        made: list[Chunk] = []
        at = 0
        for delta, said in ((ReasoningDelta, self.reasoning), (TextDelta, self.text)):
            pieces = ([said] if said else []) if isinstance(said, str) else said
            made += [delta(at, piece) for piece in pieces]
            at += bool(pieces)
        for n, (name, arguments, *id) in enumerate(self.calls, 1):
            raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
            made.append(ToolCallDelta(at, id[0] if id else f"call-{request}-{n}", name, raw))
            at += 1
        if self.usage is not None:
            made.append(UsageReport(self.usage))
        usual = FinishKind.TOOL_CALLS if self.calls else FinishKind.STOP
        kind = self.finish or (usual if self.error is None else FinishKind.ERROR)
        made.append(Finish(kind, self.error, self.replay))
        return tuple(made)

    def held(self, gate: Gate | anyio.Event, *, before: int = 0, request: int = 1) -> tuple[Beat, ...]:
        """Its chunks with `gate` before the chunk with index `before`; -1 is before the finish."""
        chunks = self.chunks(request)
        return (*chunks[:before], gate, *chunks[before:])


Line: TypeAlias = (
    Reply
    | Sequence[Beat]
    | Exception
    | Callable[[Request, CancelSignal], "AsyncIterator[Chunk] | Reply | Sequence[Beat]"]
)
"""One entry of a script.

A reply; a sequence of beats, streamed exactly as it stands (also without a finish); an exception, raised when the
stream is opened; or a function of the request that returns a reply, beats, or a stream of its own.
"""


class ScriptedModel:
    """A model that follows a script, one line a request, in the order of the requests.

        model = ScriptedModel(
            Reply(calls=[("read_file", {"path": "README.md"})]),
            Reply.failure("OVERLOADED", retryable=True),
            Reply(text=["It is ", "short."]),
        )

    A request beyond the script's end fails with the code SCRIPT_EXHAUSTED, which is not retryable, and says how many
    lines there were; `otherwise` is said instead if it is given.

    Args:
        script: The lines.
        otherwise: What every request after the last line gets.
        preparing: A second script, one entry a preparation: None lets it pass, a gate or an event makes it wait, an
            exception is raised. Preparations after its end pass.
        provider, model: The name it is chosen by, and the model that it serves.
        defaults: What it fills into a configuration that leaves these fields open; logged as its defaults.
        context_window, system_update, retry_policy: As a prepared call says them.

    The attributes of these names may be set at any time and hold from the next preparation on.
    """

    def __init__(
        self,
        *script: Line,
        otherwise: Line | None = None,
        preparing: Sequence[Gate | anyio.Event | Exception | None] = (),
        provider: str = "scripted",
        model: str | None = "script-1",
        defaults: Mapping[str, object] | None = None,
        context_window: int | None = None,
        system_update: SystemUpdate = "rewrite",
        retry_policy: Any = None,
    ) -> None:
        self.script: list[Line] = list(script)
        """The lines; more may be appended while it runs."""
        self.otherwise = otherwise
        self.preparing = list(preparing)
        self.provider = provider
        self.model = model
        self.defaults = dict(defaults or {})
        self.context_window = context_window
        self.system_update: SystemUpdate = system_update
        self.retry_policy = retry_policy
        self.requests: list[Request] = []
        """Every request whose stream was opened, in order."""
        self.configs: list[CallConfig] = []
        """Every configuration that a call was prepared for, as it was asked for."""
        self.streaming = 0
        """How many streams have begun and are not closed yet; 0 when nothing leaks."""
        self._usual: tuple[Line | None, tuple[Chunk, ...]] = (None, ())

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.provider}/{self.model}: {len(self.requests)} of {len(self.script)} said>"

    @property
    def prepared(self) -> int:
        """How many calls were prepared, or refused."""
        return len(self.configs)

    @property
    def exhausted(self) -> bool:
        """Whether every line was said."""
        return len(self.requests) >= len(self.script)

    def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall | Awaitable[PreparedCall]:
        """Part of the `Model` protocol. Waits only if the preparing script says so."""
        self.configs.append(config)
        n = len(self.configs) - 1
        step = self.preparing[n] if n < len(self.preparing) else None
        if isinstance(step, Exception):
            raise step
        return self._prepared(config) if step is None else self._prepared_after(step, config)

    def _prepared(self, config: CallConfig) -> PreparedCall:
        filled: dict[str, object] = {}
        if self.defaults:
            filled = {name: value for name, value in self.defaults.items() if getattr(config, name) is None}
            config = config.model_copy(update=filled)
        return PreparedCall(
            config, self._open, tuple(filled), self.context_window, self.system_update, self.retry_policy
        )

    async def _prepared_after(self, gate: Gate | anyio.Event, config: CallConfig) -> PreparedCall:
        await _pass(gate)
        return self._prepared(config)

    def _open(self, request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        self.requests.append(request)
        n = len(self.requests)
        line = self.script[n - 1] if n <= len(self.script) else self.otherwise
        if line is None:
            line = self._exhausted(request)
        if isinstance(line, Exception):
            raise line
        if callable(line):
            said = line(request, signal)
            if isinstance(said, AsyncIterator):
                return said
            line = said
        return self._stream(self._chunks(line, n) if isinstance(line, Reply) else line)

    def _chunks(self, reply: Reply, n: int) -> tuple[Chunk, ...]:
        """The chunks of `reply`, made once if it is said again and again."""
        if self._usual[0] is reply:
            return self._usual[1]
        chunks = reply.chunks(n)
        if not reply.numbered:
            self._usual = (reply, chunks)
        return chunks

    async def _stream(self, beats: Sequence[Beat]) -> AsyncGenerator[Chunk]:
        self.streaming += 1
        try:
            for beat in beats:
                if isinstance(beat, tuple):  # every chunk is one; asked first because there are thousands
                    yield beat
                elif isinstance(beat, Exception):
                    raise beat
                else:
                    await _pass(beat)
        finally:
            self.streaming -= 1

    def _exhausted(self, request: Request) -> Reply:
        return Reply.failure(
            "SCRIPT_EXHAUSTED",
            f"the script of {self.provider!r} has {len(self.script)} lines, and this is request {len(self.requests)} "
            f"(turn {request.turn}, step {request.step}, attempt {request.attempt}); "
            "append a line to its script, or give it an `otherwise`",
            retryable=False,
        )


async def _pass(gate: Gate | anyio.Event) -> None:
    await (gate.go() if isinstance(gate, Gate) else gate.wait())
