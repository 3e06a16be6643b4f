# SPDX-License-Identifier: GPL-2.0-only
"""A file that is written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, or replace it: a reader finds the old one or the new one. Raises OSError.

    A symbolic link in its place is replaced, not followed: a run's directory may come from elsewhere. Of two writers
    one waits for the other. What one that was killed has half written is the next one's to overwrite.
    """
    unfinished = path.with_name(f".{path.name}.new")
    if unfinished.is_symlink():
        unfinished.unlink(missing_ok=True)
    with _alone(unfinished) as file:
        try:
            file.truncate()
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _alone(unfinished: Path) -> Iterator[BinaryIO]:
    """The file, open to be written by nobody else."""
    while True:
        with open(unfinished, "wb", opener=_as_it_is) as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is(unfinished, file):
                yield file
                return
        # Whoever wrote it meanwhile has given it its name.


def _is(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _as_it_is(path: str, flags: int) -> int:
    """Open without following a link, and without emptying what another writer may be at."""
    return os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW, 0o666)
