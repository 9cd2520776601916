"""From a graph of phases to blocks: small lifecycles as their Mermaid text, and any lifecycle as a language."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from textwrap import dedent
from types import new_class
from typing import Any, cast

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from lifecycle.definition.effects import AGENT, TOOLS, Message, ask, note, tell
from lifecycle.definition.machine import ANYWHERE, REPLAY, Arrow, Fold, Lifecycle, Phase, Sources
from lifecycle.errors import DefinitionError
from lifecycle.pictures.graph import CURATED, EVERYTHING, arrow_key, graph_of
from lifecycle.pictures.mermaid import sequence_text
from lifecycle.pictures.sequence import left_out
from lifecycle.pictures.structure import blocks_of

from .language import Language
from .symbols import spelt


def say(words: str, detail: str = "") -> Message:
    return tell(AGENT, words, detail)


def drawn(lifecycle: type[Lifecycle], *, curated: bool = False) -> str:
    """The picture without its heading, and without who speaks to whom: it is always the driver to the agent."""
    blocks, _ = blocks_of(graph_of(lifecycle, CURATED if curated else EVERYTHING), folding=curated)
    lines = [line[2:] for line in sequence_text(blocks).splitlines()[1:] if not line.startswith("  participant")]
    return "\n".join(line.replace("Driver-->>Agent: ", "").replace("Driver->>Tools: ", "") for line in lines)


def text(expected: str) -> str:
    return dedent(expected).strip()


@dataclass(frozen=True)
class Facts:
    a: bool = False
    b: bool = False


class Meeting(Lifecycle):
    facts = Facts

    one = Phase(say("first"), initial=True)
    left = Phase(say("left"))
    right = Phase(say("right"))
    last = Phase(say("last"))
    done = Phase(final=True)

    go = one.to(left, cond="a", when="to the left") | one.to(right, when="to the right")
    meet = Sources(left, right).to(last)
    over = last.to(done)


def test_ways_that_part_and_meet_again_are_a_choice_up_to_where_they_meet() -> None:
    assert drawn(Meeting) == text("""
        first
        alt to the left
          left
        else to the right
          right
        end
        last
    """)


class Detour(Lifecycle):
    facts = Facts

    one = Phase(say("first"), initial=True)
    aside = Phase(say("aside"))
    last = Phase(say("last"))
    done = Phase(final=True)

    go = one.to(aside, cond="a", when="if need be") | one.to(last, when="straight on")
    meet = aside.to(last)
    over = last.to(done)


def test_a_way_that_alone_says_something_is_an_option() -> None:
    assert drawn(Detour) == text("""
        first
        opt if need be
          aside
        end
        last
    """)


def test_a_phase_that_nothing_leads_to_is_refused_before_it_could_be_left_out() -> None:
    with pytest.raises(DefinitionError, match="unreachable"):

        class Forgotten(Meeting):  # pyright: ignore[reportUnusedClass]
            attic = Phase(say("nobody comes here"))
            leave = attic.to(Meeting.last)


class Enough(Lifecycle):
    facts = Facts

    asked = Phase(say("ask"), initial=True, loops="until it is enough")
    looked = Phase(say("look"))
    last = Phase(say("last"))
    done = Phase(final=True)

    look = asked.to(looked)
    again = looked.to(asked, cond="a", when="once more") | looked.to(
        last, when="enough", emits=[say("nod")], fold=Fold()
    )
    over = last.to(done)


def test_an_arrow_back_is_a_loop_and_the_way_out_of_it_a_break() -> None:
    assert drawn(Enough) == text("""
        loop until it is enough
          ask
          look
          break enough
            nod
          end
        end
        last
    """)


class Deep(Lifecycle):
    facts = Facts

    outer = Phase(say("outer"), initial=True, loops="the outer one")
    inner = Phase(say("inner"), loops="the inner one")
    ready = Phase(say("inner still"))
    behind = Phase(say("behind the inner"))
    done = Phase(final=True)

    go = outer.to(inner)
    on = inner.to(ready)
    leave = (
        ready.to(inner, cond="a", when="inner again")
        | ready.to(behind, cond="b", when="inner done")
        | ready.to(done, when="all done", emits=[say("goodbye")])
    )
    back = behind.to(outer)


def test_a_break_says_out_of_how_many_loops_it_leads() -> None:
    assert drawn(Deep) == text("""
        loop the outer one
          outer
          loop the inner one
            inner
            inner still
            break inner done
            end
            break all done (2 loops out)
              goodbye
            end
          end
          behind the inner
        end
    """)


class Tired(Lifecycle):
    facts = Facts

    rest = Phase(initial=True)
    work = Phase(say("work"), loops="work")
    more = Phase(say("more"))
    tail = Phase(say("tail"))
    done = Phase(final=True)

    start = (
        rest.to(work, cond="a", when="work comes", emits=[say("start")])
        | rest.to(tail, cond="b", when="it goes on")
        | rest.to(done, when="over", emits=[say("goodbye")])
    )
    step = work.to(more)
    turn = (
        more.to(work, cond="a", when="not enough")
        | more.to(rest, cond="b", when="tired")
        | more.to(tail, when="enough")
    )
    end = tail.to(rest, when="at rest again")


def test_a_way_out_that_leads_to_the_head_of_the_loop_around_passes_by_what_follows() -> None:
    assert drawn(Tired) == text("""
        loop tired
          break over
            goodbye
          end
          opt work comes
            start
            loop work
              work
              more
              break tired (the loop around begins anew)
              end
              break enough
              end
            end
          end
          tail
        end
    """)


class Given(Lifecycle):
    facts = Facts

    open = Phase(say("look around"), initial=True, loops="as it comes")
    done = Phase(final=True)

    take = open.again(cond="a", when="something comes", emits=[say("take")])
    give = open.again(cond="b", when="something goes", emits=[say("give")])
    close = open.to(done, emits=[say("close")])


def test_arrows_that_stay_are_a_loop_and_the_last_effect_is_asked_again_each_time() -> None:
    assert drawn(Given) == text("""
        look around
        loop as it comes
          alt something comes
            take
          else something goes
            give
          end
          look around
        end
        close
    """)


class Judged(Lifecycle):
    facts = Facts

    tried = Phase(say("try", "as well as it goes"), initial=True)
    judged = Phase(say("judge"))
    done = Phase(final=True)

    judge = tried.to(judged, emits=[say("nod")])
    end = judged.to(
        tried, cond="a", when="it failed", emits=[say("sigh")], fold=Fold(note=note(AGENT, text="try again"))
    ) | judged.to(done, when="it is good", emits=[say("keep")])


class Replayed(Judged):
    end = Judged.judged.to(
        Judged.tried, cond="a", when="it failed", emits=[say("sigh")], fold=REPLAY
    ) | Judged.judged.to(Judged.done, when="it is good", emits=[say("keep")])


def test_a_curated_picture_folds_an_arrow_back_into_a_note_or_says_in_brief_where_it_leads() -> None:
    assert drawn(Judged, curated=True) == text("""
        try as well as it goes
        nod
        judge
        alt it failed
          sigh
          Note over Agent: try again
        else it is good
          keep
        end
    """)
    assert drawn(Replayed, curated=True) == text("""
        try as well as it goes
        nod
        judge
        alt it failed
          sigh
          try
          nod
          judge
        else it is good
          keep
        end
    """)


@pytest.mark.parametrize("lifecycle", [Judged, Replayed])
def test_the_full_picture_draws_a_folded_arrow_as_the_loop_that_it_is(lifecycle: type[Lifecycle]) -> None:
    assert drawn(lifecycle) == text("""
        loop it failed
          try as well as it goes
          nod
          judge
          break it is good
            keep
          end
          sigh
        end
    """)


class Call(Lifecycle):
    called = Phase(say("allow"), initial=True)
    running = Phase(say("run"), lane="body")
    looked = Phase(say("look"), lane="commit")
    done = Phase(final=True)

    run = called.to(running)
    end = running.to(looked)
    tell = looked.to(done, emits=[say("tell")])


class Pooled(Lifecycle):
    facts = Facts

    pool = Phase(say("choose"), initial=True, pool=Call, loops="several at once")
    done = Phase(final=True)

    start = pool.again(cond="a", when="one starts", emits=[ask(TOOLS, "start", lane="start")])
    settle = pool.again(cond="b", when="one ends", emits=[ask(TOOLS, "end", lane="commit")])
    finish = pool.to(done, emits=[say("close")])


def test_what_a_phase_pools_is_drawn_where_it_is_driven_and_its_bodies_beside_it() -> None:
    assert drawn(Pooled) == text("""
        choose
        par scheduling, in model order
          loop several at once
            alt one starts
              start
              allow
            else one ends
              end
              opt
                look
                tell
              end
            end
            choose
          end
        and bodies overlap
          loop each started call
            opt
              run
            end
          end
        end
        close
    """)


class Inner(Lifecycle):
    first = Phase(say("begin"), initial=True)
    second = Phase(say("go on"))
    over = Phase(final=True)

    on = first.to(second)
    end = second.to(over)
    abort = ANYWHERE.to(over, when="stopped", emits=[say("tidy up")])
    fault = ANYWHERE.to(over, when="failed", emits=[say("complain")])


class Outer(Lifecycle):
    idle = Phase(initial=True)
    run = Phase(runs=Inner, then={"end": "ended", "abort": "ended", "fault": "ended"})
    stopping = Phase(say("nothing ran"))
    gone = Phase(final=True)

    wake = idle.to(run, when="woken", emits=[say("wake")])
    hear = run.again(when="a word comes", emits=[say("hear")])
    stop = run.to(stopping, when="stopped", emits=[say("stop")]) | stopping.again(
        when="stopped once more", emits=[say("still")]
    )
    ended = run.to(idle, when="it is over", emits=[say("rest")]) | stopping.to(gone, when="for good")


def test_what_comes_from_outside_goes_on_beside_the_run_phase_by_phase() -> None:
    assert drawn(Outer) == text("""
        loop it is over
          wake
          par what runs goes on
            alt it begins
              begin
              alt
                go on
                alt
                else stopped
                  tidy up
                else failed
                  complain
                end
              else stopped
                tidy up
              else failed
                complain
              end
            else stopping: nothing had begun
              nothing ran
            end
          and and from outside, whenever it comes
            loop a word comes
              hear
            end
            opt stopped
              stop
              loop stopped once more
                still
              end
            end
          end
          break for good
          end
          rest
        end
    """)


# -- any lifecycle ------------------------------------------------------------------------------------------------


@st.composite
def lifecycles(draw: st.DrawFn) -> type[Lifecycle]:
    """Phases and arrows at random, most of which say something; loops may have several ways in and out."""
    names = [f"p{n}" for n in range(draw(st.integers(2, 6)))]
    phases = {
        name: Phase(*([say(f"in {name}")] if draw(st.integers(0, 4)) else []), initial=not n)
        for n, name in enumerate(names)
    }
    phases["done"] = Phase(final=True)
    body: dict[str, Any] = dict(phases)
    facts: list[tuple[str, type, bool]] = []
    goals = st.sampled_from([*names, "done", "done"])
    for name in names:
        for goal in draw(st.lists(goals, min_size=1, max_size=3, unique=True)):
            fact = f"f{len(facts)}"
            facts.append((fact, bool, False))
            emits = [say(f"by {fact}")] if draw(st.integers(0, 4)) else []
            here = phases[name]
            stays = goal == name and draw(st.booleans())
            body[f"e{fact}"] = (
                here.again(cond=fact, when=fact, emits=emits)
                if stays
                else here.to(phases[goal], cond=fact, when=fact, emits=emits)
            )
    body["facts"] = make_dataclass("RandomFacts", facts, frozen=True)
    try:
        made = new_class("Random", (Lifecycle,), {}, lambda namespace: namespace.update(body))
    except DefinitionError:
        reject()  # a phase that nothing leads to, or from which nothing leads on
    return cast("type[Lifecycle]", made)


def _done(lifecycle: type[Lifecycle], arrow: Arrow) -> tuple[str, ...]:
    """What is said when an arrow is taken and where it leads."""
    (event,) = (str(event) for event in arrow.events)
    by = arrow_key(lifecycle.spec.name, event, arrow)
    said = tuple(spelt(by, effect.key) for effect in arrow.emits if isinstance(effect, Message))
    return said + _entered(lifecycle, arrow.goal)


def _entered(lifecycle: type[Lifecycle], name: str) -> tuple[str, ...]:
    does = lifecycle.spec.phases[name].does
    return tuple(spelt(f"{lifecycle.spec.name}.{name}", effect.key) for effect in does if isinstance(effect, Message))


def _walked(lifecycle: type[Lifecycle], data: st.DataObject) -> tuple[str, ...]:
    """What is said on some way through the phases, to the end."""
    phases, here = lifecycle.spec.phases, lifecycle.spec.initial
    word, steps = _entered(lifecycle, here), 0
    while not phases[here].final:
        ways = list(phases[here].arrows)
        arrow = data.draw(st.sampled_from(ways))
        word, here, steps = word + _done(lifecycle, arrow), arrow.goal, steps + 1
        if steps > 25:
            reject()
    return word


def _is_walk(lifecycle: type[Lifecycle], word: tuple[str, ...]) -> bool:
    """Whether a word is said on some way through the phases."""
    phases, first = lifecycle.spec.phases, lifecycle.spec.initial
    said = _entered(lifecycle, first)
    seen: set[tuple[int, str]] = set()
    todo = [(len(said), first)] if word[: len(said)] == said else []
    while todo:
        at, here = todo.pop()
        if (at, here) in seen:
            continue
        seen.add((at, here))
        if phases[here].final and at == len(word):
            return True
        for arrow in phases[here].arrows:
            said = _done(lifecycle, arrow)
            if word[at : at + len(said)] == said:
                todo.append((at + len(said), arrow.goal))
    return False


@given(lifecycle=lifecycles(), data=st.data())
def test_every_way_through_a_lifecycle_is_allowed_by_its_picture(
    lifecycle: type[Lifecycle], data: st.DataObject
) -> None:
    assert Language(lifecycle).refusal(_walked(lifecycle, data)) is None


@given(lifecycle=lifecycles(), data=st.data())
def test_a_picture_allows_nothing_but_ways_through_its_lifecycle(
    lifecycle: type[Lifecycle], data: st.DataObject
) -> None:
    language, word = Language(lifecycle), list[str]()
    while len(word) < 25:
        if language.refusal(word) is None and data.draw(st.booleans()):
            break
        ways = language.goes_on(word)
        if not ways:
            break
        word.append(data.draw(st.sampled_from(ways)))

    assert language.refusal(word) is not None or _is_walk(lifecycle, tuple(word))


@given(lifecycle=lifecycles())
def test_the_full_picture_of_any_lifecycle_leaves_nothing_out(lifecycle: type[Lifecycle]) -> None:
    assert left_out(lifecycle, "full") == set()
