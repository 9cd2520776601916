"""The abstract runs are what the real agent does: random ones, made once more with hooks that wait to be told.

Every hook point waits, and does what the abstract run says of it; the host acts when everything waits; listeners,
observers and vetoes act when the abstract run lets them. What happened is then compared, records and live events in
one order.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from lifecycle import Agent, AgentOptions, Hooks, tool
from lifecycle.proof.happenings import PROPOSALS, Happening
from lifecycle.proof.outside import APPENDED, NOBODY, Move, Play
from lifecycle.proof.places import AFTER, BEFORE
from lifecycle.proof.world import Bounds, Scene
from lifecycle.services.points import Ask, Deny, Enter, Mode, Reject, Retry, ToolOutcome
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary.chunks import Chunk, FinishKind
from lifecycle.vocabulary.events import Event
from lifecycle.vocabulary.failures import DISPOSED_CANCEL, PARENT_CANCEL, USER_CANCEL, CancelCause
from lifecycle.vocabulary.messages import ToolCallBlock, text, user_message

pytestmark = pytest.mark.anyio

BOUNDS = Bounds(odd=3, crashes=False, causes=("user", "parent", "disposed"))
UNPLAYED = (
    "the host leaves", "a maintenance task", "prepareCall raises", "is cut, with something to see", "defers",
    "a grace period ends",
)  # fmt: skip
"""What these hooks cannot do."""
BY_ITSELF = ("goes on", "begins", "prepareCall returns")
"""What the real agent does unasked."""

ASKED = (
    *PROPOSALS, "system-prompt/assemble", "agent/request", "llm/stream", "agent/request-error", "agent/turn-stopping",
    "tools/pre-execute", "tools/guard", "tools/execute", "tools/post-execute",
)  # fmt: skip
UNREAL = ("system/message", "request/header")
"""Records that the real agent need not make."""
TOLD = (
    *ASKED, "approve", "approval/asked", "approval/decided",
    "agent/inbox/spliced", "agent/inbox/inserted", "agent/inbox/claimed", "agent/inbox/discarded",
    "agent/status", "turn/start", "turn/end", "step/start", "step/end", "user/message", "assistant/message",
    "assistant/attempt",
    "agent/assistant-stream start", "agent/assistant-stream end", "agent/error", "tool/call", "tool/result",
    "tools/result",
)  # fmt: skip


# -- the abstract run -------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """One move of an abstract run. `at` is what was told or is about to be appended when somebody may act on it."""

    move: Move
    at: str
    depth: int
    """How many arrows from outside are being taken."""
    times: int
    """How often listeners are called for that, one by one."""
    unasked: bool
    """The real agent does not ask anybody."""


def abstract(seed: int, bounds: Bounds) -> tuple[list[Step], list[str]]:
    """A random run to its rest, and what happens in it."""
    chance, play = random.Random(seed), Play(bounds=bounds)
    scene, steps, before = play.opening(), list[Step](), 0
    story = scene.story = list[Happening]()
    while not steps or not play.at_rest(scene) or scene.world.sendable:
        at, depth = _at(scene), len(scene.world.takes)
        before_it = next((one for one in reversed(steps) if (one.at, one.depth) == (at, depth)), None)
        observed = before_it is not None and before_it.move.label.startswith("an observer")
        move = _chosen(chance, play, scene, quiet=observed or at in UNREAL)
        times = len([line for one in story[before:] if one.name.partition(" ")[0] == at for line in lines(one)])
        unasked = move.label.endswith((*BY_ITSELF, APPENDED)) or at in UNREAL or (bool(at) and observed)
        before = len(story)
        scene = play.apply(scene, move)
        steps.append(Step(move, at, depth, times, unasked))
    return steps, [line for happening in story for line in lines(happening)]


def _at(scene: Scene) -> str:
    """What was told just now, or is about to be appended."""
    takes, main = scene.world.takes, scene.world.main
    frame = takes[-1][0] if takes else main[-1] if main else None
    name = frame[2].effect.name if frame is not None and frame[1] in (BEFORE, AFTER) else ""
    return "agent/inbox/spliced" if name == "claim" else name


def _chosen(chance: random.Random, play: Play, scene: Scene, *, quiet: bool) -> Move:
    """What comes next: what comes by itself at once, and odd things seldom, so that they come everywhere."""
    possible = [move for move in play.moves(scene) if not any(word in move.label for word in UNPLAYED)]
    for move in possible:
        if move.label.endswith(BY_ITSELF):
            return move
    usual = [move for move in possible if move.odd == 0 and (move.inner or play.at_rest(scene))]
    unusual = [move for move in possible if move not in usual]
    if scene.world.discarded:  # what the observer's cancel announces would be taken for what comes next
        unusual = [move for move in unusual if not move.label.startswith("an observer")]
    if quiet:  # nobody is told, or an observer has cancelled: the real one's cancel goes on after the append
        unusual = []
    return chance.choice(unusual if unusual and chance.random() < 0.06 else usual or unusual)


def lines(now: Happening) -> Iterator[str]:
    if now.name not in TOLD:
        return
    if now.name in ("agent/inbox/inserted", "agent/inbox/claimed", "agent/inbox/discarded", "user/message"):
        yield from (f"{now.name} {id}" for id in now.ids)
    else:
        number = now.number if now.name not in ASKED or now.name.startswith("tools/") else 0
        yield _line(now.name, now.detail, now.target, *now.ids, number)


def _line(*words: object) -> str:
    return " ".join(str(word) for word in words if word)


# -- the real one -----------------------------------------------------------------------------------------------------


class Puppet:
    """Hooks that wait until they are told what to do, and a record of what happens."""

    agent: Agent

    def __init__(self, steps: list[Step]) -> None:
        self.steps = deque(steps)
        self.hooks = Hooks()
        self.happened: list[str] = []
        self._waiting: dict[str, tuple[anyio.Event, list[str]]] = {}
        self._asked_about: dict[str, str] = {}
        for point in ASKED:
            self.hooks.listen(point, self._asked(point))
        for point in ("agent/status", "agent/inbox/inserted", "agent/inbox/claimed", "agent/inbox/discarded",
                      "agent/assistant-stream", "agent/error", "tools/result"):  # fmt: skip
            self.hooks.listen(point, self._told(point))

    def tell(self, *words: object) -> None:
        self.happened.append(_line(*words))

    def due(self) -> Step | None:
        """The next step that somebody has to make."""
        while self.steps and self.steps[0].unasked:
            self.steps.popleft()
        return self.steps[0] if self.steps else None

    def heard(self, point: str) -> None:
        """Something was told: do what the run says of who hears it."""
        while (step := self.due()) is not None and step.at == point:
            step.times -= 1
            if step.times > 0:
                return
            self.steps.popleft()
            if step.move.label.endswith(NOBODY):
                return
            act(self.agent, step.move.label)
            if step.move.label.startswith("an observer"):
                return

    def veto(self, event: Event) -> None:
        step = self.due()
        if step is not None and step.at == event.type and step.move.label.endswith("is refused"):
            self.steps.popleft()
            raise ValueError(step.move.label)

    def release(self, label: str) -> None:
        """Let the hook that the label is about do what the label says."""
        waiting = [key for key in self._waiting if label.startswith(f"{key} ")]
        assert waiting, f"{label!r} is due, and there wait {[*self._waiting]} after\n" + "\n".join(self.happened)
        (key,) = waiting
        event, answer = self._waiting.pop(key)
        answer.append(label.removeprefix(f"{key} "))
        event.set()

    def _asked(self, point: str) -> Callable[..., Awaitable[Any]]:
        async def waterfall(payload: Any, next: Callable[..., Awaitable[Any]]) -> Any:
            return await self._answered(point, payload, next)

        async def serial(payload: Any) -> Any:
            return await self._answered(point, payload, None)

        return waterfall if self.hooks.points[point].mode is Mode.WATERFALL else serial

    async def _answered(self, point: str, payload: Any, next: Callable[..., Awaitable[Any]] | None) -> Any:
        self.tell(point, payload.call.id if point.startswith("tools/") else "")
        event, answer = anyio.Event(), list[str]()
        whose = f" of call {payload.call.id}" if point.startswith("tools/") else ""
        self._waiting[f"{point}{whose}"] = event, answer
        await event.wait()
        return await self._do(answer[0], payload, next)

    async def _do(self, label: str, payload: Any, next: Callable[..., Awaitable[Any]] | None) -> Any:
        match label:
            case "raises":
                raise ValueError(label)
            case "rejects":
                return Reject("no")
            case "empties the batch":
                return Enter(())
            case "rewrites the batch":
                return Enter((user_message("rewritten", id="rewritten"),))
            case "retries":
                return Retry()
            case "asks":
                return Ask("sure?")
            case "denies":
                return Deny("no")
            case "concludes":
                return ToolOutcome(text("ok"), conclude=True)
            case _ if label.startswith("defers "):
                return ToolOutcome(text("ok"), contexts=(user_message("more", id=label.split()[-1]),))
            case _ if (reply := _reply(label)) is not None:
                return _chunks(reply)
            case _:
                return None if next is None else await next()

    async def approve(self, payload: Any, reason: str) -> bool:
        """The host is asked about a call."""
        self.tell("approve", payload.call.id)
        event, answer = anyio.Event(), list[str]()
        self._waiting[f"approve of call {payload.call.id}"] = event, answer
        await event.wait()
        if answer[0] == "raises":
            raise ValueError(answer[0])
        return answer[0] == "answers yes"

    def _told(self, point: str) -> Callable[[Any], None]:
        def listen(payload: Any) -> None:
            match point:
                case "agent/status":
                    self.tell(point, payload.status)
                case "agent/assistant-stream":
                    if payload.frame.type == "chunk":
                        return
                    self.tell(point, payload.frame.type)
                case "agent/error":
                    self.tell(point)
                case "tools/result":
                    self.tell(point, _outcome(payload.error), payload.call.id)
                case _:
                    self.tell(point, payload.message.id)
            self.heard(point)

        return listen

    def observe(self, event: Event) -> None:
        """What a record says, as the abstract run says it."""
        data: Any = event.data
        match event.type:
            case "agent/inbox/spliced":
                waiting = self.agent.inbox.next_step if data.target == "next-step" else self.agent.inbox.next_turn
                gone = waiting[data.start : data.start + (data.removed_count or 0)]
                kind = "canceled" if data.outcome else "claim" if gone else "insert"
                kind = "replace" if gone and data.inserted else kind
                self.tell(event.type, kind, data.target, *(message.id for message in (*gone, *data.inserted)))
            case "turn/start":
                self.tell(event.type, data.turn)
            case "turn/end":
                cause = data.reason.reason.kind if data.reason.kind == "aborted" else ""
                self.tell(event.type, data.reason.kind, cause, data.turn)
            case "step/start" | "step/end":
                self.tell(event.type, data.step)
            case "user/message":
                self.tell(event.type, data.message.id)
            case "assistant/message":
                calls = sum(isinstance(block, ToolCallBlock) for block in data.message.content)
                self.tell(event.type, "interrupted" if data.interrupted else "", calls)
            case "tool/call":
                self.tell(event.type, data.call_id)
            case "tool/result":
                self.tell(event.type, _outcome(data.error), data.message.content[0].tool_call_id)
            case "approval/asked":
                self.tell(event.type, data.call_id)
                self._asked_about[data.id] = data.call_id
            case "approval/decided":
                self.tell(event.type, data.outcome, self._asked_about[data.id])
            case "assistant/attempt":
                self.tell(event.type)
            case _:
                return
        self.heard(event.type)


def _outcome(error: Any) -> str:
    return "ok" if error is None else error.code


def _reply(label: str) -> Reply | None:
    kind, _, modes = label.partition(": ")
    match kind:
        case "answers":
            return Reply(text="ok")
        case "asks for calls":
            return Reply(calls=[(mode, {}, str(n)) for n, mode in enumerate(modes.split(), 1)])
        case "pauses":
            return Reply(text="wait", finish=FinishKind.PAUSE)
        case "runs into max-tokens":
            return Reply(text="long", finish=FinishKind.MAX_TOKENS)
        case "fails":
            return Reply.failure()
        case "is cut, with nothing to see":
            return Reply()
        case _:
            return None


async def _chunks(reply: Reply) -> AsyncIterator[Chunk]:
    for chunk in reply.chunks():
        yield chunk


@tool(parallel=True)
async def parallel() -> str:
    """Runs beside others."""
    return "ok"


@tool
async def exclusive() -> str:
    """Runs alone."""
    return "ok"


CAUSES: dict[str, CancelCause] = {"user": USER_CANCEL, "parent": PARENT_CANCEL, "disposed": DISPOSED_CANCEL}


def act(agent: Agent, label: str) -> None:
    """What the host does, or a listener."""
    if said := re.search(r" calls (\w+)\((\w+)\)$", label):
        with suppress(ValueError):  # the insertion is refused
            getattr(agent, said[1])(user_message("hello", id=said[2]))
    elif said := re.search(r" cancels \((\w+)(, keeping the inbox)?\)$", label):
        agent.cancel(CAUSES[said[1]], keep_inbox=bool(said[2]))
    elif said := re.search(r" replaces (\w+) by (\w+)$", label):
        with suppress(ValueError):
            agent.inbox.replace(said[1], user_message("better", id=said[2]))
    else:
        with suppress(ValueError):
            agent.inbox.remove(label.split()[-1])


async def settle() -> None:
    """Until everything waits."""
    for _ in range(12):
        await checkpoint()


async def real(steps: list[Step]) -> list[str]:
    """The same run by the real agent."""
    puppet = Puppet(steps)
    options = AgentOptions(max_parallel_tools=BOUNDS.cap, approve=puppet.approve)
    async with Agent(ScriptedModel(), tools=[parallel, exclusive], hooks=puppet.hooks, options=options) as agent:
        puppet.agent = agent
        agent.session.observe(puppet.observe)
        agent.session.veto(puppet.veto)
        await settle()
        while (step := puppet.due()) is not None:
            assert not step.at, f"{step.move.label!r} at {step.at} was not made when it was due"
            puppet.steps.popleft()
            if step.move.inner:
                puppet.release(step.move.label)
            else:
                act(agent, step.move.label)
            await settle()
        assert agent.phase == "idle"
    return puppet.happened


@pytest.mark.parametrize("listeners", [False, True], ids=["hooks and tasks", "listeners and vetoes too"])
@pytest.mark.parametrize("seed", range(40))
async def test_the_real_agent_does_what_the_abstract_one_does(seed: int, listeners: bool) -> None:
    for one in range(5 * seed, 5 * seed + 5):
        steps, expected = abstract(one, BOUNDS.but(listeners=listeners, vetoes=listeners))

        with anyio.fail_after(30):
            happened = await real(steps)

        assert happened == expected, "\n".join(step.move.label for step in steps)
