"""Virtual time and chosen order on both backends, and what they lean on inside of these."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio
from hypothesis import find, settings
from hypothesis import strategies as st

from lifecycle.errors import SimulationError
from lifecycle.proof.simulation import Backend, Clockwork, Simulation, run_virtually

BACKENDS: tuple[Backend, ...] = ("asyncio", "trio")
both = pytest.mark.parametrize("backend", BACKENDS)

Script = Callable[[Simulation, list[object]], Coroutine[Any, Any, None]]


def play(
    script: Script, backend: Backend, choices: tuple[int, ...] = (), interleaving: tuple[int, ...] | None = None
) -> list[object]:
    """What a script notes down, run under the schedule."""
    noted: list[object] = []
    sim = Simulation(choices)

    async def main(clockwork: Clockwork) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sim.conduct, clockwork)
            await script(sim, noted)
            sim.over = True

    run_virtually(main, backend=backend, interleaving=interleaving)
    return noted


async def side_by_side(*bodies: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    async with anyio.create_task_group() as tasks:
        for body in bodies:
            tasks.start_soon(body)


# -- time ---------------------------------------------------------------------------------------------------------


async def sleepers(sim: Simulation, noted: list[object]) -> None:
    def sleeper(name: str, *seconds: float) -> Callable[[], Coroutine[Any, Any, None]]:
        async def sleep() -> None:
            for one in seconds:
                await anyio.sleep(one)
                noted.append((name, anyio.current_time()))

        return sleep

    await side_by_side(sleeper("a", 2, 1), sleeper("b", 1, 1, 1), sleeper("c", 3600), sleeper("d", 0, 1))


@both
def test_time_moves_from_timer_to_timer_and_costs_none(backend: Backend) -> None:
    before = time.monotonic()

    noted = play(sleepers, backend)

    assert time.monotonic() - before < 60
    assert noted == [
        ("d", 0), ("b", 1), ("d", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3), ("c", 3600),
    ]  # fmt: skip


async def timers_of_one_moment(sim: Simulation, noted: list[object]) -> None:
    def sleeper(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def sleep() -> None:
            await anyio.sleep(1)
            noted.append(f"{name} wakes")
            with anyio.move_on_after(0):
                await anyio.sleep_forever()
            noted.append(f"{name} moves on")
            await anyio.lowlevel.checkpoint()
            noted.append(f"{name} ends")

        return sleep

    await side_by_side(*(sleeper(name) for name in "abc"))


@both
def test_timers_of_one_moment_end_one_by_one_in_the_order_of_their_start(backend: Backend) -> None:
    noted = play(timers_of_one_moment, backend)

    assert noted == [f"{name} {what}" for name in "abc" for what in ("wakes", "moves on", "ends")]


@both
def test_a_deadline_around_something_that_never_comes_passes_in_virtual_time(backend: Backend) -> None:
    async def script(sim: Simulation, noted: list[object]) -> None:
        with anyio.move_on_after(30) as scope:
            await anyio.Event().wait()
        noted.append((scope.cancelled_caught, anyio.current_time()))
        with anyio.move_on_after(30):
            await anyio.sleep(1)
        noted.append(anyio.current_time())

    assert play(script, backend) == [(True, 30), 31]


# -- moves --------------------------------------------------------------------------------------------------------


async def workers(sim: Simulation, noted: list[object]) -> None:
    def worker(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def work() -> None:
            for n in range(3):
                await sim.pause(f"{name} {n}")
                noted.append(f"{name} {n}")
            await anyio.sleep(1)
            noted.append(f"{name} slept")

        return work

    await side_by_side(*(worker(name) for name in "ab"))


def test_without_choices_the_oldest_comes_first() -> None:
    assert play(workers, "asyncio") == ["a 0", "b 0", "a 1", "b 1", "a 2", "b 2", "a slept", "b slept"]


def test_a_choice_is_used_up_where_there_is_one_and_time_is_the_last_of_them() -> None:
    assert play(workers, "asyncio", (1, 1, 1, 1)) == [
        "b 0", "b 1", "b 2", "b slept", "a 0", "a 1", "a 2", "a slept",
    ]  # fmt: skip


@pytest.mark.parametrize("choices", [(), (1, 0, 2, 1, 1, 0, 2), (2, 2, 2, 1, 0, 0, 0, 1)])
def test_the_moves_alone_decide_so_the_backends_agree(choices: tuple[int, ...]) -> None:
    assert play(workers, "asyncio", choices) == play(workers, "trio", choices)


@both
def test_what_is_cancelled_while_it_waits_is_no_longer_there(backend: Backend) -> None:
    async def script(sim: Simulation, noted: list[object]) -> None:
        with anyio.move_on_after(1):
            await sim.pause("never")
        noted.append(sim.waiting)

    assert play(script, backend, (1,)) == [()]


# -- what cannot go on --------------------------------------------------------------------------------------------


def causes(error: BaseException) -> list[str]:
    """What an error says, and what stands behind it or in it."""
    found = [str(error)]
    for inner in (*getattr(error, "exceptions", ()), error.__cause__):
        found += causes(inner) if inner is not None else []
    return found


@both
def test_a_run_in_which_nothing_can_move_is_ended(backend: Backend) -> None:
    async def script(sim: Simulation, noted: list[object]) -> None:
        await anyio.Event().wait()

    with pytest.raises(BaseException) as caught:  # noqa: PT011  # a group of one
        play(script, backend)

    assert any("nothing can move any more after 0 moves" in said for said in causes(caught.value))


# Tasks that trio has to abandon complain when they are collected; let it be here.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@both
def test_a_run_that_waits_shielded_for_ever_is_ended_too(backend: Backend) -> None:
    async def script(sim: Simulation, noted: list[object]) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.Event().wait()

    with pytest.raises(BaseException) as caught:  # noqa: PT011  # trio calls it an internal error
        play(script, backend)

    assert any("waits for another one, or for something outside" in said for said in causes(caught.value))
    del caught
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@both
def test_a_task_that_turns_on_the_spot_is_found(backend: Backend) -> None:
    async def script(sim: Simulation, noted: list[object]) -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    with pytest.raises(BaseException) as caught:  # noqa: PT011  # trio calls it an internal error
        play(script, backend)

    assert any("turns on the spot" in said for said in causes(caught.value))
    del caught
    gc.collect()


# -- callbacks ----------------------------------------------------------------------------------------------------


async def steppers(sim: Simulation, noted: list[object]) -> None:
    def stepper(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def step() -> None:
            for n in range(4):
                await anyio.lowlevel.checkpoint()
                noted.append(f"{name}{n}")

        return step

    await side_by_side(*(stepper(name) for name in "abc"))


@both
def test_the_order_of_callbacks_is_as_chosen_and_comes_again(backend: Backend) -> None:
    """Fails where a new version of the backend no longer asks us."""
    lists = [(), *((n,) * 12 for n in range(1, 4)), (0, 2, 1, 0, 2, 1, 2, 2, 0, 1), (0,) * 6 + (1, 2) * 6]

    orders = [tuple(play(steppers, backend, interleaving=numbers)) for numbers in lists]

    assert len(set(orders)) > 3
    assert [tuple(play(steppers, backend, interleaving=numbers)) for numbers in lists] == orders


@both
def test_past_the_end_of_the_choices_callbacks_run_first_in_first_out(backend: Backend) -> None:
    noted = play(steppers, backend, interleaving=())

    assert noted == play(steppers, backend) == [f"{name}{n}" for n in range(4) for name in "abc"]


def lost_updates(backend: Backend, interleaving: tuple[int, ...]) -> bool:
    """Whether two tasks lose an update: one must be held back while the other one takes several steps."""
    stock = {"count": 0}

    async def script(sim: Simulation, noted: list[object]) -> None:
        async def add(steps_before: int) -> None:
            for _ in range(steps_before):
                await anyio.lowlevel.checkpoint()
            seen = stock["count"]
            await anyio.lowlevel.checkpoint()
            stock["count"] = seen + 1

        async def first() -> None:
            await add(0)

        async def second() -> None:
            await add(5)

        await side_by_side(first, second)

    play(script, backend, interleaving=interleaving)
    return stock["count"] < 2


@both
def test_a_lost_update_is_found_and_shrunk(backend: Backend) -> None:
    shortest = find(
        st.lists(st.integers(0, 3), max_size=30).map(tuple),
        lambda numbers: lost_updates(backend, numbers),
        settings=settings(max_examples=5_000, database=None, derandomize=True),
    )

    assert not lost_updates(backend, ())
    assert lost_updates(backend, shortest)
    assert len(shortest) <= 12


def test_the_order_of_trio_is_its_own_again_afterwards() -> None:
    run = import_module("trio._core._run")
    before = run._r, run._ALLOW_DETERMINISTIC_SCHEDULING

    play(steppers, "trio", interleaving=(1, 2))

    assert (run._r, run._ALLOW_DETERMINISTIC_SCHEDULING) == before


def test_a_simulation_inside_of_another_loop_is_refused() -> None:
    async def inner(clockwork: Clockwork) -> None:
        pass

    async def outer(clockwork: Clockwork) -> None:
        run_virtually(inner)

    with pytest.raises(RuntimeError, match="Already running"):
        run_virtually(outer)


def test_choices_that_never_end_in_rest_are_stopped_after_twice_the_most_moves() -> None:
    sim = Simulation()

    async def main(clockwork: Clockwork) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sim.conduct, clockwork, 10)
            while True:
                await sim.pause("again")

    with pytest.raises(ExceptionGroup) as caught:
        run_virtually(main)

    assert caught.group_contains(SimulationError, match="not over after 20 moves")


# -- threads and the world outside --------------------------------------------------------------------------------


@both
def test_work_for_a_thread_is_done_on_the_spot_and_takes_the_time_that_it_sleeps(
    backend: Backend, tmp_path: Path
) -> None:
    (tmp_path / "told").write_text("hello")

    def work(what: str) -> tuple[str, int]:
        time.sleep(100)
        return what, threading.get_ident()

    async def script(sim: Simulation, noted: list[object]) -> None:
        noted.append(await anyio.to_thread.run_sync(work, "by anyio"))
        noted.append(await anyio.Path(tmp_path / "told").read_text())
        if backend == "asyncio":
            noted.append(await asyncio.to_thread(work, "natively"))
            noted.append(await asyncio.get_running_loop().run_in_executor(None, work, "in an executor"))
        else:
            noted.append(await trio.to_thread.run_sync(work, "natively"))
            noted.append(await trio.Path(tmp_path / "told").read_text())
        with pytest.raises(ZeroDivisionError):
            await anyio.to_thread.run_sync(lambda: 1 // 0)
        noted.append(anyio.current_time())

    here = threading.get_ident()
    more: list[object] = [("in an executor", here), 300.0] if backend == "asyncio" else ["hello", 200.0]
    assert play(script, backend) == [("by anyio", here), "hello", ("natively", here), *more]


@both
def test_a_thread_is_a_thread_again_afterwards(backend: Backend) -> None:
    async def script(sim: Simulation, noted: list[object]) -> None:
        await anyio.to_thread.run_sync(lambda: None)

    play(script, backend)

    assert anyio.run(anyio.to_thread.run_sync, threading.get_ident, backend=backend) != threading.get_ident()
    assert trio.run(trio.to_thread.run_sync, threading.get_ident) != threading.get_ident()


@both
def test_real_input_and_output_is_refused_in_one_sentence(backend: Backend) -> None:
    async def script(sim: Simulation, noted: list[object]) -> None:
        one, other = socket.socketpair()
        with one, other, pytest.raises(SimulationError, match="real I/O is outside of virtual time; hand it in"):
            await anyio.wait_readable(one)
        if backend == "asyncio":
            with pytest.raises(SimulationError, match="subprocess_exec: real I/O"):
                await anyio.run_process([sys.executable, "-c", ""])
            with pytest.raises(SimulationError, match="getaddrinfo: real I/O"):
                await anyio.connect_tcp("localhost", 1)

    play(script, backend)
