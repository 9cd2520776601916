"""Effects are values; and what ours say exists: every wire name is a hook point of that mode or a durable event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from typing import get_args

import pytest

from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import (
    CAST,
    DRIVER,
    HOOKS,
    LLM,
    SDK,
    SESSION,
    TOOLS,
    USER,
    Kind,
    Line,
    Message,
    Note,
    Times,
    answer,
    ask,
    hook,
    note,
    notify,
    record,
    tell,
)
from lifecycle.definition.family import family
from lifecycle.services.points import POINTS
from lifecycle.vocabulary.events import event_types


def said() -> Iterator[tuple[str, Message]]:
    """Every effect of the newest revision, with the place that says it."""
    for lifecycle in family(Agent):
        for name, phase in lifecycle.spec.phases.items():
            yield from ((f"{lifecycle.__name__}.{name}", one) for one in phase.does if isinstance(one, Message))
        for event, arrow in lifecycle.spec.arrows:
            yield from ((f"{lifecycle.__name__}.{event}", one) for one in arrow.emits if isinstance(one, Message))


# -- what a constructor makes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "sender", "receiver", "line", "caption", "key"),
    [
        (hook("a/b", "serial", "asks"), DRIVER, HOOKS, Line.SOLID, "`a/b` serial asks", "a/b"),
        (ask(TOOLS, "resolve({ agent })", "once"), DRIVER, TOOLS, Line.SOLID, "resolve({ agent }) once", "resolve"),
        (ask(LLM, "call through `llm/stream`"), DRIVER, LLM, Line.SOLID, "call through `llm/stream`", "llm/stream"),
        (tell(SDK, "hello", sender=USER, name="greet"), USER, SDK, Line.DASHED, "hello", "greet"),
        (answer(HOOKS, "a verdict"), HOOKS, DRIVER, Line.DASHED, "a verdict", "a verdict"),
        (record("x/y", "x/z", detail="as needed"), DRIVER, SESSION, Line.SOLID, "`x/y` and `x/z` as needed", "x/y"),
        (record("x/y", to=SDK, act="insert"), DRIVER, SDK, Line.DASHED, "`x/y`", "x/y:insert"),
        (notify("a/b", "{ turn }", act="end"), DRIVER, SDK, Line.DASHED, "`a/b` { turn }", "a/b:end"),
    ],
    ids=["hook", "ask", "ask by wire name", "tell", "answer", "record", "record to the SDK", "notify"],
)
def test_an_effect_is_who_to_whom_with_which_line_and_words(
    effect: Message, sender: object, receiver: object, line: Line, caption: str, key: str
) -> None:
    assert (effect.sender, effect.receiver, effect.line) == (sender, receiver, line)
    assert (effect.caption, effect.key) == (caption, key)


def test_one_record_may_name_several_events() -> None:
    assert record("request/header", "request/context").names == ("request/header", "request/context")
    assert ask(TOOLS, "resolve()").names == ("resolve",)


def test_durability_belongs_to_the_record_and_not_to_its_line() -> None:
    dashed = record("agent/inbox/spliced", to=SDK)

    assert (dashed.line, dashed.durable) == (Line.DASHED, True)
    assert not notify("agent/inbox/claimed").durable


@pytest.mark.parametrize(
    ("effect", "performed"),
    [
        (hook("a/b", "emit"), True),
        (record("x/y"), True),
        (record("x/y", inner=True), False),  # by whoever performs the effect before it
        (answer(LLM, "chunks"), False),
        (note(DRIVER, text="a note"), False),
    ],
)
def test_what_has_a_performer_of_its_own(effect: Message | Note, performed: bool) -> None:
    assert effect.performed is performed


def test_effects_are_values() -> None:
    one = record("x/y", detail="d", times="*")

    assert one == record("x/y", detail="d", times="*")
    assert len({one, record("x/y", detail="d", times="*"), replace(one, drawn=False)}) == 2
    with pytest.raises(FrozenInstanceError):
        one.text = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


# -- what ours say --------------------------------------------------------------------------------------------------


def test_every_hook_and_every_live_event_is_a_point_of_that_mode() -> None:
    spoken = [(place, one) for place, one in said() if one.kind in (Kind.HOOK, Kind.NOTIFY)]
    wrong = [
        f"{place}: {one.key} as {one.mode}"
        for place, one in spoken
        if one.name not in POINTS or POINTS[one.name].mode != one.mode
    ]
    assert wrong == []


def test_every_record_is_a_durable_event_and_nothing_else_is() -> None:
    types = set(event_types())
    wrong = [f"{place}: {one.key}" for place, one in said() if one.durable is not (one.kind is Kind.RECORD)]
    records = [(place, one) for place, one in said() if one.kind is Kind.RECORD]
    wrong += [f"{place}: {name}" for place, one in records for name in one.names if name not in types]
    assert wrong == []


def test_every_point_is_dispatched_by_some_effect_or_known_to_be_dispatched_elsewhere() -> None:
    """Those of the session are dispatched by its log, and those of an agent's birth before it has a lifecycle."""
    spoken = {name for _, one in said() for name in one.names}
    elsewhere = {"agent/created", "agent/session-start", "session/append", "session/event", "session/flush"}

    assert set(POINTS) - spoken == elsewhere


def test_every_participant_is_of_the_cast_and_every_count_is_known() -> None:
    for place, one in said():
        assert {one.sender, one.receiver} <= set(CAST), place
        assert one.times in get_args(Times), place


def test_an_inner_effect_follows_one_that_performs_it() -> None:
    for lifecycle in family(Agent):
        groups = [phase.does for phase in lifecycle.spec.phases.values()]
        groups += [arrow.emits for _, arrow in lifecycle.spec.arrows]
        for group in groups:
            messages = [one for one in group if isinstance(one, Message)]
            assert not messages or messages[0].performed, lifecycle


def test_one_key_is_one_kind_of_thing() -> None:
    """A performer is registered under a key: what it performs must be the same wherever that key is said."""
    kinds: dict[tuple[str, str], set[tuple[Kind, bool]]] = {}
    for place, one in said():
        if one.kind is not Kind.ANSWER:
            kinds.setdefault((place.split(".")[0], one.key), set()).add((one.kind, one.inner))
    assert {key: found for key, found in kinds.items() if len(found) > 1} == {}
