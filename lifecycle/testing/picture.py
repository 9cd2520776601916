"""The picture of a watched run: what was recorded, which checked hooks were asked, and who is guilty.

Who speaks with whom is looked up in the effects that the definition declares for a record or a hook point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import AGENT, DRIVER, HOOKS, SESSION, USER, Kind, Line, Message, Note
from lifecycle.definition.family import family
from lifecycle.pictures.blocks import Block, Mark, Say
from lifecycle.pictures.mermaid import sequence_text
from lifecycle.services.points import Mode
from lifecycle.vocabulary.events import (
    AssistantMessageEvent,
    Event,
    InboxSpliced,
    StepEnd,
    StepStart,
    ToolCallEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from lifecycle.vocabulary.messages import text_of

from .hook_calls import Breach, HookCall, Moment

_MOST = 60
"""Characters of a text that a label shows."""
_BEFORE = 60
"""How many moments are drawn at most; the last ones, in a longer run."""


def picture_of(moments: Iterable[Moment], breach: Breach) -> str:
    """The Mermaid text. The call that `breach` blames stands on red ground, and what is wrong stands below it."""
    told = [one for one in moments if _tells(one, breach)]
    blocks: list[Block] = []
    if len(told) > _BEFORE:
        at = next((n for n, one in enumerate(told) if one.call is not None and one.call is breach.call), len(told))
        first = max(0, min(at - _BEFORE // 2, len(told) - _BEFORE))
        blocks += [Say(Note((DRIVER,), f"{first} things before"))] if first else []
        told = told[first : first + _BEFORE]
    for one in told:
        blocks += _marked(one, breach)
    if breach.call is None or not any(one.call is breach.call for one in told):
        blocks.append(Mark("removed", (_says(breach),)))
    return sequence_text(tuple(blocks))


def _tells(one: Moment, breach: Breach) -> bool:
    """Those who hear everything and say nothing are not drawn, unless they are to blame."""
    call = one.call
    if call is None or call is breach.call:
        return True
    return call.point.mode is not Mode.EMIT and (call.point.mode is not Mode.VETO or call.verdict != "nothing")


def _marked(one: Moment, breach: Breach) -> Iterator[Block]:
    if one.event is not None:
        yield from _recorded(one.event)
    elif one.call is not None:
        said = tuple(_called(one.call) if one.what == "called" else _returned(one.call))
        guilty = one.call is breach.call
        if guilty and (one.what == "returned" or not one.call.verdict):
            said = (*said, _says(breach))
        if guilty:
            yield Mark("removed", said)
        else:
            yield from said


def _says(breach: Breach) -> Say:
    return Say(Note((DRIVER, HOOKS), f"{breach.contract}: {_plain(breach.reason, 4 * _MOST)}"))


def _called(call: HookCall) -> Iterator[Say]:
    effect = _effects().get(call.point.name)
    sender = DRIVER if effect is None else effect.sender
    yield Say(Message(Kind.HOOK, sender, HOOKS, Line.SOLID, f"`{call.point.name}`", _plain(call.short)))


def _returned(call: HookCall) -> Iterator[Say]:
    effect = _effects().get(call.point.name)
    receiver = DRIVER if effect is None else effect.sender
    words = f"{call.short}: {call.verdict or 'no answer'}"
    yield Say(Message(Kind.ANSWER, HOOKS, receiver, Line.DASHED, _plain(words)))


def _recorded(event: Event) -> Iterator[Say]:
    effect = _effects().get(event.type)
    if effect is None:
        yield Say(Note((SESSION,), _plain(event.type)))
        return
    if isinstance(event.data, InboxSpliced):
        effect = replace(effect, sender=AGENT if event.data.inserted else DRIVER)
        for message in event.data.inserted:
            if message.source.get("kind") == "user":
                words = _plain(f"{event.data.target}: {text_of(message)}")
                yield Say(Message(Kind.ASK, USER, AGENT, Line.SOLID, words))
    yield Say(replace(effect, text=f"`{event.type}`", detail=_plain(_detail(event)), times="1"))


def _detail(event: Event) -> str:
    match event.data:
        case TurnStart(turn=turn):
            return str(turn)
        case TurnEnd(turn=turn, reason=reason):
            return f"{turn} {reason.kind}"
        case StepStart(step=step) | StepEnd(step=step):
            return str(step)
        case UserMessageEvent(message=message) | AssistantMessageEvent(message=message):
            return text_of(message)
        case ToolCallEvent(name=name, call_id=id):
            return f"{name} {id}"
        case InboxSpliced(inserted=new, removed_count=count, outcome=outcome):
            return f"+{len(new)} -{count or 0}{'' if outcome is None else f' {outcome}'}"
        case _:
            return ""


@cache
def _effects() -> dict[str, Message]:
    """What the definition says of each wire name: the first effect of that name."""
    found: dict[str, Message] = {}
    for one in family(Agent):
        for phase in one.spec.phases.values():
            for effect in (*phase.does, *(effect for arrow in phase.arrows for effect in arrow.emits)):
                if isinstance(effect, Message):
                    for name in effect.names if effect.durable else (effect.name,):
                        found.setdefault(name, effect)
    return found


def _plain(words: str, most: int = _MOST) -> str:
    """One short line without backticks, between which a picture takes text for a wire name."""
    line = " ".join(words.replace("`", "'").split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
