"""The pytest plug-in: a seed for checks of hooks, the monitor on every agent, and fixtures.

It is loaded in every run of pytest wherever the distribution is installed. Therefore it stands outside `lifecycle`, and
imports nothing of `lifecycle` before a test asks for it: no run pays for what it does not use, and measurements of
coverage have begun by then.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lifecycle.testing import Trace

SEED = "LIFECYCLE_SEED"
"""As in `lifecycle.testing.checking`."""
MONITOR = "LIFECYCLE_MONITOR"
"""As in `lifecycle.driver.monitor`."""
_FORMER = pytest.StashKey[dict[str, str | None]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lifecycle", "lifecycles of agents")
    group.addoption(
        "--lifecycle-seed",
        metavar="N",
        type=int,
        default=None,
        help="what check_hooks begins its search with where a test gives no seed (default: another one each time)",
    )
    group.addoption(
        "--no-lifecycle-monitor",
        action="store_true",
        help="do not hold every agent against its declared lifecycle while it runs",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell by the environment: that needs no import, and reaches the processes that tests start."""
    given: int | None = config.getoption("--lifecycle-seed")
    seed = random.SystemRandom().randrange(1 << 32) if given is None else given
    told = {MONITOR: "0" if config.getoption("--no-lifecycle-monitor") else os.environ.get(MONITOR, "1")}
    if given is not None or SEED not in os.environ:
        told[SEED] = str(seed)
    config.stash[_FORMER] = {name: os.environ.get(name) for name in told}
    os.environ.update(told)


def pytest_unconfigure(config: pytest.Config) -> None:
    former: dict[str, str | None] = config.stash.get(_FORMER, dict[str, str | None]())
    for name, value in former.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def pytest_report_header(config: pytest.Config) -> str:
    return f"lifecycle: seed {os.environ[SEED]}, monitor {'off' if os.environ[MONITOR] == '0' else 'on'}"


@pytest.fixture(params=["asyncio", "trio"])
def lifecycle_backend(request: pytest.FixtureRequest) -> str:
    """The name of each event loop that agents run under, for tests that are to see both."""
    return str(request.param)


@pytest.fixture
def lifecycle_seed() -> int:
    """What searches begin with in this run of pytest."""
    return int(os.environ[SEED])


@pytest.fixture
def lifecycle_trace() -> Callable[..., Trace]:
    """Makes traces: `lifecycle_trace(hooks, session)`."""

    def make(*args: Any, **options: Any) -> Trace:
        from lifecycle.testing import Trace

        return Trace(*args, **options)

    return make
