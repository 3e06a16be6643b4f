# SPDX-License-Identifier: GPL-2.0-only
"""Usage tracking: whether something in the cache is in use, and when it was last used.

A file represents each thing. A user holds a shared lock on that file until its process ends; removing the thing
requires an exclusive lock. The file's modification time is the time of the last use, to the day.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator import files

DAY = 86_400.0
"""Seconds; a use is recorded at most once in this time."""


_held: dict[Path, int] = {}


def hold(file: Path) -> bool:
    """Hold the thing until this process ends; False if it is gone. Waits only for a process that is removing it."""
    descriptor = _held.get(file)
    if descriptor is None or not files.is_open_file(file, descriptor):
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        with suppress(OSError):  # a file system without locks: users are not tracked
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if not files.is_open_file(file, descriptor):
            os.close(descriptor)
            return False
        _held[file] = descriptor
    # A time in the future, left by a clock since set back, would hide all uses until then.
    if abs(time.time() - os.fstat(descriptor).st_mtime) > DAY:
        with suppress(OSError):  # another user's cache, or a read-only one
            os.utime(descriptor)
    return True


def release(file: Path) -> None:
    """Stop using the thing before this process ends."""
    descriptor = _held.pop(file, None)
    if descriptor is not None:
        os.close(descriptor)


@contextmanager
def claim(file: Path) -> Iterator[bool]:
    """Hold the thing exclusively; False, without waiting, if another process uses it or it is gone."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield files.is_open_file(file, descriptor)
    finally:
        os.close(descriptor)


def in_use(file: Path) -> bool:
    """Whether a process uses the thing now."""
    with claim(file) as free:
        return not free and file.exists()


def last_use(file: Path) -> float:
    """Seconds since the epoch, 0 if gone. A time in the future, left by a wrong clock, is replaced by the present."""
    try:
        used = file.stat().st_mtime
        if used > (now := time.time()):
            with suppress(OSError):  # another user's cache, or a read-only one
                os.utime(file, (now, now))
        return min(used, now)
    except OSError:
        return 0.0
