# SPDX-License-Identifier: GPL-2.0-only
"""What has to be equal on a worker and its client before a number of the one is a number of the other's run."""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from orchestrator import __version__
from orchestrator.fleet.room import MOST_GUESTS
from orchestrator.guest.emulator import qemu_version

_NO_CODE = {".pyc", ".pyo"}


class Versions(BaseModel):
    """The program by version and content, Python's release, and QEMU."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str = Field(max_length=200)
    code: str = Field(pattern=r"^[0-9a-f]{16}$")
    """Of the package's files: checkouts of one version differ."""
    python: str = Field(max_length=20)
    qemu: str = Field(max_length=200)

    @classmethod
    def here(cls) -> Versions:
        """Of this process. Raises HostError where QEMU is missing."""
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return cls(project=__version__, code=_code(), python=python, qemu=qemu_version())

    def difference(self, worker: Versions) -> str | None:
        """What a worker has that is not this, as a part of a sentence; None where all is equal."""
        for name, what in _NAMES.items():
            here, there = getattr(self, name), getattr(worker, name)
            if here != there:
                return f"it has {what} {there}, and this machine has {here}"
        return None


_NAMES = {"project": "this program at version", "code": "this program with content", "python": "Python", "qemu": "QEMU"}


class Offer(BaseModel):
    """What a worker says of itself: its name, versions, and the room for guests: how many, and MiB for all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    versions: Versions
    guests: int = Field(ge=1, le=MOST_GUESTS)
    memory_mib: int = Field(ge=1, le=2**24)


@lru_cache(maxsize=1)
def _code() -> str:
    package = Path(__file__).resolve().parents[1]
    total = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        if file.is_file() and file.suffix not in _NO_CODE:
            total.update(f"{file.relative_to(package)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]
