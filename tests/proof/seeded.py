"""Faults on purpose, in the tables and in the abstract performers, each with the invariant that must find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lifecycle.definition.agent import CLEAR, FIRE, IDLE, LATE, QUEUE, RUNNING, SUBMIT, WAKE, Agent
from lifecycle.definition.effects import hook, record
from lifecycle.definition.machine import ANYWHERE, Lifecycle, Phase
from lifecycle.definition.step import Step
from lifecycle.definition.turn import Turn
from lifecycle.proof.explorer import DEADLOCK
from lifecycle.proof.happenings import Happening
from lifecycle.proof.performers.agent import announce_edited_in, insert
from lifecycle.proof.performers.proposal import end_step
from lifecycle.proof.performers.tooling import drain, next_move
from lifecycle.proof.performers.turn import announce_claim, claim_first, end_turn
from lifecycle.proof.places import BLOCKED, Blocked, Drive, Faults, Performer
from lifecycle.proof.stepper import NEVER_RESTS
from lifecycle.proof.world import Scene


@dataclass(frozen=True)
class Seeded:
    """One fault. `bounds` are the smallest that show it."""

    finds: str
    lifecycle: type[Lifecycle] = Agent
    faulty: Faults = field(default_factory=lambda: {})
    bounds: Mapping[str, object] = field(default_factory=lambda: {})


SEEDED: dict[str, Seeded] = {}


def seeded(finds: str, *keys: str, **bounds: object) -> Callable[[Callable[[Scene], str | None]], None]:
    """A performer in the place of those of `keys`."""

    def seed(perform: Callable[[Scene], str | None]) -> None:
        faulty = {key: Performer(lambda scene, call: perform(scene)) for key in keys}
        SEEDED[perform.__name__.replace("_", " ")] = Seeded(finds, faulty=faulty, bounds=bounds)

    return seed


def misdeclared(finds: str, **bounds: object) -> Callable[[type[Lifecycle]], type[Lifecycle]]:
    """A lifecycle with a wrong arrow or phase."""

    def seed(lifecycle: type[Lifecycle]) -> type[Lifecycle]:
        SEEDED[(lifecycle.__doc__ or "").strip().rstrip(".")] = Seeded(finds, lifecycle, bounds=bounds)
        return lifecycle

    return seed


# -- input ------------------------------------------------------------------------------------------------------------


@seeded("nothing accepted runs twice", "no step")
def a_cancelled_claim_is_returned(scene: Scene) -> None:
    scene.world.published = False
    for id in scene.world.batch:
        scene.tell(Happening("agent/inbox/spliced", "insert", (id,), target="next-step"))


@seeded("nothing accepted is lost", "agent/inbox/claimed", messages=2)
def a_claim_drops_a_message(scene: Scene) -> None:
    announce_claim(scene)
    scene.world.claimed = scene.world.claimed[:1]


@seeded("nothing accepted is lost", "user/message")
def an_entered_message_is_not_admitted(scene: Scene) -> None:
    return None


@seeded("nothing accepted is lost", "agent/inbox/spliced:claim first", crashes=True)
def repair_gives_nothing_back(scene: Scene) -> None:
    claim_first(scene)
    scene.world.unsettled = ()


@seeded("a turn claims one prompt", "agent/inbox/spliced:claim first", messages=3)
def a_claim_takes_every_prompt(scene: Scene) -> None:
    claim_first(scene)
    rest, scene.world.next_turn = scene.world.next_turn, ()
    if rest:
        scene.tell(Happening("agent/inbox/spliced", "claim", rest, target="next-turn"))
    scene.world.claimed += rest


@seeded("no wake is forgotten", "agent/inbox/spliced:clear next-turn", messages=2)
def a_cancel_leaves_the_prompts_behind(scene: Scene) -> None:
    return None


@seeded("what becomes of input is announced once", "agent/inbox/discarded", messages=2)
def a_discard_is_not_announced(scene: Scene) -> None:
    return None


@seeded(
    "what becomes of input is announced once",
    "agent/inbox/inserted:edit",
    messages=2,
    odd=2,
    edits=True,
    listeners=True,
)
def what_an_edit_puts_in_is_told_too_late(scene: Scene) -> None:
    """As it was once: whoever hears the first half of the edit may discard what its second half is about."""
    if not scene.world.takes[:-1]:
        announce_edited_in(scene)


@misdeclared("nothing accepted runs twice", hooks=True, odd=2)
class _AdmitsAgain(Step):
    """A retry admits the messages again"""

    requesting = Step.requesting.but(
        *(
            record("user/message", times="*") if getattr(effect, "key", "") == "user/message" else effect
            for effect in Step.requesting.does
        )
    )


class _ClosingTurn(Turn):
    stopping = Turn.stopping.but(*Turn.stopping.does, record("step/end"))


@misdeclared("every step closes once")
class _ClosingAgent(Agent):
    """A turn closes its step once more"""

    running = Agent.running.but(runs=_ClosingTurn)


class _Reviewed(Step):
    reviewing = Phase(hook("agent/review", "waterfall"))
    succeed = Step.arrows("succeed").but(target=reviewing)
    approve = reviewing.to(Step.tooling)
    revise = reviewing.to(Step.requesting)


class _ReviewedTurn(Turn):
    stepping = Turn.stepping.but(runs=_Reviewed)


@misdeclared("results answer their calls in order", calls=1)
class _ReviewedAgent(Agent):
    """A review of the answer loses its calls"""

    running = Agent.running.but(runs=_ReviewedTurn)


@misdeclared("no wake is forgotten", messages=2)
class _Unchained(Agent):
    """The next prompt does not follow the turn before"""

    turned = (
        Agent.running.to(Agent.idle, emits=[IDLE])
        | Agent.converging.to(Agent.idle, emits=[IDLE])
        | Agent.latched.to(Agent.running, cond="pending", emits=[IDLE, WAKE, RUNNING])
        | Agent.latched.to(Agent.idle, emits=[IDLE])
    )


# -- the wake latch ---------------------------------------------------------------------------------------------------

_SUBMIT = (
    Agent.idle.again(cond="disposing", emits=QUEUE)
    | Agent.idle.to(Agent.running, emits=[*SUBMIT, WAKE, RUNNING])
    | Agent.running.again(emits=QUEUE)
    | Agent.latched.again(emits=LATE)
    | Agent.maintenance.to(Agent.maintenance_latched, emits=QUEUE)
    | Agent.maintenance_latched.again(emits=QUEUE)
)


@misdeclared("a latched wake is started", messages=2)
class _Forgetful(Agent):
    """A wake after the cancel is not latched"""

    submit = (
        _SUBMIT | Agent.converging.to(Agent.latched, cond="keeping", emits=LATE) | Agent.converging.again(emits=LATE)
    )


@misdeclared("no turn starts unasked", messages=2, causes=("disposed",))
class _Restless(Agent):
    """A wake during disposal is latched"""

    submit = _SUBMIT | Agent.converging.to(Agent.latched, emits=LATE)


@misdeclared("a latched wake is started", messages=2)
class _Asleep(Agent):
    """The latched wake is not started"""

    turned = (
        Agent.running.to(Agent.running, cond="pending and healthy and not disposing")
        | Agent.running.to(Agent.idle, emits=[IDLE])
        | Agent.converging.to(Agent.idle, emits=[IDLE])
        | Agent.latched.to(Agent.idle, emits=[IDLE])
    )


@misdeclared("a latched wake is started", maintenance=True)
class _Unmaintained(Agent):
    """A wake during maintenance is forgotten"""

    maintained = Agent.maintenance.to(Agent.idle) | Agent.maintenance_latched.to(Agent.idle)


@misdeclared("no turn starts unasked", messages=2, odd=2)
class _Stubborn(Agent):
    """The latched wake cannot be withdrawn"""

    cancel = (
        Agent.idle.again()
        | Agent.running.to(Agent.converging, emits=[*CLEAR, FIRE])
        | Agent.converging.again()
        | Agent.latched.again()
        | Agent.maintenance.again()
        | Agent.maintenance_latched.again()
    )


@seeded("a late wake gets a turn of its own", "agent/inbox/spliced:insert late", messages=2)
def a_late_steer_joins_the_next_step(scene: Scene) -> None:
    insert(scene)


# -- turns and steps --------------------------------------------------------------------------------------------------


@seeded("every turn closes once", "turn/end")
def a_turn_is_not_closed(scene: Scene) -> None:
    return None


@seeded("every turn closes once", "turn/end")
def a_turn_is_closed_twice(scene: Scene) -> None:
    end_turn(scene)
    scene.tell(Happening("turn/end", "completed", number=scene.world.number))


@seeded("nothing new starts after a cancel", "fire")
def a_cancel_fires_no_signal(scene: Scene) -> None:
    return None


@seeded("a turn has the reason of what befell it", "turn/end")
def a_cancelled_turn_ends_as_blocked(scene: Scene) -> None:
    if scene.world.cause:
        scene.world.cause, scene.world.reason = "", "blocked"
    end_turn(scene)


@misdeclared("a turn claims one prompt")
class _Hasty(Turn):
    """Input is claimed before the turn is opened"""

    opening = Turn.opening.but(*Turn.opened.does)
    opened = Turn.opened.but(*Turn.opening.does)


@misdeclared("every turn closes once", hooks=True)
class _Careless(Step):
    """A failed step is not closed"""

    fault = ANYWHERE.to(Step.ended)


@seeded("every step closes once", "step/end")
def a_step_is_closed_under_another_number(scene: Scene) -> None:
    scene.world.steps += 1
    end_step(scene)


@misdeclared("nothing new starts after a cancel")
class _Deaf(Step):
    """A cancel during pre-step opens the step all the same"""

    modelled = Step.modelled.but(settles=True)


@misdeclared("a proposal asks in order")
class _Blind(Step):
    """Pre-step is asked before the model is chosen"""

    boundary = Step.boundary.but(*Step.modelled.does)
    modelled = Step.modelled.but(*Step.boundary.does)


@seeded("agent step is published from the choice to the end", "step/end")
def agent_step_outlives_its_step(scene: Scene) -> None:
    end_step(scene)
    scene.world.published = True


# -- answers and tools ------------------------------------------------------------------------------------------------


@seeded("the tool set is disposed once", "dispose")
def the_tool_set_is_kept(scene: Scene) -> None:
    return None


@seeded("every stream settles once", "assistant/attempt:cut")
def a_stream_settles_twice(scene: Scene) -> None:
    if scene.world.stream:
        scene.tell(Happening("assistant/attempt"))
        scene.world.stream = "settling"


@seeded("every stream settles once", "assistant/message:interrupted", "assistant/attempt:cut")
def a_cut_stream_is_not_settled(scene: Scene) -> None:
    return None


def _settle_order(scene: Scene, call: int) -> Blocked | str:
    world = scene.world
    if world.calls:
        ended = tuple(n for n in world.started if not world.calls[n].running)
        world.started = (*ended, *(n for n in world.started if n not in ended))
    move = next_move(scene) if world.calls else "finish"
    return BLOCKED if move is None else move


def _any_ended(scene: Scene) -> bool:
    return next_move(scene) is not None or any(not scene.world.calls[n].running for n in scene.world.started)


SEEDED["results are committed in the order in which bodies end"] = Seeded(
    "results answer their calls in order",
    faulty={"classify pending call by executionMode": Performer(_settle_order, ready=_any_ended)},
    bounds={"calls": 2, "odd": 0},
)


@seeded("results answer their calls in order", "drain", calls=1)
def calls_that_never_started_have_no_result(scene: Scene) -> None:
    return None


def _waits_for_ever(scene: Scene, call: int) -> Blocked | Drive | None:
    return BLOCKED if scene.world.waiting else drain(scene, call)


SEEDED["a cancelled pool waits for what never started"] = Seeded(
    DEADLOCK,
    faulty={"drain": Performer(_waits_for_ever, ready=lambda scene: not scene.world.waiting)},
    bounds={"calls": 2},
)


# -- status -----------------------------------------------------------------------------------------------------------


@seeded("idle is last", "agent/status:running")
def running_is_not_told(scene: Scene) -> None:
    return None


@seeded("every turn closes once", "fire")
def a_cancelled_agent_says_idle_at_once(scene: Scene) -> None:
    scene.world.cause = scene.world.cause or scene.world.cancelling
    scene.tell(Happening("agent/status", "idle"))


@misdeclared(NEVER_RESTS)
class _Giddy(Agent):
    """A cancelled agent converges for ever"""

    turned = (
        Agent.running.to(Agent.running, cond="pending and healthy and not disposing")
        | Agent.running.to(Agent.idle, emits=[IDLE])
        | Agent.converging.to(Agent.converging)
        | Agent.latched.to(Agent.running, cond="pending", emits=[IDLE, WAKE, RUNNING])
        | Agent.latched.to(Agent.idle, emits=[IDLE])
    )
