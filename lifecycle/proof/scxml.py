"""A lifecycle as SCXML, for the tools that read it.

What a phase runs stands inside it, in states named `phase.inner`; an arrow that ends an inner run raises the event
that follows in the outer one. A pool is left out: its runs are not states of this machine. Guards are expressions of
the `python` data model over facts that a host would keep up to date; effects are `log` elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from xml.sax.saxutils import quoteattr

from lifecycle.definition.effects import Effect, Message
from lifecycle.definition.machine import Lifecycle, Phase

_NOTHING: Mapping[str, str] = MappingProxyType({})


def scxml(lifecycle: type[Lifecycle]) -> str:
    """The document. States stand in declared order, and transitions in the order in which they are tried."""
    spec = lifecycle.spec
    head = _opened("scxml", xmlns="http://www.w3.org/2005/07/scxml", version="1.0", datamodel="python",
                   name=spec.name, initial=spec.initial)  # fmt: skip
    facts = sorted(set(_facts(lifecycle)))
    data = [f"    {_opened('data', id=name, expr='False', closed=True)}" for name in facts]
    model = ["  <datamodel>", *data, "  </datamodel>"] if data else []
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        head,
        *model,
        *_states(lifecycle, "", _NOTHING, "  "),
        "</scxml>",
    ]
    return "\n".join(lines) + "\n"


def _facts(lifecycle: type[Lifecycle]) -> Iterator[str]:
    yield from (field.name for field in fields(lifecycle.facts))
    for phase in lifecycle.spec.phases.values():
        if phase.runs is not None:
            yield from _facts(phase.runs)


def _states(lifecycle: type[Lifecycle], prefix: str, then: Mapping[str, str], indent: str) -> Iterator[str]:
    for name, phase in lifecycle.spec.phases.items():
        id = prefix + name
        if phase.final:
            yield indent + _opened("final", id=id, closed=True)
            continue
        inner = "" if phase.runs is None else f"{id}.{phase.runs.spec.initial}"
        yield indent + (_opened("state", id=id, initial=inner) if inner else _opened("state", id=id))
        if phase.does:
            yield from _block("onentry", {}, [*_logs(phase.does)], indent + "  ")
        if phase.runs is not None:
            yield from _states(phase.runs, f"{id}.", phase.then, indent + "  ")
        yield from _transitions(lifecycle, phase, prefix, then, indent + "  ")
        yield f"{indent}</state>"


def _transitions(
    lifecycle: type[Lifecycle], phase: Phase, prefix: str, then: Mapping[str, str], indent: str
) -> Iterator[str]:
    for arrow in phase.arrows:
        for event in map(str, arrow.events):
            names = {"event": event, "target": prefix + arrow.goal}
            if arrow.internal:  # without a target the phase is not entered anew
                del names["target"]
            if arrow.guard:
                names["cond"] = arrow.guard
            body = [*_logs(arrow.emits)]
            if arrow.goal in lifecycle.spec.final and event in then:
                body.append(_opened("raise", event=then[event], closed=True))
            yield from _block("transition", names, body, indent)


def _logs(effects: Iterable[Effect]) -> Iterator[str]:
    for effect in effects:
        if isinstance(effect, Message):
            yield _opened("log", label=f"{effect.kind.value} {effect.times}", expr=repr(effect.key), closed=True)


def _block(tag: str, names: Mapping[str, str], body: Iterable[str], indent: str) -> Iterator[str]:
    lines = [f"{indent}  {line}" for line in body]
    yield indent + _opened(tag, closed=not lines, **names)
    if lines:
        yield from lines
        yield f"{indent}</{tag}>"


def _opened(tag: str, *, closed: bool = False, **names: str) -> str:
    attributes = "".join(f" {name}={quoteattr(value)}" for name, value in names.items())
    return f"<{tag}{attributes}{'/' if closed else ''}>"
