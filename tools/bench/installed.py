"""How large an installation is: a distribution with all that it requires, without what Python compiles of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = "turn-lifecycle"


def installed(name: str) -> int:
    """Bytes of all files. What a requirement's extras ask for is not counted, nor what only other machines need."""
    return sum(_size(one) for one in _closure(name, {}).values())


def _closure(name: str, known: dict[str, Distribution]) -> dict[str, Distribution]:
    """The distribution and all that it requires here, by normalised name."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key not in known:
        try:
            known[key] = distribution(name)
        except PackageNotFoundError:  # required under another condition than this machine's
            return known
        for required in known[key].requires or ():
            if "extra ==" not in required:
                _closure(re.split(r"[^A-Za-z0-9._-]", required, maxsplit=1)[0], known)
    return known


def _size(one: Distribution) -> int:
    return sum(path.stat().st_size for path in _files(one) if path.suffix != ".pyc" and path.is_file())


def _files(one: Distribution) -> Iterator[Path]:
    if one.metadata["Name"] == OURS:  # installed in place: its metadata does not list the sources
        for package in (ROOT / "lifecycle", ROOT / "adapters" / "lifecycle_adapters"):
            yield from package.rglob("*")
    else:
        yield from (Path(str(one.locate_file(path))) for path in one.files or ())
