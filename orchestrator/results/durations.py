# SPDX-License-Identifier: GPL-2.0-only
"""How long cells took in earlier runs on this host, by their logs of steps: seconds of the host's time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median

from orchestrator.errors import LabError
from orchestrator.results.store import RunEntry, Store
from orchestrator.steps import LOG_NAME

_RUNS = 3
"""Runs that are looked at, of the experiment and of all: the latest ones, as the host and the lab are now."""
_LARGEST_LOG = 8 << 20
_LINE = re.compile(
    r" *(?P<at>\d+\.\d{3})  (?P<boot>boot\d+): "
    r"(?:(?P<begins>boot .+ \.\.\.$)|boot .+ \(\d"
    r"| +measure (?P<cell>\S+)(?: FAILED)? \(\d| +store (?P<stored>\S+) \(\d)"
)
"""A boot begins, one of its cells was measured or stored, or it ends: steps of the boot's own are indented."""


@dataclass(frozen=True)
class Durations:
    """Medians in seconds, with its share of its guest's start: by a cell's id, and by benchmark."""

    cells: Mapping[str, float]
    benchmarks: Mapping[str, float]

    def of(self, cell: str, benchmark: str) -> float | None:
        """What a cell will probably take; None where neither it nor another of its benchmark was measured here."""
        return self.cells.get(cell, self.benchmarks.get(benchmark))


def durations(store: Store, experiment: str) -> Durations:
    """How long cells took in the latest complete runs: of the experiment by cell, of all by benchmark.

    A run whose log or record cannot be read tells nothing.
    """
    complete = [entry for entry in store.runs() if entry.status == "complete"]
    own = _logged(entry for entry in complete if entry.experiment == experiment)
    by_cell: dict[str, list[float]] = defaultdict(list)
    by_benchmark: dict[str, list[float]] = defaultdict(list)
    for entry in dict.fromkeys([*own, *_logged(complete)]):
        for cell, benchmark, seconds in _of_run(store, entry):
            by_benchmark[benchmark].append(seconds)
            if entry in own:
                by_cell[cell].append(seconds)
    return Durations(*({name: median(all_of) for name, all_of in one.items()} for one in (by_cell, by_benchmark)))


def _logged(entries: Iterable[RunEntry]) -> list[RunEntry]:
    """The latest runs whose directories are still there."""
    return list(islice((entry for entry in entries if (entry.directory / LOG_NAME).is_file()), _RUNS))


def _of_run(store: Store, entry: RunEntry) -> Iterator[tuple[str, str, float]]:
    """Each cell of a run with its benchmark and its seconds."""
    try:
        record, lines = store.load_run(entry.id), _log_lines(entry.directory / LOG_NAME)
    except (LabError, OSError):
        return
    benchmarks = {cell.id: cell.benchmark for cell in record.cells}
    for cell, seconds in logged_durations(lines).items():
        if cell in benchmarks:
            yield cell, benchmarks[cell], seconds


def _log_lines(file: Path) -> Sequence[str]:
    with file.open("rb") as log:
        return log.read(_LARGEST_LOG).decode("utf-8", errors="replace").splitlines()


def logged_durations(lines: Iterable[str]) -> Mapping[str, float]:
    """Seconds of each cell by a run's log: since the one before it ended, or its guest's start began.

    The last one of a guest has that guest's end. Cells of a guest that works by itself end together: each has an equal
    part of its boot.
    """
    found: dict[str, float] = defaultdict(float)
    boots: dict[str, _Boot] = {}
    for line in lines:
        if line.startswith("#"):  # another process goes on with the run
            boots.clear()
        step = _LINE.match(line)
        if step is None:
            continue
        at = float(step["at"])
        if step["begins"]:
            boots[step["boot"]] = _Boot(at)
        elif step["boot"] in boots:
            for cell, seconds in boots[step["boot"]].until(at, step["cell"], step["stored"]):
                found[cell] += seconds
    return found


@dataclass
class _Boot:
    """One boot while its log is read: until when its time is counted, its last measured cell, and those stored."""

    last: float
    measured: str | None = None
    stored: list[str] = field(default_factory=list)

    def until(self, at: float, measured: str | None, stored: str | None) -> Iterator[tuple[str, float]]:
        """What is known at a time at which a cell was measured, or stored, or (None) the boot ended."""
        if stored is not None:
            self.stored.append(stored)
            return
        self.measured = measured or self.measured
        cells = self.stored if self.measured is None else [self.measured]
        yield from ((cell, (at - self.last) / len(cells)) for cell in cells)
        self.last = at
