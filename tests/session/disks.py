"""What happens to disks."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path


def fill(folder: Path) -> Path:
    """Write until nothing fits any more; returns the file that takes the room."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


def remount_read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
