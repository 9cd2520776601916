"""Checking a store: everything that sessions rely on, tried on somebody's own store.

    async def test_my_store(tmp_path):
        await check_store(lambda name: MyStore(tmp_path / name))

Each check works in a place of its own, and says in one sentence what a store did that it must not do.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio

from lifecycle.errors import SessionError, StoreCheckError

from .store_bench import Bench, Hinder, StoreFactory, Usurp, write_turn
from .store_checks import STORE_CHECKS

__all__ = ["STORE_CHECKS", "Hinder", "StoreFactory", "StoreReport", "Usurp", "check_store", "write_turn"]


@dataclass
class StoreReport:
    """What a check of a store has done."""

    store: str
    seconds: dict[str, float] = field(default_factory=lambda: {})
    """How long each check took."""

    def __str__(self) -> str:
        each = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.seconds.items())
        return f"{self.store}: {len(self.seconds)} checks passed in {sum(self.seconds.values()):.1f} s ({each})"


async def check_store(
    factory: StoreFactory,
    *,
    durable: bool = True,
    usurp: Usurp | None = None,
    hinder: Hinder | None = None,
    sessions: int = 10_000,
    megabytes: int = 50,
    only: Iterable[str] | None = None,
) -> StoreReport:
    """Try everything that sessions rely on.

    Args:
        factory: See `StoreFactory`.
        durable: Whether what was closed is there again when the same place is opened; not so in memory.
        usurp: For stores whose writers hold a lease that may run out; see `Usurp`.
        hinder: For stores that may fail to keep what they are given; see `Hinder`.
        sessions: How many sessions a place must bear.
        megabytes: How large an event must bear to be.
        only: The names of the checks to make, out of `STORE_CHECKS`.

    Raises:
        StoreCheckError: says which check failed, and what the store did.
        ValueError: if `only` names a check that there is not.
    """
    chosen = list(STORE_CHECKS if only is None else only)
    if unknown := [name for name in chosen if name not in STORE_CHECKS]:
        raise ValueError(f"there is no check {unknown[0]!r} of stores; there are: {', '.join(STORE_CHECKS)}")
    report = StoreReport("store")
    for name in chosen:
        began = time.perf_counter()
        bench = Bench(name, factory, durable, sessions, megabytes, usurp, hinder)
        store = await bench.store()
        report.store = type(store).__name__
        try:
            await STORE_CHECKS[name](bench, store)
        except SessionError as error:
            raise StoreCheckError(name, f"raises {type(error).__name__}: {error}") from error
        finally:
            with anyio.CancelScope(shield=True):
                await store.close()
        report.seconds[name] = time.perf_counter() - began
    return report
