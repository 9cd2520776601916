"""Effects: what a lifecycle says, and to whom, as plain values.

An effect is data that every reader shares: the driver performs it, the pictures draw it, the checker expects it.
Text between backticks is a wire name. Knows nothing of phases or of who performs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Participant:
    """One lane of a sequence diagram; `label` is shown instead of `name` where given."""

    name: str
    label: str = ""


USER = Participant("User")
AGENT = Participant("Agent")
DRIVER = Participant("Driver")
HOOKS = Participant("Hooks", "hook listeners")
PROMPT = Participant("Prompt", "ctx.systemPrompt")
LLM = Participant("LLM", "ctx.llm")
TOOLS = Participant("Tools", "ctx.tools")
SESSION = Participant("Session")
PERSISTENCE = Participant("Persistence")
SDK = Participant("SDK", "UI or SDK listener")
CAST = (USER, AGENT, DRIVER, HOOKS, PROMPT, LLM, TOOLS, SESSION, PERSISTENCE, SDK)
"""The participants in the order in which they are drawn."""


class Line(StrEnum):
    """Solid lines ask or record; dashed lines tell or answer."""

    SOLID = "->>"
    DASHED = "-->>"


Times: TypeAlias = Literal["1", "?", "*", "once"]
"""How often: exactly once, perhaps, any number of times, or only when the phase is first entered in a run."""


class Kind(StrEnum):
    """What sort of thing is said."""

    HOOK = "hook"
    ASK = "ask"
    TELL = "tell"
    ANSWER = "answer"
    RECORD = "record"
    NOTIFY = "notify"


@dataclass(frozen=True, slots=True)
class Message:
    """One arrow of a picture; unless it is an answer, something that the driver performs.

    Args:
        name: The wire name. `act` tells apart two effects of one name.
        mode: Of a hook: emit, serial, parallel or waterfall.
        times: How often it happens each time its phase or arrow comes up.
        drawn: Whether curated views show it; the full view shows everything.
        inner: It happens while the effect before it is performed, and is performed by that one's performer.
        durable: It is an event of the session log, whatever its line looks like.
        lane: It drives a run of its phase's pooled lifecycle through the phases of this lane.
    """

    kind: Kind
    sender: Participant
    receiver: Participant
    line: Line
    text: str
    detail: str = ""
    name: str = ""
    act: str = ""
    mode: str = ""
    times: Times = "1"
    drawn: bool = True
    inner: bool = False
    durable: bool = False
    lane: str = ""

    @property
    def key(self) -> str:
        """What a performer is registered under."""
        return f"{self.name}:{self.act}" if self.act else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Every wire name in the text; one effect may record several events."""
        return tuple(_CODED.findall(self.text)) or (self.name,)

    @property
    def caption(self) -> str:
        """The words on the arrow."""
        return f"{self.text} {self.detail}".strip()

    @property
    def performed(self) -> bool:
        """Whether a performer of its own must exist."""
        return self.kind is not Kind.ANSWER and not self.inner


@dataclass(frozen=True, slots=True)
class Note:
    """Words over one or more participants; nothing is performed."""

    over: tuple[Participant, ...]
    text: str
    drawn: bool = True

    @property
    def performed(self) -> bool:
        return False


Effect: TypeAlias = Message | Note

_CODED = re.compile(r"`([^`]+)`")


def _name(text: str) -> str:
    coded = _CODED.search(text)
    return coded.group(1) if coded else text.split("(")[0].strip()


def note(*over: Participant, text: str, drawn: bool = True) -> Note:
    """A note over some participants."""
    return Note(over, text, drawn)


def ask(
    receiver: Participant,
    text: str,
    detail: str = "",
    *,
    sender: Participant = DRIVER,
    name: str = "",
    act: str = "",
    times: Times = "1",
    drawn: bool = True,
    inner: bool = False,
    lane: str = "",
) -> Message:
    """Ask a service to do something and wait for it."""
    named = name or _name(text)
    return Message(Kind.ASK, sender, receiver, Line.SOLID, text, detail, named, act, "", times, drawn, inner, lane=lane)


def tell(
    receiver: Participant,
    text: str,
    detail: str = "",
    *,
    sender: Participant = DRIVER,
    name: str = "",
    act: str = "",
    times: Times = "1",
    drawn: bool = True,
    inner: bool = False,
) -> Message:
    """Say something that nobody answers."""
    return Message(
        Kind.TELL, sender, receiver, Line.DASHED, text, detail, name or _name(text), act, "", times, drawn, inner
    )


def answer(sender: Participant, text: str, *, name: str = "", times: Times = "1", drawn: bool = True) -> Message:
    """What comes back from the effect before it. It is not performed: it is that effect's result."""
    return Message(
        Kind.ANSWER, sender, DRIVER, Line.DASHED, text, "", name or _name(text), times=times, drawn=drawn, inner=True
    )


def hook(point: str, mode: str, detail: str = "", *, act: str = "", times: Times = "1", drawn: bool = True) -> Message:
    """Dispatch a hook point and wait for its listeners."""
    return Message(Kind.HOOK, DRIVER, HOOKS, Line.SOLID, f"`{point}` {mode}", detail, point, act, mode, times, drawn)


def record(
    *names: str,
    detail: str = "",
    to: Participant = SESSION,
    sender: Participant = DRIVER,
    act: str = "",
    times: Times = "1",
    drawn: bool = True,
    inner: bool = False,
) -> Message:
    """Append durable events to the session log. Drawn dashed where they are announced to somebody else."""
    text = " and ".join(f"`{name}`" for name in names)
    line = Line.SOLID if to is SESSION else Line.DASHED
    return Message(Kind.RECORD, sender, to, line, text, detail, names[0], act, "", times, drawn, inner, durable=True)


def notify(
    name: str,
    detail: str = "",
    *,
    sender: Participant = DRIVER,
    act: str = "",
    times: Times = "1",
    drawn: bool = True,
    inner: bool = False,
) -> Message:
    """Tell live listeners; nothing is stored."""
    return Message(Kind.NOTIFY, sender, SDK, Line.DASHED, f"`{name}`", detail, name, act, "emit", times, drawn, inner)
