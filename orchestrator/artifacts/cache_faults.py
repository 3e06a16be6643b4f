# SPDX-License-Identifier: GPL-2.0-only
"""Errors of the cache's disk: a folder that cannot be used, and no room for a build."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import Timeout

from orchestrator import files
from orchestrator.errors import HostError
from orchestrator.program import PROGRAM

_ANOTHER_FOLDER = "set ORCHESTRATOR_CACHE to a folder that you can write to"


@contextlib.contextmanager
def cache_faults(root: Path) -> Iterator[None]:
    """Turn an error of the cache's disk into a HostError with a hint."""
    try:
        yield
    except Timeout:
        raise
    except OSError as error:
        if files.found_no_room(error):
            raise _no_room(root) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise HostError(f"the cache folder {root} is not writable", hint=_ANOTHER_FOLDER) from error
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            what = f"the cache folder {root} cannot be created: {_obstacle(root, error)}"
            raise HostError(what, hint=_ANOTHER_FOLDER) from error
        raise


def check_folder(root: Path) -> None:
    """Raise HostError if the cache's path is anything but a readable folder."""
    try:
        if os.path.lexists(root):
            os.scandir(root).close()
    except OSError as error:
        what = f"the cache folder {root} cannot be read: {_obstacle(root, error)}"
        raise HostError(what, hint=_ANOTHER_FOLDER) from None


def _obstacle(root: Path, error: OSError) -> str:
    for place in (root, *root.parents):
        if place.is_symlink() and not place.exists():
            return f"{place} is a broken link"
        if place.exists() and not place.is_dir():
            return f"{place} is not a folder"
    return str(error.strerror)


@contextlib.contextmanager
def build_faults(root: Path, unfinished: Path) -> Iterator[None]:
    """Remove the unfinished files of a failed build. Raises HostError if it failed because a disk is full."""
    try:
        yield
    except BaseException as error:
        temporary = files.temporary_folder()
        folders = () if temporary is None else (temporary,)
        lack = _no_room(root, *folders) if files.is_lack_of_room(error, (root, *folders)) else None
        shutil.rmtree(unfinished, ignore_errors=True)
        if lack is not None:
            raise lack from error
        if temporary is None and isinstance(error, FileNotFoundError):
            hint = "set a writable folder: TMPDIR=/some/folder"
            raise HostError(f"there is no folder for temporary files: {error.strerror}", hint=hint) from error
        raise


def _no_room(root: Path, *folders: Path) -> HostError:
    """The disk of the cache or of temporary files is full, or was until a program removed its file on failing."""
    folder = files.full_one((root, *folders))
    name, variable = ("temporary files", "TMPDIR") if folder in folders else ("the cache folder", "ORCHESTRATOR_CACHE")
    when = "is full" if files.is_full(folder) else "was full a moment ago"
    hint = f"make room (`{PROGRAM} cache prune` does)" if folder == root else "make room"
    return HostError(
        f"the disk of {name} {when}: {files.room_left(folder)}",
        where=str(folder),
        hint=f"{hint}, or name a folder on another disk: {variable}=/some/folder",
    )
