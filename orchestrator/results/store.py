# SPDX-License-Identifier: GPL-2.0-only
"""The store of a lab's runs: its database, its named baselines, and which runs a process works on.

One SQLite file in WAL mode: readers and one writer work at once, and a process killed at any point leaves the last
committed cell in place.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import sqlite3
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from filelock import FileLock, Timeout

from orchestrator.catalog.data import unknown
from orchestrator.errors import LabError, UsageError
from orchestrator.plain_text import cut
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.faults import damaged, storage_faults

# Which runs of a store does a living process work on? Each run has a byte of a file, which that process has locked.
#
# The system releases a lock with its holder, however that ends, so that a run whose process was killed is known at
# once, by a reader who may write nothing. Looking takes no lock (``F_OFD_GETLK``): a reader never keeps a process from
# a run.
#
# The lock is of an open file (Linux 3.15), with no process number in it. It holds between containers and pid
# namespaces that share the store's folder, and between hosts where the file system carries locks to its server: NFS
# does, without ``nolock`` and ``local_lock``. SQLite needs as much of that folder for the store itself. Where locks
# stay on one host, a run of another host is shown as interrupted while it goes on.

_FLOCK = "hhqqi0q"  # struct flock of fcntl(2): type, whence, start, length, process
_TYPE = struct.Struct("h")


class Ownership:
    """The runs, by their numbers, that this process has taken through it, and a view of who has the others.

    ``file`` is beside ``store``, and as readable: who may read the results may know who makes them.
    """

    def __init__(self, file: Path, store: Path) -> None:
        self._file, self._store = file, store
        self._descriptor: int | None = None
        self._taken: set[int] = set()

    def take(self, number: int) -> bool:
        """Take a run until it is released or this process ends; False where another process has it.

        Raises HostError where the file cannot be written.
        """
        with storage_faults(self._file):
            try:
                fcntl.fcntl(self._opened(), fcntl.F_OFD_SETLK, _byte(fcntl.F_WRLCK, number))
            except BlockingIOError:
                return False
        self._taken.add(number)
        return True

    def release(self, number: int) -> None:
        if number in self._taken:
            with storage_faults(self._file):
                fcntl.fcntl(self._opened(), fcntl.F_OFD_SETLK, _byte(fcntl.F_UNLCK, number))
            self._taken.discard(number)

    def has_owner(self, number: int) -> bool:
        """Whether a living process has taken the run; also where the file is another user's and may not be read."""
        if number in self._taken:
            return True
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except PermissionError:
            return True
        try:
            with storage_faults(self._file):
                found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _byte(fcntl.F_RDLCK, number))
        finally:
            os.close(descriptor)
        return bool(_TYPE.unpack_from(found)[0] != fcntl.F_UNLCK)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._taken.clear()

    def _opened(self) -> int:
        if self._descriptor is None:
            mode = self._store.stat().st_mode & 0o777
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        return self._descriptor


def _byte(kind: int, number: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, number, 1, 0)


# How a store is opened that can be read and not written: a read-only file system, a folder of another user's.


def read_only_name(path: Path) -> str | None:
    """The URI by which SQLite reads such a store; None for one that can be written, and for one that is not there."""
    if not path.is_file() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return None
    # Beside a database in WAL mode SQLite makes files, if only to read it; with a log that is left there it reads both.
    log = path.with_name(f"{path.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return f"{path.absolute().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"


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


LATEST = "latest"
DEFAULT = "default"
"""The baseline that a run is compared with where no other is named."""

_LONGEST = 80
_NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{_LONGEST - 1}}}")


@dataclass(frozen=True)
class Baseline:
    """A name, the id of its run, and since when it is that run's (ISO 8601, UTC)."""

    name: str
    run: str
    since: str


def is_baseline_name(name: str) -> bool:
    """Whether a baseline may be called so: no run's id begins like it, since an id begins with its year."""
    return name != LATEST and _NAME.fullmatch(name) is not None


def check_baseline_name(name: str) -> None:
    """Raise UsageError for what is no name of a baseline."""
    if not is_baseline_name(name):
        short = cut(name, _LONGEST, "...")
        shown = short if short.isprintable() else ascii(short)[1:-1]
        hint = (
            f"a small letter, then small letters, digits and hyphens, at most {_LONGEST} in all: before-the-patch; "
            "'latest' is the newest run"
        )
        raise UsageError(f"'{shown}' is no name for a baseline", hint=hint)


def unknown_baseline(name: str, known: Mapping[str, Baseline]) -> UsageError:
    """The error for a baseline that is not there."""
    if not known:
        return UsageError(
            f"unknown baseline '{name}'", hint=f"there is none yet: {PROGRAM} compare --set-baseline NAME RUN"
        )
    return UsageError(unknown("baseline", name, known))


FILE_NAME = "lab.sqlite"
_OWNERS = "lab.owners"

RunStatus = Literal["running", "complete", "interrupted"]
_NEVER_NULL = ("id", "experiment", "directory", "started", "status", "digest")


@dataclass(frozen=True)
class RunEntry:
    """One run as the store lists it. ``started`` and ``finished`` are ISO 8601, UTC.

    It is "running" only while a living process works on it: one that was killed leaves an interrupted run.
    """

    id: str
    experiment: str
    directory: Path
    started: str
    finished: str | None
    status: RunStatus
    digest: str


class Store:
    """A lab's results. Get one from ``Store.open``; it belongs to the thread that opened it.

    Each write is one transaction. Every method raises ``HostError`` when the disk is full or not writable, ``LabError``
    when the file is damaged or another process keeps it locked, and ``UsageError`` for the id of an unknown run;
    nothing stored before is lost then.
    """

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self.path = directory / FILE_NAME
        self._connection = connection
        self._ownership = Ownership(directory / _OWNERS, self.path)

    @classmethod
    @contextmanager
    def open(cls, directory: Path) -> Iterator[Store]:
        """Open the store in ``directory``; both are made, for their owner only, where they are missing.

        Raises ``LabError`` also for a file that is no store or that a newer version wrote.
        """
        with connected(directory / FILE_NAME) as connection:
            store = cls(directory, connection)
            with closing(store._ownership):
                yield store

    def check_writable(self) -> None:
        """Raise HostError where no run can be kept: to be known before anything is built for one."""
        with self._writing() as connection:
            # To begin a transaction is no write yet: SQLite 3.40 begins one in a file that can only be read.
            connection.execute("DELETE FROM runs WHERE 0")

    def begin_run(
        self,
        experiment: str,
        cells: Sequence[str],
        *,
        digest: str,
        provenance: Mapping[str, object],
        directory: Path | None = None,
    ) -> RunEntry:
        """Store a new run and the ids of all its cells, in the plan's order.

        ``digest`` identifies the resolved experiment; ``provenance`` is anything JSON can hold. Without
        ``directory`` the run's files belong into ``runs/<id>`` beside the store. Nothing is made there yet. The run is
        this process's from its first moment, until ``working_on`` ends or the store is closed.
        """
        with ExitStack() as on_failure:
            with self._writing() as connection:
                now = datetime.now(UTC)
                taken, run = True, ""
                while taken:
                    run = f"{now:%Y%m%d-%H%M%S}-{experiment}-{secrets.token_hex(2)}"
                    taken = bool(self.select("SELECT 1 FROM runs WHERE id = ?", run))
                place = (directory or self.directory / "runs" / run).absolute()
                inserted = connection.execute(
                    "INSERT INTO runs (id, experiment, directory, started, status, digest, provenance)"
                    " VALUES (?, ?, ?, ?, 'running', ?, ?)",
                    (run, experiment, str(place), now.isoformat(), digest, json.dumps(provenance)),
                )
                connection.executemany(
                    "INSERT INTO cells (run, position, id, status) VALUES (?, ?, ?, 'planned')",
                    ((run, position, cell) for position, cell in enumerate(cells)),
                )
                # Nobody sees the run before the transaction's end, so no other process has taken it.
                number = cast(int, inserted.lastrowid)
                self._ownership.take(number)
                on_failure.callback(self._ownership.release, number)
            on_failure.pop_all()
        return self.entry(run)

    @contextmanager
    def working_on(self, run: str) -> Iterator[None]:
        """Own a run, so that it counts as running. Raises ``UsageError`` where another process is working on it."""
        number = self._number(run)
        if not self._ownership.take(number):
            raise UsageError(
                f"another process is working on run {run}",
                where=str(self.entry(run).directory),
                hint="Wait for it to end; without --resume a new run begins.",
            )
        try:
            yield
        finally:
            self._ownership.release(number)

    def record(self, run: str, cell: CellRecord) -> None:
        """Store a planned cell's outcome: samples and evidence together, or neither.

        Raises ``LabError`` for a cell that was not planned or already has an outcome, which is kept.
        """
        with self._writing() as connection:
            updated = connection.execute(
                "UPDATE cells SET status = ?, record = ? WHERE run = ? AND id = ? AND status = 'planned'",
                (cell.status, cell.model_dump_json(exclude={"samples"}), run, cell.id),
            )
            if updated.rowcount != 1:
                raise LabError(
                    f"cell {cell.id} of run {run} was not planned, or already has an outcome",
                    where=str(self.path),
                    hint="If another process is working on the same run, let only one go on with it.",
                )
            connection.executemany(
                "INSERT INTO samples (run, cell, position, value) VALUES (?, ?, ?, ?)",
                ((run, cell.id, position, value) for position, value in enumerate(cell.samples)),
            )

    def resume_run(self, run: str) -> None:
        """Mark a run as running again, for the process that works on it."""
        self._set_status(run, "running", None)

    def finish_run(self, run: str, status: RunStatus) -> None:
        self._set_status(run, status, datetime.now(UTC).isoformat())

    def forget_run(self, run: str) -> None:
        """Remove a run that could not begin: of its cells none has an outcome."""
        number = self._number(run)
        with self._writing() as connection:
            # Before the end of the transaction: the next run may get the number.
            self._ownership.release(number)
            connection.execute("DELETE FROM cells WHERE run = ? AND status = 'planned'", (run,))
            # Refused by the database while a cell is left.
            connection.execute("DELETE FROM runs WHERE id = ?", (run,))

    def unfinished_cells(self, run: str) -> list[str]:
        """Return the ids of the cells without an outcome, in the plan's order."""
        with self._reading():
            self.entry(run)
            rows = self.select("SELECT id FROM cells WHERE run = ? AND status = 'planned' ORDER BY position", run)
        return [row["id"] for row in rows]

    def load_run(self, run: str) -> RunRecord:
        """Return every cell of a run that has an outcome, in the plan's order."""
        with self._reading():
            entry = self.entry(run)
            cells = self.select("SELECT id, record FROM cells WHERE run = ? AND record NOT NULL ORDER BY position", run)
            values = self.select("SELECT cell, value FROM samples WHERE run = ? ORDER BY cell, position", run)
        samples: dict[str, list[float]] = {row["id"]: [] for row in cells}
        try:
            for row in values:
                samples[row["cell"]].append(row["value"])
            records = [{**json.loads(row["record"]), "samples": samples[row["id"]]} for row in cells]
            return RunRecord.model_validate({"run": entry.id, "experiment": entry.experiment, "cells": records})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            # Every record satisfied the contract when it was written: another program has changed the file.
            raise LabError(
                f"what is stored of run {run} contradicts itself",
                where=str(self.path),
                hint="The run's own directory may still hold its results.json: report that directory.",
                detail=str(error).splitlines()[:20],
            ) from error

    def entry(self, run: str) -> RunEntry:
        rows = self.select("SELECT * FROM run_entries WHERE id = ?", run)
        if not rows:
            raise UsageError(f"unknown run '{run}'", where=str(self.path), hint=f"See: {PROGRAM} list runs")
        return self._entry(rows[0])

    def provenance(self, run: str) -> dict[str, object]:
        """Return what a run was made with, as ``begin_run`` got it."""
        self.entry(run)
        row = self.select("SELECT provenance FROM runs WHERE id = ?", run)[0]
        try:
            facts = json.loads(row["provenance"])
        except (ValueError, TypeError, RecursionError):
            facts = None
        if not isinstance(facts, dict):
            raise damaged(self.path, f"it does not say what run {run} was made with")
        return cast(dict[str, object], facts)

    def runs(self) -> list[RunEntry]:
        return [self._entry(row) for row in self.select("SELECT * FROM run_entries ORDER BY number DESC")]

    def select(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Return the rows of a query; for the modules beside this one, that need little of many runs."""
        with storage_faults(self.path):
            return self._connection.execute(query, values).fetchall()

    def cell_counts(self) -> Mapping[str, Counter[str]]:
        """Return how many cells of each run, by its id, have each status; "planned" are those without an outcome."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for row in self.select("SELECT run, status, count(*) AS cells FROM cells GROUP BY run, status"):
            counts[row["run"]][row["status"]] = row["cells"]
        return counts

    def latest(self, experiment: str | None = None, *, unfinished: bool = False) -> RunEntry | None:
        """Return the newest run, of one experiment or of any.

        ``unfinished`` leaves out the runs that have come to their end: one killed behind its last cell has not.
        """
        wanted = "(?1 IS NULL OR experiment = ?1) AND (NOT ?2 OR status != 'complete')"
        return self._newest(wanted, experiment, unfinished)

    def previous(self, run: str) -> RunEntry | None:
        """Return the newest complete run of the same experiment that began before this one."""
        experiment = self.entry(run).experiment
        return self._newest(
            "experiment = ? AND status = 'complete' AND number < (SELECT number FROM runs WHERE id = ?)",
            experiment,
            run,
        )

    def _newest(self, condition: str, *values: object) -> RunEntry | None:
        query = f"SELECT * FROM run_entries WHERE {condition} ORDER BY number DESC LIMIT 1"  # noqa: S608 (constants)
        rows = self.select(query, *values)
        return self._entry(rows[0]) if rows else None

    def baselines(self) -> Mapping[str, Baseline]:
        rows = self.select("SELECT name, run, since FROM baselines ORDER BY name")
        return {row["name"]: Baseline(row["name"], row["run"], row["since"]) for row in rows}

    def set_baseline(self, name: str, run: str) -> None:
        """Give a run a name, which another run has no longer then. Raises ``UsageError`` for a word that is no name."""
        check_baseline_name(name)
        with self._writing() as connection:
            self.entry(run)
            now = datetime.now(UTC).isoformat()
            connection.execute("INSERT OR REPLACE INTO baselines (name, run, since) VALUES (?, ?, ?)", (name, run, now))

    def remove_baseline(self, name: str) -> None:
        """Remove a name; its run stays. Raises ``UsageError`` for an unknown one."""
        with self._writing() as connection:
            known = self.baselines()
            if name not in known:
                raise unknown_baseline(name, known)
            connection.execute("DELETE FROM baselines WHERE name = ?", (name,))

    def _set_status(self, run: str, status: RunStatus, finished: str | None) -> None:
        with self._writing() as connection:
            self.entry(run)
            # Not before its beginning, where the host's clock was set back meanwhile; NULL stays NULL.
            connection.execute(
                "UPDATE runs SET status = ?, finished = max(started, ?) WHERE id = ?", (status, finished, run)
            )

    def _number(self, run: str) -> int:
        self.entry(run)
        return int(self.select("SELECT number FROM runs WHERE id = ?", run)[0]["number"])

    def _entry(self, row: sqlite3.Row) -> RunEntry:
        stored = self._whole(row)
        abandoned = stored["status"] == "running" and not self._ownership.has_owner(stored["number"])
        if abandoned:
            # Its process may have come to the run's end, and released it, since the row was read.
            again = self.select("SELECT * FROM run_entries WHERE id = ?", stored["id"])
            stored = self._whole(again[0]) if again else stored
            abandoned = stored["status"] == "running"
        fields = {name: stored[name] for name in ("id", "experiment", "started", "digest")}
        status: RunStatus = "interrupted" if abandoned else stored["status"]
        return RunEntry(directory=Path(stored["directory"]), status=status, finished=stored.get("finished"), **fields)

    def _whole(self, row: sqlite3.Row) -> dict[str, Any]:
        stored: dict[str, Any] = dict(row)
        if not all(isinstance(stored.get(name), str) for name in _NEVER_NULL):
            raise damaged(self.path, "a run lacks what each has")
        return stored

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with storage_faults(self.path), transaction(self._connection):
            yield self._connection

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Several queries that see the same moment."""
        with storage_faults(self.path), transaction(self._connection, "BEGIN"):
            yield
