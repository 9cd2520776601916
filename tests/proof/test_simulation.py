"""Our own driver under simulation: thousands of scenarios on both backends, one log each, and the invariants of all."""

from __future__ import annotations

import dataclasses
import gc
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from pydantic import ValidationError

from lifecycle import Agent, Enter, Hooks
from lifecycle.driver.runs import AgentRun
from lifecycle.errors import IllegalVerdictError, ReentrantAppendError
from lifecycle.proof.simulation import Backend
from lifecycle.testing import (
    INVARIANTS,
    Act,
    Answer,
    AskedCall,
    HookScript,
    Move,
    Scenario,
    Simulated,
    ToolScript,
    problems,
    simulate,
)
from lifecycle.testing.actors import ScriptedFault
from lifecycle.testing.scenario import behaviours
from lifecycle.testing.strategies import hook_scripts, scenarios, vetoes
from lifecycle.vocabulary.events import TurnEnd
from lifecycle.vocabulary.failures import Errored
from lifecycle.vocabulary.messages import user_message

BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")
both = pytest.mark.parametrize("backend", BACKENDS)

PARALLEL = Scenario(
    moves=(Move(text="look"), Move(at=9, verb="steer", text="and"), Move(at=16, verb="cancel", cause="parent")),
    answers=(
        Answer(text=("so ", "be it"), calls=(AskedCall(), AskedCall(), AskedCall(tool="slow"))),
        Answer(calls=(AskedCall(tool="slow"), AskedCall(tool="slow"))),
    ),
    tools=(
        ToolScript(parallel=True, lasts=2, defers=("context",), records=1),
        ToolScript(name="slow", parallel=True, lasts=3, lingers=1),
    ),
    choices=(1, 2, 0, 1, 1, 2, 1, 0, 1),
)
"""Several bodies overlap, one is cancelled, one lingers."""


# -- the search ---------------------------------------------------------------------------------------------------


def internal(run: Simulated) -> list[str]:
    """Exceptions of the driver's own that a run has told or contained: scripted parts raise nothing like them."""
    ours = (ScriptedFault, IllegalVerdictError, ReentrantAppendError)
    found = [
        f"logged {record.getMessage()}: {record.exc_info[1]!r}"
        for record in run.logged
        if record.exc_info and record.exc_info[1] is not None and not isinstance(record.exc_info[1], ours)
    ]
    told = tuple(kind.__name__ for kind in ours)
    for reason in run.reasons:
        if isinstance(reason, Errored) and reason.error.code == "UNKNOWN" and reason.error.status is None:
            known = (*told, "as scripted", "the provider reported an error without")
            if not reason.error.message.startswith(known):
                found.append(f"a turn ended with {reason.error.message}")
    return found


def search(strategy: SearchStrategy[Scenario], examples: int, backends: tuple[Backend, ...] = BACKENDS) -> str:
    """Run so many scenarios on each backend: no invariant is broken, and the moves and logs are the same on all.

    Returns how fast it was.
    """
    spent: Counter[str] = Counter()
    ran: Counter[str] = Counter()

    @settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
    )
    @given(strategy)
    def each(scenario: Scenario) -> None:
        runs: list[Simulated] = []
        for n, backend in enumerate(backends):
            witnessed = (n + len(scenario.moves)) % len(backends) == 0  # to listen, and not to, gives one log
            started = time.perf_counter()
            run = simulate(scenario, backend=backend, witnessed=witnessed)
            spent[backend] += int(1e6 * (time.perf_counter() - started))
            ran[backend] += 1
            assert problems(run) == []
            assert internal(run) == []
            runs.append(run)
        for other in runs[1:]:
            assert other.moves == runs[0].moves
            assert other.lines == runs[0].lines

    each()
    return ", ".join(
        f"{backend}: {ran[backend]} runs, {60e6 * ran[backend] / spent[backend]:,.0f} a minute" for backend in ran
    )


def test_thousands_of_scenarios_give_one_log_on_both_backends_and_break_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    speed = search(scenarios(), 2_000)

    with capsys.disabled():
        sys.stdout.write(f"\n    {speed}\n")


@both
def test_a_stream_that_is_cut_by_its_outer_hook_is_closed_down_to_the_inner_one(backend: Backend) -> None:
    wrappers = tuple(HookScript(point="llm/stream", does=does) for does in ("cut", "rewrite"))

    simulate(Scenario(moves=(Move(),), hooks=wrappers), backend=backend)

    gc.collect()  # a generator that was left open complains when it is collected


@pytest.mark.parametrize("backend", BACKENDS)
def test_scenarios_with_interleaved_callbacks_break_nothing(backend: Backend) -> None:
    search(scenarios(interleaved=True), 200, (backend,))


def test_scenarios_with_vetoes_break_nothing() -> None:
    """Where every second step is refused, a log is short; so they have a search of their own."""
    search(scenarios(hooks=vetoes()), 200)


@pytest.mark.slow
def test_many_more_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    speed = search(scenarios(most_hooks=4, most_moves=6), 30_000)
    for backend in BACKENDS:
        search(scenarios(interleaved=True), 10_000, (backend,))
    search(scenarios(hooks=vetoes()), 10_000)

    with capsys.disabled():
        sys.stdout.write(f"\n    {speed}\n")


# -- identity -----------------------------------------------------------------------------------------------------


@both
def test_the_same_scenario_gives_the_same_log_twice(backend: Backend) -> None:
    once, again = simulate(PARALLEL, backend=backend), simulate(PARALLEL, backend=backend, trace=True)

    assert once.lines == again.lines
    assert once.moves == again.moves
    assert [(one.domain, one.name) for one in once.happened] == [(one.domain, one.name) for one in again.happened]
    assert again.trace is not None
    assert again.trace.names("D") == [event.type for event in again.events]


@both
def test_interleaved_callbacks_come_again_in_the_same_order(backend: Backend) -> None:
    scenario = PARALLEL.model_copy(update={"interleaving": (1, 0, 2, 1, 1, 2, 0, 1) * 8})

    assert simulate(scenario, backend=backend).lines == simulate(scenario, backend=backend).lines


def test_other_choices_give_another_log() -> None:
    logs = {simulate(PARALLEL.model_copy(update={"choices": (n,) * 9})).lines for n in range(3)}

    assert len(logs) == 3


def talkative() -> Hooks:
    """Hooks that wrap bodies which run side by side, and write to the log as soon as these have ended."""
    hooks = Hooks()

    async def wrap(payload: Any, next: Callable[[], Any]) -> Any:
        payload.agent.inject(f"{payload.call.id} begins")
        with anyio.move_on_after(0.75, shield=True):
            await anyio.sleep(0.5)
        outcome = await next()
        payload.agent.inject(user_message(f"{payload.call.id} has ended"))
        return outcome

    hooks.listen("tools/execute", wrap)
    return hooks


@given(scenarios(most_hooks=1))
@settings(max_examples=100)
def test_hooks_around_bodies_that_overlap_see_the_same_on_both_backends(scenario: Scenario) -> None:
    on_asyncio, on_trio = (simulate(scenario, talkative, backend=backend) for backend in BACKENDS)

    assert on_asyncio.moves == on_trio.moves
    assert on_asyncio.lines == on_trio.lines


# -- time ---------------------------------------------------------------------------------------------------------


@both
def test_a_hook_that_waits_an_hour_takes_none(backend: Backend) -> None:
    hook = HookScript(point="agent/pre-step", does="sleep", seconds=3_600)

    run = simulate(Scenario(moves=(Move(),), hooks=(hook,)), backend=backend)

    claimed, started = (next(iter(run.durable(name))) for name in ("turn/start", "step/start"))
    assert run.seconds == 3_600
    assert started.time - claimed.time == 3_600_001  # and one move
    assert "time passes to 3600" in run.moves


def test_the_outside_world_can_act_while_time_passes() -> None:
    hook = HookScript(point="agent/pre-step", does="sleep", seconds=9)

    run = simulate(Scenario(moves=(Move(), Move(at=1, verb="cancel")), hooks=(hook,)))

    assert run.moves == ("followup 'hello'", "cancel user", "time passes to 5", "time passes to 9", "the host leaves")
    assert [reason.kind for reason in run.reasons] == ["aborted"]


# -- data ---------------------------------------------------------------------------------------------------------


@given(scenarios(interleaved=True))
def test_a_scenario_can_be_written_down_and_read_back(scenario: Scenario) -> None:
    assert Scenario.loads(scenario.dumps()) == scenario


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"point": "agent/nowhere", "does": "raise"}, "there is no hook point 'agent/nowhere'"),
        ({"point": "agent/status", "does": "slow"}, "a hook at agent/status can raise, act, and not slow"),
        ({"point": "agent/status", "does": "act", "nth": 0}, "would call itself for ever"),
        ({"point": "agent/model", "does": "act", "acts": [{"verb": "dispose"}]}, "only the outside world can dispose"),
    ],
)
def test_an_impossible_hook_is_refused_with_what_would_be_possible(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        HookScript.model_validate(wrong)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="two tools have one name"):
        Scenario(tools=(ToolScript(), ToolScript()))


def test_a_run_on_asyncio_needs_neither_hypothesis_nor_trio() -> None:
    script = (
        "import sys; from lifecycle.testing import Move, Scenario, simulate; simulate(Scenario(moves=(Move(),)));"
        "print(*sorted({'hypothesis', 'trio'} & set(sys.modules)))"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == []


@given(hook_scripts())
def test_the_strategies_make_only_hooks_that_are_possible(hook: HookScript) -> None:
    assert hook.does in behaviours(hook.point)


# -- what a run can come to ---------------------------------------------------------------------------------------

HELLO = Scenario(moves=(Move(),))


@both
def test_a_hook_that_waits_for_what_never_comes_is_stuck(backend: Backend) -> None:
    def hooks() -> Hooks:
        hooks = Hooks()

        async def wait(payload: Any) -> None:
            await anyio.Event().wait()

        hooks.listen("agent/turn-stopping", wait)
        return hooks

    run = simulate(HELLO, hooks, backend=backend)

    assert run.end == "stuck"
    assert run.phase.startswith("running/stopping")
    assert run.moves[-3:] == ("the host leaves", "time passes to 5", "the host is cancelled")
    assert any("the run is stuck in phase running/stopping" in said for said in problems(run))


@both
def test_a_hook_that_asks_for_more_each_time_makes_the_run_endless(backend: Backend) -> None:
    def hooks() -> Hooks:
        hooks = Hooks()
        hooks.listen("agent/turn-stopping", lambda payload: payload.agent.steer("more") and None)
        return hooks

    run = simulate(HELLO, hooks, backend=backend, most_moves=50)

    assert run.end == "endless"
    assert run.reasons[-1].kind == "aborted"


@both
def test_a_move_that_never_ends_makes_the_run_endless(backend: Backend) -> None:
    def hooks() -> Hooks:
        hooks = Hooks()

        async def fail(payload: Any, next: Callable[[], Any]) -> Any:
            raise ScriptedFault("no")

        def go_on(payload: Any) -> None:
            if payload.status == "idle":
                payload.agent.followup("go on")

        hooks.listen("agent/model", fail)
        hooks.listen("agent/status", go_on)
        return hooks

    run = simulate(HELLO, hooks, backend=backend)

    assert run.end == "endless"
    assert len(run.events) < 1_000
    assert any("the run is endless" in said for said in problems(run))


@both
def test_what_comes_out_of_the_agents_context_is_kept(backend: Backend) -> None:
    def hooks() -> Hooks:
        hooks = Hooks()

        def refuse(payload: object) -> None:
            raise ScriptedFault("no")

        hooks.listen("agent/created", refuse)
        return hooks

    run = simulate(HELLO, hooks, backend=backend)

    assert run.end == "failed"
    assert isinstance(run.error, ScriptedFault)
    assert run.moves == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@both
def test_a_hook_that_turns_on_the_spot_is_found(backend: Backend) -> None:
    def hooks() -> Hooks:
        hooks = Hooks()

        async def poll(payload: Any) -> None:
            while payload.agent.status == "running":
                await anyio.lowlevel.checkpoint()

        hooks.listen("agent/turn-stopping", poll)
        return hooks

    run = simulate(HELLO, hooks, backend=backend)

    assert run.end == "failed"
    assert run.error is not None
    del run
    gc.collect()  # what trio had to abandon complains when it is collected


def test_a_task_that_a_hook_leaves_behind_is_named() -> None:
    import asyncio

    left: list[asyncio.Task[None]] = []

    def hooks() -> Hooks:
        hooks = Hooks()

        async def forgotten() -> None:
            await asyncio.Event().wait()

        def leave(payload: Any) -> None:
            left.append(asyncio.create_task(forgotten(), name="the forgotten one"))

        hooks.listen("agent/status", leave)
        return hooks

    run = simulate(HELLO, hooks)

    assert run.leaked == ("the forgotten one", "the forgotten one")
    assert any("tasks left" in said for said in problems(run))


def test_a_maintenance_task_runs_while_no_turn_does() -> None:
    run = simulate(Scenario(moves=(Move(verb="maintain", lasts=2), Move(at=1), Move(at=9, verb="maintain"))))

    assert run.moves[:5] == ("maintain", "followup 'hello'", "maintenance", "maintenance", "request 1 chunk 0")
    assert run.end == "idle"


@both
def test_an_agent_can_be_disposed_of_in_the_middle(backend: Backend) -> None:
    run = simulate(PARALLEL.model_copy(update={"moves": (Move(), Move(at=5, verb="dispose"))}), backend=backend)

    assert (run.end, run.phase) == ("idle", "disposed")
    assert problems(run) == []
    assert [reason.kind for reason in run.reasons] == ["aborted"]


@both
def test_the_scope_around_the_agent_can_be_cancelled_in_the_middle(backend: Backend) -> None:
    run = simulate(PARALLEL.model_copy(update={"moves": (Move(), Move(at=9, verb="abandon"))}), backend=backend)

    assert (run.end, run.phase) == ("idle", "disposed")
    assert "call-1-3 lingers" in run.moves
    assert problems(run) == []
    assert [event.data.reason.to_json() for event in run.events if isinstance(event.data, TurnEnd)] == [
        {"kind": "aborted", "reason": {"kind": "disposed"}}
    ]


def test_the_agent_can_be_prepared_by_the_caller() -> None:
    seen: list[Agent] = []

    run = simulate(HELLO, before=seen.append)

    assert seen == [run.agent]


# -- the invariants see what is wrong -----------------------------------------------------------------------------


def without(run: Simulated, name: str, nth: int = 0) -> Simulated:
    """The run, its story doctored: one happening is missing."""
    gone = [one for one in run.story if one.happening.name == name][nth]
    return dataclasses.replace(run, story=tuple(one for one in run.story if one is not gone))


def twice(run: Simulated, name: str) -> Simulated:
    """The run, its story doctored: one thing happens twice."""
    at = next(n for n, one in enumerate(run.story) if one.happening.name == name)
    return dataclasses.replace(run, story=(*run.story[: at + 1], *run.story[at:]))


FAILING = PARALLEL.model_copy(
    update={"moves": (*PARALLEL.moves[:2], Move(at=99)), "answers": (*PARALLEL.answers, Answer(), Answer(breaks_at=0))}
)
"""One turn that ends well, and one that fails."""

DOCTORED: list[tuple[str, Callable[[Simulated], Simulated]]] = [
    ("a_turn_claims_one_prompt", lambda run: without(run, "turn/start")),
    ("every_turn_closes_once", lambda run: twice(run, "turn/end")),
    ("idle_is_last", lambda run: without(run, "agent/status")),
    ("every_step_closes_once", lambda run: without(run, "step/start")),
    ("every_step_closes_once", lambda run: twice(run, "step/end")),
    ("results_answer_their_calls_in_order", lambda run: without(run, "tool/result")),
    ("results_answer_their_calls_in_order", lambda run: without(run, "tool/call")),
    ("results_answer_their_calls_in_order", lambda run: twice(run, "tool/result")),
    ("nothing_accepted_is_lost", lambda run: without(run, "user/message")),
    ("nothing_accepted_runs_twice", lambda run: twice(run, "user/message")),
    ("what_becomes_of_input_is_announced_once", lambda run: without(run, "agent/inbox/spliced")),
    ("what_becomes_of_input_is_announced_once", lambda run: without(run, "agent/inbox/inserted")),
    ("what_becomes_of_input_is_announced_once", lambda run: twice(run, "agent/inbox/claimed")),
    ("every_stream_settles_once", lambda run: without(run, "assistant/message")),
    ("every_stream_settles_once", lambda run: twice(run, "agent/assistant-stream end")),
    ("a_turn_has_the_reason_of_what_befell_it", lambda run: without(run, "agent/error")),
    ("a_proposal_asks_in_order", lambda run: without(run, "agent/model")),
    ("steps_outlive_their_parts", lambda run: dataclasses.replace(run, outlived=(9,))),
    ("comes_to_rest", lambda run: dataclasses.replace(run, end="stuck")),
    ("comes_to_rest", lambda run: dataclasses.replace(run, bodies=1)),
    ("comes_to_rest", lambda run: dataclasses.replace(run, leaked=("a task",))),
    ("comes_to_rest", lambda run: dataclasses.replace(run, happened=run.happened[5:])),
]


@pytest.mark.parametrize(("name", "doctor"), DOCTORED)
def test_an_invariant_sees_a_doctored_run(name: str, doctor: Callable[[Simulated], Simulated]) -> None:
    run = simulate(FAILING)
    assert problems(run) == []

    assert [*INVARIANTS[name](doctor(run))] != []


@both
def test_what_an_agent_leaves_out_is_missed(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    tell = AgentRun.tell

    def silent(run: AgentRun, point: str, *rest: Any) -> None:
        if point != "agent/inbox/inserted":
            tell(run, point, *rest)

    monkeypatch.setattr(AgentRun, "tell", silent)
    edit = Move(at=1, verb="replace")

    run = simulate(Scenario(moves=(Move(verb="inject"), edit)), backend=backend)

    assert run.broken is not None


def test_a_hook_that_drops_a_message_may_do_so() -> None:
    def hooks() -> Hooks:
        hooks = Hooks()

        async def drop(payload: Any, next: Callable[[], Any]) -> Any:
            return Enter(())

        hooks.listen("agent/pre-step", drop)
        return hooks

    run = simulate(HELLO, hooks)

    assert problems(run) == []
    assert [event.data.reason.kind for event in run.events if isinstance(event.data, TurnEnd)] == ["completed"]


# -- kept ---------------------------------------------------------------------------------------------------------


def test_what_a_listener_does_comes_after_what_it_was_told_in_the_feed() -> None:
    """Found by the search: a prompt sent by a listener of the idle status was told before that status itself."""
    hook = HookScript(point="agent/status", does="act", nth=2, acts=(Act(),))

    run = simulate(Scenario(moves=(Move(),), hooks=(hook,)))

    assert run.statuses == ("running", "idle", "running", "idle")
