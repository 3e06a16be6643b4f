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
    """The error for a file that is not a valid store."""
    return LabError(
        f"not a result store, or a damaged one: {why}",
        where=str(path),
        hint="Nothing in it was changed. Move it away; the lab then makes a new one.",
    )


def _full(path: Path) -> LabError:
    return HostError(
        f"no space left for results: {room_left(path)}",
        where=str(path),
        hint="Free some space, then resume with --resume: all recorded results are safe.",
    )


def _forbidden(path: Path, words: str) -> LabError:
    return HostError(
        f"cannot store results here: {words}",
        where=str(path),
        hint="Make the folder writable, or name another one in ORCHESTRATOR_LAB.",
    )


def _from_sqlite(path: Path, error: sqlite3.Error) -> LabError | None:
    extended = getattr(error, "sqlite_errorcode", None)
    if not isinstance(extended, int):
        # Python's own error: for text that is not UTF-8, else for a mistake of the caller.
        return damaged(path, str(error)) if isinstance(error, sqlite3.OperationalError) else None
    match extended & 0xFF:  # the primary code
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return _forbidden(path, str(error))
        case (sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR) as code if code == sqlite3.SQLITE_FULL or is_full(path):
            # In WAL mode SQLite often reports a file that cannot grow as an I/O error.
            return _full(path)
        case sqlite3.SQLITE_IOERR:
            return HostError(
                f"cannot read or write results: {error} ({error.sqlite_errorname})",
                where=str(path),
                hint="Check that the disk is neither full nor failing, then resume with --resume.",
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return LabError(
                "another process has locked the results",
                where=str(path),
                hint="Wait for it to end, then resume with --resume.",
            )
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return damaged(path, str(error))
        case sqlite3.SQLITE_ERROR if "malformed JSON" not in str(error):  # the caller handles malformed JSON
            # The lab's queries are right, so the file's schema is damaged.
            return damaged(path, str(error))
    return None


def _from_system(path: Path, error: OSError) -> LabError:
    words = (error.strerror or str(error)).lower()
    if found_no_room(error):
        return _full(path)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return _forbidden(path, words)
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return _forbidden(path, f"'{error.filename or path}' is a file; expected a folder")
    return HostError(f"cannot read or write results: {words}", where=str(path))


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
        raise LabError("damaged: not UTF-8 text", where=str(path)) from error
    except UnicodeEncodeError as error:
        printable = str(path).encode("utf-8", "backslashreplace").decode()
        raise UsageError(f"the path is not valid UTF-8: {printable}", hint="Choose another folder.") from error


def check_room(folder: Path) -> None:
    """Raise HostError if the disk of a run's folder is full.

    QEMU 7.2 does not report it: it drops console output that it cannot write, and stops a guest whose disk overlay
    cannot grow.
    """
    if is_full(folder):
        raise _full(folder)
