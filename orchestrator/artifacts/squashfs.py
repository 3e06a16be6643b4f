# SPDX-License-Identifier: GPL-2.0-only
"""Folders packed as squashfs files, whose bytes depend on the content alone."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import BuildError
from orchestrator.process import run

EPOCH = 1121212800
"""2005-07-13, in seconds: the time of files without one of their own, so that equal inputs give equal files."""

# lz4: an emulated CPU is slow at anything denser. The other options make the bytes depend on the content alone.
OPTIONS = (
    *("-comp", "lz4", "-noappend", "-no-progress", "-quiet"),
    *("-all-root", "-no-xattrs", "-all-time", str(EPOCH), "-mkfs-time", str(EPOCH)),
)


def pack(folder: Path, file: Path, what: str) -> None:
    """Pack a folder as a squashfs file; ``what`` names it in the BuildError."""
    argv = ["mksquashfs", str(folder), str(file), *OPTIONS]
    packed = run(argv, time_limit=1800, environment={"SOURCE_DATE_EPOCH": None})
    packed.or_raise(BuildError, f"{what} cannot be packed")
