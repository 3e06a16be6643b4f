# SPDX-License-Identifier: GPL-2.0-only
"""Errors of reading and writing results, each with its cause and a hint."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import found_no_room, is_full, room_left


def damaged(path: Path, why: str) -> LabError:
    """The error for a store that is none, or is damaged."""
    return LabError(
        f"this is no result store, or a damaged one: {why}",
        where=str(path),
        hint="Nothing in it was changed. Move it away and a new one is made.",
    )


def _full(path: Path) -> LabError:
    return HostError(
        f"there is no room left to keep results: {room_left(path)}",
        where=str(path),
        hint="Free some space, then go on with --resume: everything recorded before is safe.",
    )


def _forbidden(path: Path, words: str) -> LabError:
    return HostError(
        f"results cannot be kept here: {words}",
        where=str(path),
        hint="Make the folder writable, or name another one in ORCHESTRATOR_LAB.",
    )


def _from_sqlite(path: Path, error: sqlite3.Error) -> LabError | None:
    extended = getattr(error, "sqlite_errorcode", None)
    if not isinstance(extended, int):
        # The Python module has raised it itself: where text is no UTF-8, else for a mistake of the caller's.
        return damaged(path, str(error)) if isinstance(error, sqlite3.OperationalError) else None
    match extended & 0xFF:  # the low byte is the primary code
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return _forbidden(path, str(error))
        case (sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR) as code if code == sqlite3.SQLITE_FULL or is_full(path):
            # In WAL mode a file that cannot grow is often reported as a plain I/O error.
            return _full(path)
        case sqlite3.SQLITE_IOERR:
            return HostError(
                f"results could not be read or written: {error} ({error.sqlite_errorname})",
                where=str(path),
                hint="Check that the disk is neither full nor failing, then go on with --resume.",
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return LabError(
                "another process keeps the results locked",
                where=str(path),
                hint="Wait for it to end, then go on with --resume.",
            )
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return damaged(path, str(error))
        case sqlite3.SQLITE_ERROR if "malformed JSON" not in str(error):  # whoever asks for JSON knows of what it is
            # Our own queries are right: there is an error in one where the file's description of its tables is damaged.
            return damaged(path, str(error))
    return None


def _from_system(path: Path, error: OSError) -> LabError:
    words = (error.strerror or str(error)).lower()
    if found_no_room(error):
        return _full(path)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return _forbidden(path, words)
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return _forbidden(path, f"'{error.filename or path}' is a file, and a folder is needed")
    return HostError(f"results could not be read or written: {words}", where=str(path))


@contextmanager
def storage_faults(path: Path) -> Iterator[None]:
    """Turn errors of SQLite or the system about ``path`` into a ``LabError`` with a hint."""
    try:
        yield
    except sqlite3.Error as error:
        translated = _from_sqlite(path, error)
        if translated is None:
            raise
        raise translated from error
    except OSError as error:
        raise _from_system(path, error) from error
    except UnicodeDecodeError as error:
        raise LabError("damaged: what should be text is none", where=str(path)) from error
    except UnicodeEncodeError as error:
        printable = str(path).encode("utf-8", "backslashreplace").decode()
        raise UsageError(f"the path is not valid UTF-8: {printable}", hint="Choose another folder.") from error


def check_room(folder: Path) -> None:
    """Raise HostError where next to nothing can be written any more into a run's folder.

    Whoever writes need not say so: QEMU 7.2 drops what it cannot write of a guest's console, and stops a guest whose
    disk's overlay cannot grow.
    """
    if is_full(folder):
        raise _full(folder)
