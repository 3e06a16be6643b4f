# SPDX-License-Identifier: GPL-2.0-only
"""The store of a lab's runs: its database, and the names of runs.

One SQLite file in WAL mode: readers and one writer work at once, and a killed process loses no committed cell.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
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
from orchestrator.results.ownership import Ownership


def read_only_name(path: Path) -> str | None:
    """The URI for SQLite to open a store that cannot be written; None for a writable or missing one."""
    if not path.is_file() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return None
    # Even to read a database in WAL mode SQLite makes files next to it, unless its log exists or it is immutable.
    log = path.with_name(f"{path.name}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return f"{path.absolute().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"


SCHEMA_VERSION = 2
_APPLICATION_ID = 0x4B50524F  # lab.sql writes it
_PATIENCE_SECONDS = 30


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the store at ``path`` for this thread; a missing file or folder is made, for its owner only.

    A store that cannot be written is opened read-only. A file of an earlier version is upgraded, after which that
    version rejects it. Raises ``HostError`` if the disk is full or not writable, ``LabError`` for a file that is not a
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
            # In WAL mode this loses at most the last commits, and only if the machine crashes.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.row_factory = sqlite3.Row
        yield connection


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Commit all of the body or nothing. A body that only reads uses plain ``BEGIN``."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # SQLite ends the transaction by itself after some errors, such as a full disk.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _make(path: Path) -> None:
    """Make a missing file for its owner only: SQLite would make it readable for all. Its -wal and -shm get its mode.

    An existing file is not opened: closing it would release the locks of all connections of this process to it
    (fcntl(2)), and the next process to leave the store would believe to be the last and remove the log of commits.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The file's schema version, 0 for an empty file."""
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
    """Upgrade the file to the current version, one version per transaction."""
    for version in range(_pragma(connection, "user_version") + 1, SCHEMA_VERSION + 1):
        with transaction(connection):
            # Another process may have upgraded it while this one waited for the lock.
            if _pragma(connection, "user_version") == version - 1:
                connection.execute(Path(__file__).with_name(f"lab_{version}.sql").read_text("utf-8"))
                connection.execute(f"PRAGMA user_version = {version}")


def _create(connection: sqlite3.Connection, path: Path) -> None:
    # Switching to WAL needs exclusive access, for which SQLite does not wait: two processes would collide.
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
            "timeout while another process creates this store",
            where=str(path),
            hint=f"If no such process is running, remove {path}.lock.",
        ) from error


LATEST = "latest"
DEFAULT = "default"
"""The baseline that a run is compared with by default."""

_LONGEST = 80
_NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{_LONGEST - 1}}}")


@dataclass(frozen=True)
class Baseline:
    """A name for a run's id, and the time when it was set (ISO 8601, UTC)."""

    name: str
    run: str
    since: str


def check_baseline_name(name: str) -> None:
    """Raise UsageError for an invalid name. No name begins like a run's id, which begins with a year."""
    if name == LATEST or not _NAME.fullmatch(name):
        short = cut(name, _LONGEST, "...")
        shown = short if short.isprintable() else ascii(short)[1:-1]
        hint = (
            f"use a small letter, then small letters, digits and hyphens, at most {_LONGEST} in all: before-the-patch; "
            "'latest' is reserved for the newest run"
        )
        raise UsageError(f"'{shown}' is not a valid name for a baseline", hint=hint)


def unknown_baseline(name: str, known: Mapping[str, Baseline]) -> UsageError:
    """The error for an unknown baseline."""
    if not known:
        hint = f"there is no baseline yet; set one: {PROGRAM} compare --set-baseline NAME RUN"
        return UsageError(f"unknown baseline '{name}'", hint=hint)
    return UsageError(unknown("baseline", name, known))


def no_run_yet(where: Path) -> UsageError:
    """The error of what needs a run."""
    return UsageError("there is no run yet", where=str(where), hint=f"start one: {PROGRAM} run CONFIG")


FILE_NAME = "lab.sqlite"
_OWNERS = "lab.owners"

RunStatus = Literal["running", "complete", "interrupted"]
_NEVER_NULL = ("id", "experiment", "directory", "started", "status", "digest")


@dataclass(frozen=True)
class RunEntry:
    """One run of the store. ``started`` and ``finished`` are ISO 8601, UTC.

    The status is "running" only while a process works on the run, and "interrupted" after that process was killed.
    """

    id: str
    experiment: str
    directory: Path
    started: str
    finished: str | None
    status: RunStatus
    digest: str


class Store:
    """A lab's results. ``Store.open`` returns one; only the thread that opened it may use it.

    Each write is one transaction. Every method raises ``HostError`` if the disk is full or not writable, ``LabError``
    if the file is damaged or locked by another process, and ``UsageError`` for an unknown run.
    """

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self.path = directory / FILE_NAME
        self._connection = connection
        self._ownership = Ownership(directory / _OWNERS, self.path)

    @classmethod
    @contextmanager
    def open(cls, directory: Path) -> Iterator[Store]:
        """Open the store in ``directory``, as ``connected`` does."""
        with connected(directory / FILE_NAME) as connection:
            store = cls(directory, connection)
            with closing(store._ownership):
                yield store

    def check_writable(self) -> None:
        """Raise HostError if no run can be stored."""
        with self._writing() as connection:
            # SQLite 3.40 can begin a transaction in a read-only file, so write.
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

        ``digest`` identifies the resolved experiment; ``provenance`` is any JSON. The run's ``directory`` is by default
        ``runs/<id>`` in the store's folder, and is not made here. This process owns the run until ``working_on`` ends
        or the store is closed.
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
                # Other processes cannot see the run before the end of the transaction, so this succeeds.
                number = cast(int, inserted.lastrowid)
                self._ownership.take(number)
                on_failure.callback(self._ownership.release, number)
            on_failure.pop_all()
        return self.entry(run)

    @contextmanager
    def working_on(self, run: str) -> Iterator[None]:
        """Own a run, so that it counts as running. Raises ``UsageError`` if another process owns it."""
        number = self._number(run)
        if not self._ownership.take(number):
            raise UsageError(
                f"another process is working on run {run}",
                where=str(self.entry(run).directory),
                hint="Wait for it to end, or start a new run without --resume.",
            )
        try:
            yield
        finally:
            self._ownership.release(number)

    def record(self, run: str, cell: CellRecord) -> None:
        """Store a planned cell's outcome. Raises ``LabError`` for a cell that was not planned or has an outcome."""
        with self._writing() as connection:
            updated = connection.execute(
                "UPDATE cells SET status = ?, record = ? WHERE run = ? AND id = ? AND status = 'planned'",
                (cell.status, cell.model_dump_json(exclude={"samples"}), run, cell.id),
            )
            if updated.rowcount != 1:
                raise LabError(
                    f"cell {cell.id} of run {run} was not planned, or already has an outcome",
                    where=str(self.path),
                    hint="If another process works on the same run, end one of the two.",
                )
            connection.executemany(
                "INSERT INTO samples (run, cell, position, value) VALUES (?, ?, ?, ?)",
                ((run, cell.id, position, value) for position, value in enumerate(cell.samples)),
            )

    def resume_run(self, run: str) -> None:
        """Mark a run as running again."""
        self._set_status(run, "running", None)

    def finish_run(self, run: str, status: RunStatus) -> None:
        self._set_status(run, status, datetime.now(UTC).isoformat())

    def forget_run(self, run: str) -> None:
        """Remove a run without any outcome."""
        number = self._number(run)
        with self._writing() as connection:
            # Before the end of the transaction, since the next run may get the number.
            self._ownership.release(number)
            connection.execute("DELETE FROM cells WHERE run = ? AND status = 'planned'", (run,))
            # The database refuses this if a cell is left.
            connection.execute("DELETE FROM runs WHERE id = ?", (run,))

    def unfinished_cells(self, run: str) -> list[str]:
        """The ids of the cells without an outcome, in the plan's order."""
        with self._reading():
            self.entry(run)
            rows = self.select("SELECT id FROM cells WHERE run = ? AND status = 'planned' ORDER BY position", run)
        return [row["id"] for row in rows]

    def load_run(self, run: str) -> RunRecord:
        """The cells of a run with an outcome, in the plan's order."""
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
            # All records were valid when written, so another program has changed the file.
            raise LabError(
                f"the stored results of run {run} contradict each other",
                where=str(self.path),
                hint="The run's directory may still have its results.json: report that directory.",
                detail=str(error).splitlines()[:20],
            ) from error

    def entry(self, run: str) -> RunEntry:
        rows = self.select("SELECT * FROM run_entries WHERE id = ?", run)
        if not rows:
            raise UsageError(f"unknown run '{run}'", where=str(self.path), hint=f"See: {PROGRAM} list runs")
        return self._entry(rows[0])

    def provenance(self, run: str) -> dict[str, object]:
        """A run's provenance, as given to ``begin_run``."""
        self.entry(run)
        row = self.select("SELECT provenance FROM runs WHERE id = ?", run)[0]
        try:
            facts = json.loads(row["provenance"])
        except (ValueError, TypeError, RecursionError):
            facts = None
        if not isinstance(facts, dict):
            raise damaged(self.path, f"it has no provenance of run {run}")
        return cast(dict[str, object], facts)

    def runs(self) -> list[RunEntry]:
        return [self._entry(row) for row in self.select("SELECT * FROM run_entries ORDER BY number DESC")]

    def select(self, query: str, *values: object) -> list[sqlite3.Row]:
        """The rows of a query, for modules that read few fields of many runs."""
        with storage_faults(self.path):
            return self._connection.execute(query, values).fetchall()

    def cell_counts(self) -> Mapping[str, Counter[str]]:
        """The number of cells by run id and status; "planned" are those without an outcome."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for row in self.select("SELECT run, status, count(*) AS cells FROM cells GROUP BY run, status"):
            counts[row["run"]][row["status"]] = row["cells"]
        return counts

    def latest(self, experiment: str | None = None, *, unfinished: bool = False) -> RunEntry | None:
        """The newest run, of one experiment or of any, with ``unfinished`` the newest that is not complete."""
        condition = "(?1 IS NULL OR experiment = ?1) AND (NOT ?2 OR status != 'complete')"
        return self._newest(condition, experiment, unfinished)

    def previous(self, run: str) -> RunEntry | None:
        """The newest complete run of the same experiment that began before this one."""
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
        """Give a run a name, and take it from another run. Raises ``UsageError`` for an invalid name."""
        check_baseline_name(name)
        with self._writing() as connection:
            self.entry(run)
            now = datetime.now(UTC).isoformat()
            connection.execute("INSERT OR REPLACE INTO baselines (name, run, since) VALUES (?, ?, ?)", (name, run, now))

    def remove_baseline(self, name: str) -> None:
        """Remove a name, but not its run. Raises ``UsageError`` for an unknown name."""
        with self._writing() as connection:
            known = self.baselines()
            if name not in known:
                raise unknown_baseline(name, known)
            connection.execute("DELETE FROM baselines WHERE name = ?", (name,))

    def _set_status(self, run: str, status: RunStatus, finished: str | None) -> None:
        with self._writing() as connection:
            self.entry(run)
            # Not before its start, if the host's clock was set back; NULL stays NULL.
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
            # Its process may have completed and released the run since the row was read.
            again = self.select("SELECT * FROM run_entries WHERE id = ?", stored["id"])
            stored = self._whole(again[0]) if again else stored
            abandoned = stored["status"] == "running"
        fields = {name: stored[name] for name in ("id", "experiment", "started", "digest")}
        status: RunStatus = "interrupted" if abandoned else stored["status"]
        return RunEntry(directory=Path(stored["directory"]), status=status, finished=stored.get("finished"), **fields)

    def _whole(self, row: sqlite3.Row) -> dict[str, Any]:
        stored: dict[str, Any] = dict(row)
        if not all(isinstance(stored.get(name), str) for name in _NEVER_NULL):
            raise damaged(self.path, "a run lacks a required field")
        return stored

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with storage_faults(self.path), transaction(self._connection):
            yield self._connection

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """A transaction in which several queries see the same state."""
        with storage_faults(self.path), transaction(self._connection, "BEGIN"):
            yield
