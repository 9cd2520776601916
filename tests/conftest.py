"""What every test shares: both async backends, the bounds of searches, and which tests must be asked for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

from .adapters.postgres_server import postgres

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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A running PostgreSQL; how to connect to it. Use a schema, or a database, that no other test uses."""
    with postgres() as conninfo:
        yield conninfo


@pytest.fixture
def small_disk(shared_folder: Path) -> Iterator[Path]:
    """A real disk of 256 KiB; skipped where mounting one is not permitted."""
    folder = shared_folder / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that everybody can reach, unlike that of pytest."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
