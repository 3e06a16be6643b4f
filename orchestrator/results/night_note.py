# SPDX-License-Identifier: GPL-2.0-only
"""Which night has begun and not ended? A note beside the store says so, whatever ended the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.errors import UsageError
from orchestrator.results.faults import storage_faults
from orchestrator.results.store import RunEntry, Store
from orchestrator.whole_file import write_whole

_FOLDER = "nights"


class NightNote:
    """The note of an experiment's night: since when it is under way. Get one from ``only_night``."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def begin(self, now: datetime | None = None) -> None:
        """A night begins, with ``now``; what is left of an earlier one is no longer gone on with."""
        with storage_faults(self._file):
            write_whole(self._file, f"{(now or datetime.now(UTC)).isoformat()}\n")

    def end(self) -> None:
        """The night is over, and was reported."""
        with storage_faults(self._file):
            self._file.unlink(missing_ok=True)

    def runs(self, store: Store, experiment: str, cells: Iterable[str]) -> Sequence[RunEntry]:
        """The runs that may be those of the night that has not ended: of the experiment, begun in it, newest first.

        One that was not planned with exactly these cells, by their ids, is somebody's own, or of an experiment that has
        changed since.
        """
        begun, wanted = self._begun(), set(cells)
        if begun is None:
            return []
        since = (
            entry
            for entry in store.runs()
            if entry.experiment == experiment and datetime.fromisoformat(entry.started) >= begun
        )
        return [entry for entry in since if _cells(store, entry) == wanted]

    def _begun(self) -> datetime | None:
        with storage_faults(self._file):
            text = self._file.read_text(errors="replace") if self._file.exists() else ""
        try:
            begun = datetime.fromisoformat(text.strip())
            return begun if begun.tzinfo else None
        except ValueError:  # damaged: a new night begins
            return None


def _cells(store: Store, entry: RunEntry) -> set[str]:
    return {row["id"] for row in store.select("SELECT id FROM cells WHERE run = ?", entry.id)}


@contextmanager
def only_night(lab: Path, experiment: str) -> Iterator[NightNote]:
    """The note of an experiment's night, for one process at a time. Raises UsageError while another one has it."""
    folder = lab / _FOLDER
    with storage_faults(folder):
        for one in (lab, folder):  # parents have the umask's mode
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(folder / f"{experiment}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        what = f"a night of experiment '{experiment}' is under way in another process"
        raise UsageError(what, where=str(lab), hint="wait until it has ended") from None
    try:
        yield NightNote(folder / experiment)
    finally:
        lock.release()
