"""Shortening: one attempt to make one conversation lighter, by pruning and by a summary, with the records of both.

Says nothing of when that is asked for. What it cannot do, it leaves as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from lifecycle.errors import CompactionError, LifecycleError
from lifecycle.services.model import Models
from lifecycle.services.points import AgentHandle
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.events import (
    CompactionEnd,
    CompactionPrune,
    CompactionStart,
    CompactionSummary,
    Event,
    Replace,
    ToolResultEvent,
    UserMessageEvent,
)
from lifecycle.vocabulary.failures import render_chain
from lifecycle.vocabulary.messages import ToolResultBlock, UserMessage, new_id, text, text_of, user_message
from lifecycle.vocabulary.requests import ModelSelection
from lifecycle.vocabulary.values import FrozenDict

from .cutting import older_part
from .gauge import Gauge
from .summarising import Summary, summarised

if TYPE_CHECKING:
    from .compaction import CompactionOptions

Trigger: TypeAlias = Literal["pressure", "overflow", "manual"]

COMPACTION = "compaction"
"""The `kind` of the source of a message that took the place of older ones."""
_WORTH = 0.1
"""Under mere pressure, an older part that is less of the window than this is not worth a request."""


class Shortening:
    """One attempt to make one conversation shorter."""

    def __init__(
        self,
        options: CompactionOptions,
        agent: AgentHandle,
        gauge: Gauge,
        signal: CancelSignal,
        trigger: Trigger,
        turn: int | None,
    ) -> None:
        self._options, self._gauge, self._signal = options, gauge, signal
        self._agent, self._session = agent, agent.session
        self._trigger: Trigger = trigger
        self._turn = turn

    async def relieve(self, window: int, most: int) -> None:
        """Bring the conversation down to `most` tokens: prune first, then summarise (CMP-04).

        Raises as `summarise`.
        """
        self._check_free()
        if self._options.prune_beyond is not None and self._turn is not None:
            self._prune(window, self._turn, self._options.prune_beyond)
            self._gauge.follow(self._session)
            if self._gauge.tokens <= most:
                return
        await self.summarise(window)

    def _check_free(self) -> None:
        if self._gauge.bracket is not None:
            raise CompactionError(f"compaction {self._gauge.bracket!r} of session {self._session.id!r} still goes on")

    def _older(self, window: int) -> Sequence[Event]:
        """What may give way. Less is kept where otherwise nothing could, except under mere pressure."""
        nodes = tuple(self._session.surface.nodes.values())
        keep = int(self._options.keep * window / self._ratio(nodes))
        older = older_part(nodes, keep, self._gauge.weight)
        while not older and keep and self._trigger != "pressure":
            keep //= 2
            older = older_part(nodes, keep, self._gauge.weight)
        return older

    def _ratio(self, nodes: Iterable[Event]) -> float:
        """How much more the conversation weighs than is estimated: tools, and a provider that counts otherwise."""
        return max(self._gauge.tokens / max(self._gauge.weigh(nodes), 1), 1.0)

    # -- pruning -------------------------------------------------------------------------------------------------

    def _prune(self, window: int, turn: int, beyond: int) -> None:
        for node in self._older(window):
            data = node.data
            weight = self._gauge.weight(node)
            if not isinstance(data, ToolResultEvent) or weight <= beyond:
                continue
            pruned = data.model_copy(update={"message": _stub(data.message, weight), "value": None})
            if self._options.estimate(pruned.message) >= weight:
                continue
            (call,) = (block.tool_call_id for block in data.message.content if isinstance(block, ToolResultBlock))
            self._session.append(
                CompactionPrune(turn=turn, call_id=call, shadowed_seq=node.seq, shadowed_token_count=weight)
            )
            self._session.append(pruned, surface=Replace(start=node.seq, end=node.seq), sources=[node.seq])

    # -- summarising ---------------------------------------------------------------------------------------------

    async def summarise(self, window: int) -> tuple[int, str]:
        """Let a summary take the place of the older part; returns how many nodes that were, and the summary.

        Raises:
            CompactionError: if nothing may give way, if another compaction goes on, or if the summary model fails,
                says nothing, or says as much as it was given; nothing has given way then.
            StoreError: if the log cannot be kept, so that nobody may be asked; likewise.
            TurnCancelledError: once the signal has fired; likewise.
            Exception: whatever else comes of the model or of a veto; likewise.
        """
        self._check_free()
        older = self._older(window)
        weight = self._gauge.weigh(older)
        worthless = (
            self._trigger == "pressure" and weight * self._ratio(self._session.surface.nodes.values()) < _WORTH * window
        )
        if not older or worthless or all(map(_is_summary, older)):
            raise CompactionError(
                f"nothing of the conversation can give way: all of its {self._gauge.tokens} tokens have to stay, so it "
                "cannot be made to fit"
            )
        id = new_id()
        error: str | None = "it was interrupted"
        start = self._session.append(CompactionStart(compaction_id=id, trigger=self._trigger, turn=self._turn))
        try:
            options = self._options
            most = min(options.summary_tokens, max(int((options.at - options.keep) * window / 2), 1))
            kept = self._session.barrier()  # what is asked is in the log before anybody is asked (PST-03)
            if kept is not None:
                await kept
            self._signal.raise_if_fired()
            models, route = self._writer()
            summary = await summarised(older, models, route, most, options.instruction, self._signal)
            self._replace(id, start, older, summary)
            error = None
            return len(older), summary.text
        except LifecycleError as wrong:
            error = str(wrong)
            raise
        except Exception as wrong:
            error = render_chain(wrong)
            raise
        finally:
            self._session.append(CompactionEnd(compaction_id=id, turn=self._turn, error=error))

    def _writer(self) -> tuple[Models, ModelSelection]:
        """Who writes the summary: the model of the options, or else the agent's own, on the route of the open step."""
        own = self._options.model
        if own is not None:
            return (models := Models(own)), models.selection
        return self._agent.models, self._agent.step or self._agent.models.selection

    def _replace(self, id: str, start: Event, older: Sequence[Event], summary: Summary) -> None:
        """Put the summary where the older part is, if that is still there as it was (CMP-06)."""
        session, seqs = self._session, tuple(node.seq for node in older)
        standing = tuple(session.surface.nodes)
        place = standing.index(seqs[0]) if seqs[0] in standing else 0
        if standing[place : place + len(seqs)] != seqs:
            raise CompactionError("the conversation has changed while its summary was written; nothing was replaced")
        weight = self._gauge.weigh(older)
        message = self._message(id, older, summary, weight)
        after = self._options.estimate(message)
        if after >= weight:
            raise CompactionError(
                f"the summary is no shorter than what it was made of: {after} tokens instead of {weight}; nothing was "
                "replaced"
            )
        told = CompactionSummary(
            compaction_id=id,
            summary=text(summary.text),
            shadowed_seqs=seqs,
            shadowed_token_count=weight,
            provider=summary.provider,
            model=summary.model,
            usage=summary.usage,
        )
        made = session.append(told)
        session.append(
            UserMessageEvent(message=message),
            surface=Replace(start=seqs[0], end=seqs[-1]),
            sources=(start.seq, made.seq, *seqs),
        )

    def _message(self, id: str, older: Sequence[Event], summary: Summary, weight: int) -> UserMessage:
        """What takes the place of the older part, with quotations as far as there is room for them."""
        room = min(self._options.quote_tokens, weight // 4)
        quoted: list[str] = []
        for node in reversed(older):
            if isinstance(node.data, UserMessageEvent) and node.data.message.source.get("kind") == "user":
                room -= self._options.estimate(node.data.message)
                if room < 0:
                    break
                quoted.insert(0, text_of(node.data.message))
        parts = [_ABOUT, f"<notes>\n{summary.text}\n</notes>"]
        if quoted:
            parts += ["Word by word, the person said there:", *(f"<said>\n{said}\n</said>" for said in quoted)]
        return user_message("\n\n".join(parts), source=FrozenDict(kind=COMPACTION, compactionId=id))


_ABOUT = (
    "The older part of this conversation was replaced by these notes on it. Take them as known, do not repeat them, and"
    " go on with what follows."
)


def _is_summary(node: Event) -> bool:
    return isinstance(node.data, UserMessageEvent) and node.data.message.source.get("kind") == COMPACTION


def _stub(message: UserMessage, weight: int) -> UserMessage:
    """The same result with a note in the place of what it says."""
    note = text(f"[This result of about {weight} tokens was taken out to save room. Call the tool again to see it.]")
    content = tuple(
        block.model_copy(update={"content": note}) if isinstance(block, ToolResultBlock) else block
        for block in message.content
    )
    return message.model_copy(update={"content": content, "id": new_id()})
