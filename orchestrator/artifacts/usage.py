# SPDX-License-Identifier: GPL-2.0-only
"""Whether something in the cache is in use, and when it last was.

A file stands for each thing. A user of the thing holds a shared lock on that file until its process ends; removing the
thing takes an exclusive lock. The file's modification time is the time of the last use, to the day.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DAY = 86_400.0
"""Seconds; a use is noted once in that time."""

_held: dict[Path, int] = {}


def hold(file: Path) -> bool:
    """Use the thing until this process ends; False where it is gone. Waits only for a process that removes it."""
    descriptor = _held.get(file)
    if descriptor is not None and _is(file, descriptor):
        _note_use(descriptor)
        return True
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    with suppress(OSError):  # a file system without locks: users are not tracked
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    if not _is(file, descriptor):
        os.close(descriptor)
        return False
    _held[file] = descriptor
    _note_use(descriptor)
    return True


def release(file: Path) -> None:
    """Stop using the thing before this process ends."""
    descriptor = _held.pop(file, None)
    if descriptor is not None:
        os.close(descriptor)


@contextmanager
def claim(file: Path) -> Iterator[bool]:
    """Hold the thing exclusively; False, at once, where another process uses it or it is gone."""
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
            yield _is(file, descriptor)
    finally:
        os.close(descriptor)


def in_use(file: Path) -> bool:
    """Whether a process uses the thing now."""
    with claim(file) as free:
        return not free and file.exists()


def last_use(file: Path) -> float:
    """Seconds since the epoch; of something that is gone, the epoch.

    A use in the future, which a clock that was ahead has left, is one of now: what nobody uses ages from here on.
    """
    try:
        used = file.stat().st_mtime
        if used > (now := time.time()):
            with suppress(OSError):  # another user's cache, or a read-only one
                os.utime(file, (now, now))
        return min(used, now)
    except OSError:
        return 0.0


def _is(file: Path, descriptor: int) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _note_use(descriptor: int) -> None:
    # Also a use in the future, which a clock that was set back has left: it would hide all uses until then.
    if abs(time.time() - os.fstat(descriptor).st_mtime) > DAY:
        with suppress(OSError):  # another user's cache, or a read-only one
            os.utime(descriptor)
