"""What the demo provider answers: a script, computed from the request alone, that says plainly that it is one.

One turn: its first attempt is refused as overloaded; then two tool calls that may run side by side, one that runs
alone, and an answer worked out from what the tools said. No I/O.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

DEMO_MODEL = "demo-script"

_INTRODUCTION = "I am a script, not a model; I follow a fixed plan so that you can see a turn run. First I look around."
_SEARCHING = "Now I search for a word, on its own."
_MOST_ROUNDS = 6
"""When the script stops asking for tools, whatever else is put between the results."""
_REMEMBERED = 1_000
"""How many refused conversations are remembered."""
_QUOTED = 200

_SEARCHED = 4_000
"""How much of a prompt is searched for what to look at."""

_FILE_NAME = re.compile(
    r"\w[\w./-]{0,100}\.(?:md|txt|rst|py|toml|json|ya?ml|ini|cfg|js|ts|html|css|c|h|rs|go|sh|csv)\b"
)
_WORD = re.compile(r"[^\W\d_]{4,30}")
_SHORT_WORD = re.compile(r"[^\W\d_]{1,30}")


@dataclass(frozen=True, slots=True)
class Overloaded:
    """Refuse the attempt; the next one is answered."""


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call: the name of the tool, and arguments as JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    calls: tuple[Called, ...] = ()


class Script:
    """Answers requests. It remembers one thing: which conversations it has refused once."""

    def __init__(self) -> None:
        self._refused: dict[bytes, None] = {}

    def reply(self, body: Mapping[str, Any]) -> Overloaded | Answer:
        """The answer to the body of a request.

        Raises:
            ValueError: if it is none that the wire allows.
        """
        talk = _Talk(body)
        if talk.rounds == 0 and self._refuses(body["messages"]):
            return Overloaded()
        plan = (_look_around, _search)
        calls = plan[talk.rounds](talk) if talk.rounds < len(plan) else ()
        if calls:
            return Answer(_SEARCHING if talk.rounds else _INTRODUCTION, calls)
        return Answer(_conclusion(talk))

    def _refuses(self, messages: object) -> bool:
        """True the first time that a conversation comes to this point, and again after it was answered there."""
        key = hashlib.sha256(json.dumps(messages).encode()).digest()
        if key in self._refused:
            del self._refused[key]
            return False
        self._refused[key] = None
        if len(self._refused) > _REMEMBERED:
            del self._refused[next(iter(self._refused))]
        return True


class _Talk:
    """A request as the script sees it: the prompt, the tools on offer, the calls of this turn and their results."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.messages = _objects(body.get("messages"), "messages")
        offered = _objects(body.get("tools") or [], "tools")
        self.tools = {str(_function(tool).get("name")) for tool in offered}
        asked = [n for n, message in enumerate(self.messages) if message.get("role") == "user"]
        self.prompt = _text(self.messages[asked[-1]].get("content")) if asked else ""
        self.turn = self.messages[asked[-1] if asked else 0 :]
        self.rounds = sum(1 for message in self.turn if message.get("tool_calls"))
        if self._rounds_since_an_answer() >= _MOST_ROUNDS:  # somebody speaks between the results of each step
            self.rounds = _MOST_ROUNDS
        self.said = {
            str(message.get("tool_call_id")): _text(message.get("content"))
            for message in self.turn
            if message.get("role") == "tool"
        }
        self._number = sum(len(_calls(message)) for message in self.messages)

    def _rounds_since_an_answer(self) -> int:
        rounds = 0
        for message in reversed(self.messages):
            if message.get("role") == "assistant":
                if not message.get("tool_calls"):
                    break
                rounds += 1
        return rounds

    def results(self) -> Iterator[tuple[str, str, str]]:
        """Name, arguments and result of each call of this turn, in the order of the calls."""
        for message in self.turn:
            for call in _calls(message):
                if str(call.get("id")) in self.said:
                    function = _function(call)
                    yield str(function.get("name")), str(function.get("arguments")), self.said[str(call.get("id"))]

    def call(self, name: str, argument: str, value: str) -> tuple[Called, ...]:
        """The call, if that tool is on offer."""
        if name not in self.tools:
            return ()
        self._number += 1
        return (Called(f"demo-{self._number}", name, json.dumps({argument: value}, ensure_ascii=False)),)


def _look_around(talk: _Talk) -> tuple[Called, ...]:
    named = _FILE_NAME.search(talk.prompt[:_SEARCHED])
    file = named.group() if named else "README.md"
    return talk.call("list_files", "path", ".") + talk.call("read_file", "path", file)


def _search(talk: _Talk) -> tuple[Called, ...]:
    """For a word of the file that was read, else of the prompt; there is always one."""
    read = next((said for name, _, said in talk.results() if name == "read_file"), "")
    for text in (_first_line(read), talk.prompt[:_SEARCHED]):
        for words in (_WORD, _SHORT_WORD):
            found = words.search(text)
            if found:
                return talk.call("search_text", "query", found.group())
    return talk.call("search_text", "query", "the")


def _conclusion(talk: _Talk) -> str:
    prompt = " ".join(talk.prompt[: 20 * _QUOTED].split())
    asked = prompt if len(prompt) <= _QUOTED else f"{prompt[:_QUOTED]}... ({len(talk.prompt)} characters)"
    told = [f"- {name} {arguments}: {_summary(said)}" for name, arguments, said in talk.results()]
    lines = [f"You asked: “{asked}”", "I am a script, not a model, so I did not understand it."]
    lines += ["What the tools said:", *told] if told else ["No tools were on offer, so there is nothing to report."]
    lines += ["For an answer of a real model, give `--base-url` and `--model`."]
    return "\n".join(lines)


def _summary(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    if not lines:
        return "nothing"
    first = _first_line(said)
    shown = first if len(first) <= 80 else first[:80] + "..."
    return f"“{shown}”" if len(lines) == 1 else f"{len(lines)} lines, beginning with “{shown}”"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _function(holder: Mapping[str, Any]) -> dict[str, Any]:
    held = holder.get("function")
    return cast("dict[str, Any]", held) if isinstance(held, dict) else {}


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _objects(message.get("tool_calls") or [], "tool_calls")


def _objects(value: object, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list")
    items = cast("list[object]", value)
    if not all(isinstance(item, dict) for item in items):
        raise ValueError(f"{name} must be a list of objects")
    return cast("list[dict[str, Any]]", items)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[object]", content) if isinstance(content, list) else []
    return "".join(str(cast("dict[str, object]", part).get("text", "")) for part in parts if isinstance(part, dict))
