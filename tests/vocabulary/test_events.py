"""Events: each one survives being written and read."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.errors import DefinitionError, SessionFormatError, UnknownEventError
from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary.messages import user_message

from .strategies import EVENT_DATA, frozen_objects, made, small, words

_sources = st.none() | st.lists(small, max_size=3).map(tuple)
_append: st.SearchStrategy[ev.SurfaceOp] = st.just("append")
_operations = st.none() | _append | made(ev.Replace, start=small, end=small)


def test_every_event_type_has_a_strategy_here() -> None:
    declared = {kind for kind in ev.EventData.__subclasses__() if kind.__module__ == ev.__name__ and kind.type}

    assert set(EVENT_DATA) == declared


@pytest.mark.parametrize("kind", list(EVENT_DATA), ids=lambda kind: kind.type)
@given(data=st.data())
def test_an_event_of_every_type_is_read_as_it_was_written(kind: type[ev.EventData], data: st.DataObject) -> None:
    event = ev.Event(
        data.draw(small),
        data.draw(small),
        data.draw(EVENT_DATA[kind]),
        data.draw(_operations),
        data.draw(_sources),
        data.draw(st.booleans()),
    )
    line = event.encode()

    assert "\n" not in line
    assert ev.decode_event(line) == event
    assert ev.decode_event(line.encode()) == event
    assert ev.decode_event(line).encode() == line


@given(name=words.map("x/{}".format), payload=frozen_objects)
def test_log_08_an_ignorable_event_of_an_unknown_type_survives_a_rewrite(name: str, payload: Any) -> None:
    line = json.dumps({"seq": 3, "time": 4, "type": name, "data": payload, "ignorable": True})

    event = ev.decode_event(line)

    assert isinstance(event.data, ev.Opaque)
    assert event.type == name
    assert ev.decode_event(event.encode()) == event
    assert json.loads(event.encode()) == json.loads(line)


def test_log_08_an_unknown_type_that_is_not_ignorable_is_refused() -> None:
    with pytest.raises(UnknownEventError, match=r"event 3 has the type 'x/y'.*plug-in"):
        ev.decode_event('{"seq":3,"time":4,"type":"x/y","data":{}}')


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        "[]",
        "3",
        "{}",
        '{"seq":"x","time":1,"type":"turn/start","data":{"turn":1}}',
        '{"seq":1,"time":1,"type":"turn/start","data":{"turn":"one"}}',
        '{"seq":1,"time":1,"type":"turn/start","data":{"turn":1,"more":2}}',
        '{"seq":1,"time":1,"type":"turn/start","data":[]}',
        '{"seq":1,"time":1,"type":"turn/start","data":{"turn":1},"surfaceOp":"prepend"}',
        '{"seq":1,"time":1,"type":"turn/start","data":{"turn":1},"sourceEventSeqs":3}',
        '{"seq":1,"time":1,"type":"x/y","data":[1],"ignorable":true}',
    ],
)
def test_what_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(SessionFormatError):
        ev.decode_event(line)


def test_a_user_message_on_the_wire_is_the_message_itself() -> None:
    event = ev.Event(0, 0, ev.UserMessageEvent(message=user_message("hi", id="m")), "append")

    assert json.loads(event.encode()) == {
        "seq": 0,
        "time": 0,
        "type": "user/message",
        "data": {"role": "user", "id": "m", "content": [{"type": "text", "text": "hi"}], "source": {"kind": "user"}},
        "surfaceOp": "append",
    }


def test_a_type_name_belongs_to_one_class() -> None:
    with pytest.raises(DefinitionError, match=re.escape("'turn/start' belongs to TurnStart")):

        class Mine(ev.EventData, frozen=True):  # pyright: ignore[reportUnusedClass]  # refused while it is declared
            type: ClassVar[str] = "turn/start"
