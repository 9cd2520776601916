"""The walk: how any lifecycle is performed, and what holds its effects and their performers together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lifecycle.definition.effects import DRIVER, TOOLS, USER, answer, ask, hook, note, record, tell
from lifecycle.definition.machine import ANYWHERE, Lifecycle, NoFacts, Phase
from lifecycle.driver.performers.agent import AGENT
from lifecycle.driver.performers.call import CALL
from lifecycle.driver.performers.proposal import STEP
from lifecycle.driver.performers.turn import TURN
from lifecycle.driver.program import BODY, START, Perform, Performers, Program
from lifecycle.driver.programs import programs
from lifecycle.driver.walk import Drive, perform_now
from lifecycle.errors import DefinitionError, IllegalTransitionError
from lifecycle.services.signal import CancelSignal
from lifecycle.vocabulary.failures import DISPOSED_CANCEL, USER_CANCEL

pytestmark = pytest.mark.anyio


class Errand(Lifecycle):
    """Set out, walk with rests, and come home."""

    asked = Phase(ask(TOOLS, "think"), ask(TOOLS, "decide"), initial=True)
    walking = Phase(tell(TOOLS, "pack", times="once"), tell(TOOLS, "look"), ask(TOOLS, "walk"))
    resting = Phase(ask(TOOLS, "rest"), settles=True)
    home = Phase(final=True)

    set_out = asked.to(walking, emits=[tell(TOOLS, "wave")])
    onward = walking.again(emits=[tell(TOOLS, "count a mile")])
    sit_down = walking.to(resting)
    get_up = resting.to(walking)
    arrive = walking.to(home, emits=[tell(TOOLS, "greet"), ask(TOOLS, "eat")])
    abort = ANYWHERE.to(home, emits=[tell(TOOLS, "call off"), ask(TOOLS, "apologise")])
    fault = ANYWHERE.to(home, emits=[tell(TOOLS, "complain"), ask(TOOLS, "apologise")])


KEYS = [
    *["think", "decide", "pack", "look", "walk", "rest", "wave", "count a mile", "greet", "eat"],
    *["call off", "complain", "apologise"],
]
WAITING = {"decide", "walk", "rest", "eat", "apologise"}
"""Those whose performers may suspend."""

Said = str | BaseException | Callable[["Walker"], Any] | None


@dataclass
class Walker:
    """The working record: what was performed, and what each effect is to say, one entry a time."""

    script: Mapping[str, list[Said]] = field(default_factory=lambda: {})
    phase: str = "asked"
    signal: CancelSignal = field(default_factory=CancelSignal)
    error: Any = None
    log: list[str] = field(default_factory=lambda: [])
    stopped: BaseException | None = None
    inner: Walker | None = None

    def facts(self) -> NoFacts:
        return NoFacts()

    def stop(self, error: BaseException) -> None:
        self.stopped = error
        self.signal.fire(DISPOSED_CANCEL)

    def perform(self, key: str) -> Any:
        times = sum(1 for name in self.log if name == key)
        self.log.append(key)
        said = [*self.script.get(key, []), *[USUAL.get(key)] * (times + 1)][times]
        if isinstance(said, BaseException):
            raise said
        return said(self) if callable(said) else said


USUAL: Mapping[str, Said] = {"walk": "arrive"}
"""What an effect says that the script does not speak of."""


def performer(key: str) -> Perform:
    def perform(run: Walker) -> Any:
        return run.perform(key)

    async def perform_slowly(run: Walker) -> Any:
        await anyio.lowlevel.checkpoint()
        said = run.perform(key)
        return await said if hasattr(said, "__await__") else said

    return perform_slowly if key in WAITING else perform


def register(performers: Performers[Any], *keys: str) -> Performers[Any]:
    for key in keys:
        performers(key)(performer(key))
    return performers


def errand(lifecycle: type[Lifecycle] = Errand) -> Performers[Any]:
    return register(Performers(lifecycle), *KEYS)


PROGRAM = errand().program()


async def walked(run: Walker, program: Program = PROGRAM) -> str | None:
    """Perform a whole run; returns the event that ended it."""
    drive = Drive(program, run)
    with anyio.fail_after(5):
        await drive.run()
    return drive.ended


def cancel(run: Walker) -> None:
    run.signal.fire(USER_CANCEL)


# -- the seam -------------------------------------------------------------------------------------------------------


def test_our_own_performers_fit_our_own_lifecycles_both_ways() -> None:
    for performers in (AGENT, TURN, STEP, CALL):
        assert performers.program().interruptible is (performers is not AGENT)
    assert programs(None, {}) is programs(None, {})


def test_an_effect_that_nobody_performs_is_refused_and_named() -> None:
    with pytest.raises(DefinitionError, match=r"^Errand\.walking: nobody performs 'pack'"):
        register(Performers(Errand), *[key for key in KEYS if key != "pack"]).program()
    with pytest.raises(DefinitionError, match=r"^Errand\.arrive: nobody performs 'greet'"):
        register(Performers(Errand), *[key for key in KEYS if key != "greet"]).program()


def test_a_performer_without_an_effect_is_refused_and_named() -> None:
    with pytest.raises(DefinitionError, match=r"^Errand: the performer of 'dance' has no effect to perform$"):
        register(errand(), "dance").program()


def test_two_performers_of_one_effect_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"^Errand: 'walk' has a performer already$"):
        register(errand(), "walk")


class Chatty(Errand):
    walking = Errand.walking.but(
        *Errand.walking.does,
        tell(TOOLS, "hum", inner=True, times="*"),
        answer(TOOLS, "a tune"),
        note(DRIVER, text="a nice one"),
    )


def humming(lifecycle: type[Lifecycle]) -> Performers[Any]:
    """Performers of which the one that walks also hums."""
    performers = register(Performers[Any](lifecycle), *[key for key in KEYS if key != "walk"])
    performers("walk", inner=["hum"])(performer("walk"))
    return performers


def test_an_inner_effect_must_be_performed_by_somebody_and_an_inner_performance_declared() -> None:
    says = "the inner effect 'hum' is declared but not performed, or the reverse"
    assert humming(Chatty).program()
    with pytest.raises(DefinitionError, match=f"^Chatty: {says}$"):
        errand(Chatty).program()
    with pytest.raises(DefinitionError, match=f"^Errand: {says}$"):
        humming(Errand).program()


def test_what_a_person_does_has_no_performer() -> None:
    class Asked(Errand):
        set_out = Errand.asked.to(Errand.walking, emits=[tell(TOOLS, "send off", sender=USER), tell(TOOLS, "wave")])

    assert errand(Asked).program()


def test_a_nested_lifecycle_needs_somebody_who_says_how_it_begins() -> None:
    with pytest.raises(DefinitionError, match=r"^Holiday: nobody says how a run of Errand begins$"):
        Performers(Holiday).program()


class Sung(Errand):
    """What a user derives: one more effect, and a hook."""

    walking = Errand.walking.but(record("errand/song"), hook("errand/step", "serial"), *Errand.walking.does)


async def test_a_users_effect_is_performed_by_the_fallback_or_by_what_the_user_brings() -> None:
    with pytest.raises(DefinitionError, match=r"^Sung\.walking: nobody performs 'errand/song'; give the agent a perf"):
        errand().program(Sung)

    performers = errand()
    performers.otherwise(lambda effect: performer(effect.key) if effect.name == "errand/step" else None)
    run = Walker()
    await walked(run, performers.program(Sung, {"errand/song": performer("errand/song"), "pack": performer("look")}))

    assert run.log == ["think", "decide", "wave", "errand/song", "errand/step", "look", "look", "walk", "greet", "eat"]


# -- performing -----------------------------------------------------------------------------------------------------


async def test_a_phase_does_its_effects_in_order_and_its_last_one_says_what_follows() -> None:
    run = Walker()

    assert await walked(run) == "arrive"
    assert run.log == ["think", "decide", "wave", "pack", "look", "walk", "greet", "eat"]
    assert run.phase == "home"


async def test_nothing_that_does_not_suspend_waits_for_a_task() -> None:
    run = Walker()
    drive = Drive(PROGRAM, run)
    drive.start()

    assert (run.log, run.phase, drive.ended) == (["think"], "asked", None)
    await drive.run()
    assert drive.ended == "arrive"


async def test_once_is_done_on_the_first_entry_only_and_an_arrow_back_asks_the_last_effect_again() -> None:
    run = Walker({"walk": ["onward", "sit_down", "onward", "arrive"]})
    await walked(run)

    assert run.log == [
        *["think", "decide", "wave"],
        *["pack", "look", "walk", "count a mile", "walk"],
        *["rest", "look", "walk", "count a mile", "walk"],
        *["greet", "eat"],
    ]


async def test_a_phase_that_has_nothing_to_say_and_several_ways_out_is_a_mistake_that_is_named() -> None:
    run = Walker({"walk": [lambda _: None]})
    await walked(run)

    assert isinstance(run.error, DefinitionError)
    assert str(run.error) == (
        "Errand.walking: the performer of the last effect must return one of onward, sit_down, arrive"
    )


async def test_an_event_that_the_phase_does_not_take_is_a_fault_and_what_is_owed_is_performed() -> None:
    run = Walker({"walk": ["get_up"]})
    await walked(run)

    assert isinstance(run.error, IllegalTransitionError)
    assert str(run.error).startswith("Errand cannot take 'get_up' in phase 'walking'")
    assert run.log[-2:] == ["complain", "apologise"]


class Resting(Lifecycle):
    """A lifecycle that rests, and comes to no end by itself."""

    idle = Phase(initial=True)
    busy = Phase(tell(TOOLS, "walk"))
    gone = Phase(final=True)

    begin = idle.to(busy, emits=[tell(TOOLS, "wave")])
    again = busy.again(emits=[tell(TOOLS, "look")])
    arrive = busy.to(idle)
    leave = idle.to(gone)


RESTING = register(Performers(Resting), "walk", "wave", "look").program()


async def test_a_phase_that_does_nothing_is_where_the_walk_rests() -> None:
    run = Walker(phase="idle")
    assert await walked(run, RESTING) == ""

    perform_now(RESTING, run, "begin")
    assert await walked(run, RESTING) == ""
    assert (run.phase, run.log) == ("idle", ["wave", "walk"])


# -- failing and being cancelled ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["think", "decide", "pack", "walk", "rest"])
async def test_what_an_effect_raises_is_a_fault_and_what_is_owed_is_performed(key: str) -> None:
    wrong = ValueError("no further")
    run = Walker({"walk": ["sit_down"], **{key: [wrong]}})

    assert await walked(run) == "fault"
    assert run.log[-3:] == [key, "complain", "apologise"]
    assert (run.error, run.phase) == (wrong, "home")


@pytest.mark.parametrize("key", ["think", "decide", "look", "walk"])
async def test_a_fired_signal_is_noticed_before_and_after_whatever_may_wait(key: str) -> None:
    run = Walker({key: [cancel]})

    assert await walked(run) == "abort"
    assert run.log[-3:] == [key, "call off", "apologise"]
    assert run.error is None


async def test_cancelled_beats_failed() -> None:
    def both(run: Walker) -> None:
        cancel(run)
        raise ValueError("because of the cancel")

    run = Walker({"walk": [both]})
    assert await walked(run) == "abort"
    assert run.error is None


async def test_a_phase_that_settles_does_what_it_does_whatever_the_signal_says() -> None:
    run = Walker({"walk": ["sit_down", "arrive"], "rest": [cancel]})
    assert await walked(run) == "abort"
    assert run.log[-4:] == ["rest", "look", "call off", "apologise"]  # it got up first; the next phase noticed

    wrong = ValueError("no rest")
    run = Walker({"walk": ["sit_down"], "rest": [wrong]})
    assert await walked(run) == "fault"
    assert run.error is wrong


async def test_a_failure_of_a_settling_phase_stays_a_failure_although_the_signal_has_fired() -> None:
    def both(run: Walker) -> None:
        cancel(run)
        raise ValueError("of its own")

    run = Walker({"walk": ["sit_down"], "rest": [both]})
    assert await walked(run) == "fault"
    assert str(run.error) == "of its own"


@pytest.mark.parametrize("key", ["greet", "eat"])
async def test_an_arrow_whose_effects_raise_was_not_taken(key: str) -> None:
    where: list[str] = []
    run = Walker({key: [ValueError("not like this")], "complain": [lambda run: where.append(run.phase)]})

    assert await walked(run) == "fault"
    assert run.log[-3:] == [key, "complain", "apologise"]
    assert str(run.error) == "not like this"
    assert where == ["home"]  # the arrow of the fault leads there, and it started in `walking`


async def test_an_arrow_whose_effects_raise_after_a_cancel_becomes_an_abort() -> None:
    def both(run: Walker) -> None:
        cancel(run)
        raise ValueError("because of the cancel")

    run = Walker({"greet": [both]})
    assert await walked(run) == "abort"
    assert run.error is None


async def test_the_first_failure_is_the_one_that_is_told() -> None:
    first = ValueError("the first")
    run = Walker({"walk": [ValueError("the second")]}, error=first)  # as a nested run leaves it

    assert await walked(run) == "fault"
    assert run.error is first


@pytest.mark.parametrize(("first", "event"), [("call off", "abort"), ("complain", "fault")])
async def test_all_that_is_owed_is_performed_even_if_a_part_raises(first: str, event: str) -> None:
    begins: Said = cancel if event == "abort" else ValueError("the first failure")
    run = Walker({"walk": [begins], first: [OSError("while closing")]})

    assert await walked(run) == event
    assert run.log[-2:] == [first, "apologise"]
    assert str(run.error) == ("None" if event == "abort" else "the first failure")


async def test_the_host_cancels_and_what_is_owed_is_performed_shielded() -> None:
    began = anyio.Event()

    def forever(run: Walker) -> Any:
        async def wait() -> str:
            began.set()
            await anyio.sleep_forever()
            return "arrive"

        return wait()

    run, over = Walker({"walk": [forever]}), list[str]()

    async def drive() -> None:
        try:
            await Drive(PROGRAM, run).run()
        finally:
            over.append(run.log[-1])

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(drive)
            await began.wait()
            group.cancel_scope.cancel()
    assert run.log[-3:] == ["walk", "call off", "apologise"]  # `apologise` waits, and was let
    assert run.signal.cause == DISPOSED_CANCEL
    assert isinstance(run.stopped, BaseException)
    assert over == ["apologise"]


async def test_a_drive_goes_no_further_than_its_lane_and_on_from_there() -> None:
    class Queued(Errand):
        resting = Errand.resting.but(lane="body")

    run = Walker({"walk": ["sit_down", "arrive"]})
    drive = Drive(errand(Queued).program(), run)
    await drive.run(lane=START)
    assert (run.phase, run.log[-1], drive.ended) == ("resting", "walk", None)

    await drive.run(lane=BODY)
    assert (run.phase, drive.ended) == ("home", "arrive")
    await drive.run()  # there is nothing left to perform
    assert run.log.count("eat") == 1


async def test_what_waits_to_be_performed_is_left_out_if_the_signal_fires_first() -> None:
    run = Walker()
    drive = Drive(PROGRAM, run)
    drive.start()
    cancel(run)  # the task that goes on begins later
    await drive.run()

    assert run.log == ["think", "call off", "apologise"]


# -- one lifecycle in another ---------------------------------------------------------------------------------------


class Holiday(Lifecycle):
    """Two errands, if all goes well."""

    first = Phase(initial=True, runs=Errand, then={"arrive": "on", "abort": "abort", "fault": "spoilt"})
    second = Phase(runs=Errand, then={"arrive": "on", "abort": "abort", "fault": "spoilt"})
    ending = Phase(tell(TOOLS, "greet"), settles=True)
    over = Phase(final=True)

    on = first.to(second) | second.to(ending)
    spoilt = first.to(ending) | second.to(ending)
    close = ending.to(over)
    abort = ANYWHERE.to(over, emits=[tell(TOOLS, "call off")])
    fault = ANYWHERE.to(over, emits=[tell(TOOLS, "complain")])


def holiday(script: Mapping[str, list[Said]]) -> tuple[Program, Walker]:
    """A holiday whose errands share its record's signal, error and log; each follows the script from its beginning."""
    outer = Walker(script, phase="first")
    performers = register(Performers[Any](Holiday), "greet", "call off", "complain")

    def begin(run: Walker) -> Walker:
        run.inner = Walker(script, signal=run.signal, error=run.error)
        run.log.append("begin")
        return run.inner

    performers.runs(errand(), begin)
    return performers.program(), outer


async def test_the_event_that_ends_a_nested_run_leads_on_as_declared() -> None:
    program, run = holiday({})

    assert await walked(run, program) == "close"
    assert run.log == ["begin", "begin", "greet"]
    assert run.inner is not None
    assert run.inner.phase == "home"

    program, run = holiday({"walk": [ValueError("rain")]})
    assert await walked(run, program) == "close"
    assert run.log == ["begin", "greet"]  # spoilt


async def test_a_cancel_that_a_nested_run_ended_before_it_noticed_is_noticed_by_the_outer_one() -> None:
    program, run = holiday({"eat": [cancel]})  # the last thing that the errand does

    assert await walked(run, program) == "abort"
    assert run.inner is not None
    assert run.inner.log[-1] == "eat"
    assert run.log == ["begin", "call off"]


# -- from outside ---------------------------------------------------------------------------------------------------


def test_an_arrow_from_outside_performs_its_effects_at_once() -> None:
    run = Walker(phase="idle")
    perform_now(RESTING, run, "begin")

    assert (run.phase, run.log) == ("busy", ["wave"])
    with pytest.raises(IllegalTransitionError, match=r"^Resting cannot take 'leave' in phase 'busy'"):
        perform_now(RESTING, run, "leave")
    assert run.phase == "busy"


@pytest.mark.parametrize(("phase", "event", "key"), [("idle", "begin", "wave"), ("busy", "again", "look")])
def test_an_arrow_from_outside_whose_effects_raise_was_not_taken(phase: str, event: str, key: str) -> None:
    run = Walker({key: [ValueError("refused")]}, phase=phase)
    with pytest.raises(ValueError, match="refused"):
        perform_now(RESTING, run, event)

    assert (run.phase, run.error) == (phase, None)
    perform_now(RESTING, run, event)  # nothing of the first time is left
    assert run.phase == "busy"


def test_the_phase_has_changed_before_the_first_effect_so_that_it_may_lead_on() -> None:
    seen: list[str] = []

    def onward(run: Walker) -> None:
        seen.append(run.phase)
        perform_now(RESTING, run, "again")

    run = Walker({"wave": [onward]}, phase="idle")
    perform_now(RESTING, run, "begin")

    assert (seen, run.log, run.phase) == (["busy"], ["wave", "look"], "busy")


def test_an_arrow_that_led_on_before_it_failed_takes_all_of_it_back() -> None:
    def onward(run: Walker) -> None:
        perform_now(RESTING, run, "again")
        raise ValueError("after all")

    run = Walker({"wave": [onward]}, phase="idle")
    with pytest.raises(ValueError, match="after all"):
        perform_now(RESTING, run, "begin")
    assert run.phase == "idle"
