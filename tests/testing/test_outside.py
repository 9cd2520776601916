"""Hooks and the world outside of a run: threads and files are in order; sockets, processes and blocking are not."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from time import sleep
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lifecycle import Hooks
from lifecycle.errors import HookCheckError
from lifecycle.proof.simulation import Backend
from lifecycle.testing import check_hooks

Next = Callable[..., Awaitable[Any]]
Ask = Callable[[Any], Awaitable[Any]]
both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def at_each_step(wait: Ask) -> Callable[[], Hooks]:
    """A factory of hooks of which one does that."""

    def build() -> Hooks:
        hooks = Hooks()

        @hooks.on("agent/step-boundary")
        async def look(payload: Any) -> None:
            await wait(payload)

        return hooks

    return build


def found(factory: Callable[[], Hooks], backend: Backend = "asyncio", **options: Any) -> HookCheckError:
    with pytest.raises(HookCheckError) as caught:
        check_hooks(factory, examples=30, seed=1, backends=(backend,), **options)
    return caught.value


@both
def test_worker_threads_and_files_are_in_order(backend: Backend) -> None:
    async def wait(payload: Any) -> None:
        await anyio.to_thread.run_sync(time.sleep, 0)
        await anyio.Path(__file__).read_text()
        if backend == "asyncio":
            await asyncio.to_thread(lambda: time.sleep(1))
            await asyncio.get_running_loop().run_in_executor(None, str)

    check_hooks(at_each_step(wait), examples=30, seed=1, backends=(backend,))


async def runs_a_program(payload: Any) -> None:
    await anyio.run_process([sys.executable, "-c", ""])


async def runs_a_program_and_blocks(payload: Any) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)  # noqa: ASYNC221  # that is the mistake


async def asks_a_server(payload: Any) -> None:
    await anyio.connect_tcp("127.0.0.1", 1)


async def asks_a_server_and_hides_the_failure(payload: Any) -> None:
    try:
        socket.create_connection(("127.0.0.1", 1), timeout=1)
    except Exception:
        return


@both
@pytest.mark.parametrize(
    "ask", [runs_a_program, runs_a_program_and_blocks, asks_a_server, asks_a_server_and_hides_the_failure]
)
def test_sockets_and_processes_are_said_to_be_outside(ask: Ask, backend: Backend) -> None:
    error = found(at_each_step(ask), backend)

    assert (error.contract, error.point) == ("io", "agent/step-boundary")
    assert "real I/O is outside of virtual time; hand it in, and fake it in the test" in error.reason
    assert "look at agent/step-boundary" in error.reason


@both
def test_a_sleep_under_another_name_is_found_and_does_not_sleep(backend: Backend) -> None:
    async def wait(payload: Any) -> None:
        sleep(3_600)  # noqa: ASYNC251  # that is the mistake

    begun = time.monotonic()
    error = found(at_each_step(wait), backend)

    assert (error.contract, error.point) == ("blocking", "agent/step-boundary")
    assert "time.sleep(3600)" in error.reason
    assert time.monotonic() - begun < 600


def test_nothing_is_heard_of_others() -> None:
    check_hooks(Hooks, examples=1, seed=1)

    begun = time.monotonic()
    sleep(0.001)
    assert time.monotonic() > begun


@both
def test_what_a_hook_waits_for_in_vain_is_said_with_its_place(backend: Backend) -> None:
    async def wait(payload: Any) -> None:
        await anyio.Event().wait()

    error = found(at_each_step(wait), backend)

    line = wait.__code__.co_firstlineno + 1
    assert error.reason == f"look at agent/step-boundary waits for what never comes, at test_outside.py:{line}"


@both
def test_a_hook_that_does_not_give_way_is_ended_and_named(backend: Backend) -> None:
    async def wait(payload: Any) -> None:
        while True:
            pass

    before = time.monotonic()
    error = found(at_each_step(wait), backend, most_seconds_running=0.4)

    assert (error.contract, error.point) == ("hangs", "agent/step-boundary")
    assert "look at agent/step-boundary runs on at test_outside.py:" in error.reason
    assert error.moves == 1
    assert time.monotonic() - before < 100


def test_somebody_elses_alarm_goes_on_after_a_check() -> None:
    signal = pytest.importorskip("signal")
    if not hasattr(signal, "setitimer"):
        pytest.skip("no such alarms here")
    heard: list[int] = []

    def ring(*_: object) -> None:
        heard.append(1)

    usual = signal.signal(signal.SIGALRM, ring)
    before = signal.setitimer(signal.ITIMER_REAL, 1_000)
    try:
        check_hooks(Hooks, examples=2, seed=1)
        assert signal.getsignal(signal.SIGALRM) is ring
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1_000
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, usual)


@both
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_coroutine_of_somebody_else_is_not_blamed_on_the_hook_in_which_it_is_collected(backend: Backend) -> None:
    class Node:
        me: object
        forgotten: object

    async def nobody_waits() -> None:
        pass

    def elsewhere() -> None:
        node = Node()
        node.me, node.forgotten = node, nobody_waits()

    async def collect(payload: Any) -> None:
        gc.collect()

    gc.collect()
    gc.disable()
    try:
        elsewhere()
        check_hooks(at_each_step(collect), examples=3, seed=1, backends=(backend,))
    finally:
        gc.enable()


@both
def test_a_coroutine_that_the_hook_forgets_is_still_found(backend: Backend) -> None:
    async def forget(payload: Any) -> None:
        anyio.lowlevel.checkpoint()  # type: ignore[unused-coroutine]

    assert found(at_each_step(forget), backend).contract == "awaits"


def test_a_run_that_breaks_off_leaves_no_complaints(capfd: pytest.CaptureFixture[str]) -> None:
    async def cling(payload: Any) -> None:
        try:
            await anyio.sleep(1)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.Event().wait()

    async def turn(payload: Any) -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    for wait, says in (cling, "every task waits for another one"), (turn, "a task turns on the spot"):
        error = found(at_each_step(wait), "trio")
        assert error.reason.startswith("look at agent/step-boundary does not come to an end, at test_outside.py:")
        assert says in error.reason
        assert error.point == "agent/step-boundary"
        del error
        gc.collect()
    assert capfd.readouterr().err == ""
