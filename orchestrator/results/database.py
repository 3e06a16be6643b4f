# SPDX-License-Identifier: GPL-2.0-only
"""How a lab's SQLite file is made, recognised and opened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.errors import LabError
from orchestrator.results.faults import storage_faults
from orchestrator.results.read_only import read_only_name

SCHEMA_VERSION = 2
_APPLICATION_ID = 0x4B50524F  # lab.sql writes it
_PATIENCE_SECONDS = 30


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the store at ``path``, for this thread; file and folder are made, for their owner only, where missing.

    One that cannot be written is opened to be read. A file of an earlier version is upgraded; a program of that version
    refuses it then. Raises ``HostError`` when the disk is full or not writable, and ``LabError`` for a file that is no
    store, is damaged, or was written by a newer version.
    """
    with storage_faults(path):
        name = read_only_name(path)
        if name is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(path)
        connection = sqlite3.connect(
            name or path, uri=name is not None, timeout=_PATIENCE_SECONDS, isolation_level=None
        )
    with closing(connection):
        with storage_faults(path):
            if _version(connection, path) == 0:
                _create(connection, path)
            _upgrade(connection)
            connection.execute("PRAGMA foreign_keys = ON")
            # In WAL mode this loses at most the last commits, and only when the machine itself crashes.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.row_factory = sqlite3.Row
        yield connection


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Commit what the body does, or nothing of it. A body that only reads begins with plain ``BEGIN``."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # SQLite ends the transaction by itself after some errors, such as a full disk.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _make(path: Path) -> None:
    """Make the file where it is missing: SQLite makes one that all may read. Its companions (-wal, -shm) get its mode.

    One that is there is not opened. To close it would release the locks of all connections that this process has to it
    (fcntl(2)); the next process that leaves the store would take itself for the last one and remove the log of commits.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the file's schema version, 0 for an empty file."""
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    version = _pragma(connection, "user_version")
    if tables == version == 0:
        return 0
    if _pragma(connection, "application_id") != _APPLICATION_ID:
        raise LabError(
            "this SQLite file belongs to another program",
            where=str(path),
            hint="Nothing in it was changed. Name another folder in ORCHESTRATOR_LAB.",
        )
    if version > SCHEMA_VERSION:
        raise LabError(
            f"a newer version of this program wrote these results (schema {version}, known up to {SCHEMA_VERSION})",
            where=str(path),
            hint="Use that version, or name another folder in ORCHESTRATOR_LAB.",
        )
    return version


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring the file to today's version, one version after the other, each completely or not at all."""
    for version in range(_pragma(connection, "user_version") + 1, SCHEMA_VERSION + 1):
        with transaction(connection):
            # Another process may have done so while this one waited for the lock.
            if _pragma(connection, "user_version") == version - 1:
                connection.execute(Path(__file__).with_name(f"lab_{version}.sql").read_text("utf-8"))
                connection.execute(f"PRAGMA user_version = {version}")


def _create(connection: sqlite3.Connection, path: Path) -> None:
    # The switch to WAL needs exclusive access, and SQLite does not wait for that: two processes that create the store
    # at once would collide.
    try:
        with FileLock(f"{path}.lock", timeout=_PATIENCE_SECONDS, mode=0o600):
            if _version(connection, path) == 0:
                connection.execute("PRAGMA journal_mode = WAL")
                try:
                    connection.executescript(Path(__file__).with_name("lab.sql").read_text("utf-8"))
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
    except Timeout as error:
        raise LabError(
            "another process has been making this store for too long",
            where=str(path),
            hint=f"If there is no such process, remove {path}.lock.",
        ) from error
