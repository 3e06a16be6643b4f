# SPDX-License-Identifier: GPL-2.0-only
"""Room on a disk: how much is left, and whether it is the lack of it that something has failed by."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.errors import LabError

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The system's errors for a write that finds no room."""

_LEAST = 64 << 10
"""Bytes below which a disk counts as full: a program that failed for lack of room may have removed a file since."""

# What dpkg, tar, gcc, make and apt 2.6 say, in English, at a line's end: a compiler quotes the user's lines as well.
# GNU ld maps the file that it writes: on a full tmpfs a bus error ends it.
_WORDS = re.compile(
    r": (No space left on device|Disk quota exceeded|File too large)$"
    r"|have enough free space|terminated with signal 7 \[Bus error\]",
    re.MULTILINE,
)


def room_left(folder: Path) -> str:
    """What the disk of a folder has left, for people: ``0.3 MB are free``. The folder need not exist yet."""
    facts = _facts(folder)
    if facts.f_files and not facts.f_favail:
        return "it takes no further file"
    return f"{_free(facts) / 1e6:.1f} MB are free"


def found_no_room(error: OSError) -> bool:
    """Whether the system refused a write, or one of many copies, for lack of room."""
    if isinstance(error, shutil.Error):  # of copytree(): it has the words of each copy, and no number
        return any(os.strerror(number) in str(error) for number in _NO_ROOM)
    return error.errno in _NO_ROOM


def is_full(folder: Path) -> bool:
    """Whether next to nothing can be written any more on the disk of a folder."""
    facts = _facts(folder)
    return _free(facts) < _LEAST or (facts.f_files > 0 and not facts.f_favail)


def full_one(folders: Sequence[Path]) -> Path:
    """Of the folders that something was written to, the first on a full disk, or else the first."""
    return next(filter(is_full, folders), folders[0])


def is_lack_of_room(error: BaseException, folders: Iterable[Path]) -> bool:
    """Whether an error comes from a full disk: by its number, by the words of a program, or by one of the folders."""
    if isinstance(error, OSError):
        return found_no_room(error)
    return isinstance(error, LabError) and (_WORDS.search(str(error)) is not None or any(map(is_full, folders)))


def temporary_folder() -> Path | None:
    """The folder of temporary files; None where none can be written, as on a host with one disk, which is full."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return None


def _facts(folder: Path) -> os.statvfs_result:
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if os.access(parent, os.F_OK))
    return os.statvfs(existing)


def _free(facts: os.statvfs_result) -> int:
    # What a file system keeps for root, 5 % of an ext4, root can write.
    return (facts.f_bfree if os.geteuid() == 0 else facts.f_bavail) * facts.f_frsize
