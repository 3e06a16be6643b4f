# SPDX-License-Identifier: GPL-2.0-only
"""Errors of keeping something in the cache, each with its cause and a hint."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import Timeout

from orchestrator.disk_room import found_no_room, full_one, is_full, is_lack_of_room, room_left, temporary_folder
from orchestrator.errors import HostError
from orchestrator.program import PROGRAM

_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_FOLDER = frozenset({errno.ENOTDIR, errno.EEXIST})


@contextlib.contextmanager
def cache_faults(root: Path) -> Iterator[None]:
    """Turn an error of the cache's disk into a HostError with a hint."""
    try:
        yield
    except Timeout:
        raise
    except OSError as error:
        if found_no_room(error):
            raise _no_room(root) from error
        if error.errno in _FORBIDDEN:
            hint = "set ORCHESTRATOR_CACHE to a folder of yours"
            raise HostError(f"the cache folder {root} is not writable", hint=hint) from error
        if error.errno in _NO_FOLDER:
            hint = "set ORCHESTRATOR_CACHE to a folder of yours"
            raise HostError(f"the cache folder {root} cannot be made: {_obstacle(root, error)}", hint=hint) from error
        raise


def check_folder(root: Path) -> None:
    """Raise HostError where something else than a folder that can be read is in the cache's place."""
    try:
        if os.path.lexists(root):
            os.scandir(root).close()
    except OSError as error:
        what = f"the cache folder {root} cannot be read: {_obstacle(root, error)}"
        raise HostError(what, hint="set ORCHESTRATOR_CACHE to a folder of yours") from None


def _obstacle(root: Path, error: OSError) -> str:
    for place in (root, *root.parents):
        if place.is_symlink() and not place.exists():
            return f"{place} is a link to nothing"
        if place.exists() and not place.is_dir():
            return f"{place} is no folder"
    return str(error.strerror)


@contextlib.contextmanager
def build_faults(root: Path, unfinished: Path) -> Iterator[None]:
    """Remove what a build that fails has half made. Raises HostError where it failed for lack of room.

    Without that a compiler that finds no room would say that the user's module does not build.
    """
    try:
        yield
    except BaseException as error:
        lack = _lack_of_room(error, root)
        shutil.rmtree(unfinished, ignore_errors=True)
        if lack is not None:
            raise lack from error
        raise


def _lack_of_room(error: BaseException, root: Path) -> HostError | None:
    temporary = temporary_folder()
    others = () if temporary is None else (temporary,)
    if is_lack_of_room(error, (root, *others)):
        return _no_room(root, *others)
    if temporary is None and isinstance(error, FileNotFoundError):
        hint = "name a folder that can be written: TMPDIR=/some/folder"
        return HostError(f"there is no folder for temporary files: {error.strerror}", hint=hint)
    return None


def _no_room(root: Path, *others: Path) -> HostError:
    """The disk of the cache, or of temporary files, is full; or it was, and a program has removed a file since."""
    folder = full_one((root, *others))
    name, variable = ("temporary files", "TMPDIR") if folder in others else ("the cache folder", "ORCHESTRATOR_CACHE")
    when = "is full" if is_full(folder) else "was full a moment ago"
    hint = f"make room (`{PROGRAM} cache prune` does)" if folder == root else "make room"
    return HostError(
        f"the disk of {name} {when}: {room_left(folder)}",
        where=str(folder),
        hint=f"{hint}, or name a folder on another disk: {variable}=/some/folder",
    )
