"""What every test shares: both async backends, the bounds of searches, and which tests must be asked for."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# A search that is given time finds rare things; CI must say the same thing twice. No deadline anywhere: a slow
# machine is no counterexample. `print_blob` makes a failure repeatable from the log alone.
_quiet = [HealthCheck.too_slow]  # as for deadlines
settings.register_profile(
    "ci", derandomize=True, database=None, deadline=None, max_examples=60, print_blob=True, suppress_health_check=_quiet
)
settings.register_profile("dev", deadline=None, max_examples=60, print_blob=True, suppress_health_check=_quiet)
settings.register_profile(
    "nightly", deadline=None, max_examples=5_000, print_blob=True, suppress_health_check=_quiet, derandomize=False
)
settings.load_profile(
    "ci" if os.environ.get("CI", "") not in ("", "false", "0") else "dev"
)  # --hypothesis-profile wins

ASKED_FOR = {
    "slow": ("--run-slow", "a wider search than CI makes"),
    "local_model": ("--run-local-model", "needs the server of the `local` extra and its weights"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    for marker, (option, why) in ASKED_FOR.items():
        parser.addoption(option, action="store_true", help=f"also run the tests marked {marker}: {why}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker, (option, why) in ASKED_FOR.items():
        if config.getoption(option):
            continue
        skip = pytest.mark.skip(reason=f"{why}; run with {option}")
        for item in items:
            if marker in item.keywords:
                item.add_marker(skip)


@pytest.fixture(params=["asyncio", "trio"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every test marked `anyio` runs under both backends; one that is for a single backend parametrises this itself."""
    return str(request.param)
