# SPDX-License-Identifier: GPL-2.0-only
"""Files of a run's directory besides its results: consoles, sources of modules, the log with the durations of cells.

The directory may come from another machine: files may be missing, and are read with bounds, as text, and never through
a link that leads out of the directory.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from orchestrator.errors import LabError
from orchestrator.plain_text import plain_line, without_sequences
from orchestrator.program import command
from orchestrator.results.cell_filters import only
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import EXPERIMENT_FILE
from orchestrator.results.store import RunEntry, Store
from orchestrator.steps import LOG_NAME

if TYPE_CHECKING:
    from orchestrator.results.recorded_provenance import BootProvenance, RecordedProvenance

_MODULES, _OWN = "modules", "sources"
_SOURCES = (".c", ".h", ".S", "Kbuild")
_PLAIN = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+@-]*")


@dataclass(frozen=True)
class KeptFile:
    """A text file of the run, by its ``path`` in the run's directory; ``left_out`` bytes were cut."""

    path: str
    content: bytes
    left_out: int = 0


def readable_provenance(directory: Path) -> RecordedProvenance:
    """The run's provenance, empty if missing or damaged, without guests of unsafe names."""
    from orchestrator.results.recorded_provenance import FILE_NAME, RecordedProvenance, provenance_of  # for reports

    try:
        recorded = (
            RecordedProvenance() if _inside(directory, directory / FILE_NAME) is None else provenance_of(directory)
        )
    except LabError:
        return RecordedProvenance()
    named = [boot for boot in recorded.boots if all(map(_PLAIN.fullmatch, boot.name.split("/")))]
    return recorded.model_copy(update={"boots": tuple(named)})


def kept_file(directory: Path, path: str, most: int) -> KeptFile | None:
    """The last ``most`` bytes of a file in the run's directory, such as a console; None without the file."""
    file = _inside(directory, directory / path)
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - most))
            return KeptFile(path, opened.read(most), max(0, size - most))
    except OSError:
        return None


def module_folders(directory: Path, boot: BootProvenance, cell: CellRecord) -> Iterator[str]:
    """The folders of the sources of the cell's modules and other user files, in the run's directory."""
    for source in boot.inputs.get(cell.id, {}).values():
        if _PLAIN.fullmatch(source.key):
            paths = sorted((directory / _OWN).glob(f"*-{source.key[:8]}"))
            yield from (f.relative_to(directory).as_posix() for f in paths if f.is_dir())
    for key in boot.keys.get(cell.id, ()):
        kept = directory / _MODULES / boot.kernel.name
        if key and _PLAIN.fullmatch(boot.kernel.name) and _PLAIN.fullmatch(key):
            yield from (f.relative_to(directory).as_posix() for f in sorted(kept.glob(f"*-{key[:8]}")) if f.is_dir())


def module_source(directory: Path, folder: str, most: int) -> KeptFile | None:
    """A module's sources as one text, the main file first; at most ``most`` bytes of each file."""
    module = Path(folder).name.rpartition("-")[0]
    files = [file for file in (directory / folder).iterdir() if file.name.endswith(_SOURCES)]
    text = b""
    for file in sorted(files, key=lambda path: (not path.name.startswith(module), path.suffix != ".c", path.name)):
        kept = kept_file(directory, file.relative_to(directory).as_posix(), most)
        if kept is not None:
            text += f"/* ----- {file.name} ----- */\n".encode() + kept.content + b"\n"
    return KeptFile(folder, text[:most], max(0, len(text) - most)) if text else None


def _inside(directory: Path, file: Path) -> Path | None:
    """The resolved file, if it is a regular file in the directory."""
    try:
        whole = file.resolve(strict=True)
        return whole if whole.is_file() and whole.is_relative_to(directory.resolve()) else None
    except (OSError, RuntimeError):
        return None


LAST_LINES = 40
"""A panic has thirty to fifty lines; the cell's reason quotes the first of them."""
_TAIL_BYTES = 16 << 10
_LARGEST_LOG = 64 << 20
_GUEST_LINE = re.compile(
    r" *\d+\.\d{3}  (?P<boot>boot\d+): +"
    r"(?:(?:boot|restore) (?P<guest>guest\d+-[\w.+-]+) on |measure (?P<cell>\S+)(?: FAILED)? \(\d)"
)


def consoles(directory: Path) -> Mapping[str, str]:
    """Paths of console logs in a run's directory by cell id, from the run's log; empty without a log.

    A cell measured again after an interruption has its last guest's console. Unattended guests are left out.
    """
    try:
        lines = _log_lines(directory, _LARGEST_LOG)
    except OSError:
        return {}
    guests: dict[str, str] = {}
    paths: dict[str, str] = {}
    for line in lines:
        step = _GUEST_LINE.match(line)
        if step is None:
            continue
        if step["guest"]:
            guests[step["boot"]] = step["guest"]
        elif step["boot"] in guests:
            paths[step["cell"]] = f"{step['boot']}/{guests[step['boot']]}.console"
    return paths


def last_lines(directory: Path, cells: Iterable[str]) -> Mapping[str, str]:
    """The last lines of these cells' consoles, if kept."""
    ids = list(cells)
    known = consoles(directory) if ids else {}
    tails = {}
    for cell in ids:
        kept = kept_file(directory, known[cell], _TAIL_BYTES) if cell in known else None
        text = "" if kept is None else kept.content.decode("utf-8", errors="replace")
        lines = [plain_line(line.rstrip()) for line in without_sequences(text).split("\n")]
        tails[cell] = "\n".join([line for line in lines if line][-LAST_LINES:])
    return {cell: tail for cell, tail in tails.items() if tail}


_RUNS = 3
"""The number of latest runs used, of the experiment and of all."""
_LARGEST_TIMED_LOG = 8 << 20
_TIMED_LINE = re.compile(
    r" *(?P<at>\d+\.\d{3})  (?P<boot>boot\d+): "
    r"(?:(?P<begins>boot .+ \.\.\.$)|boot .+ \(\d"
    r"| +measure (?P<cell>\S+)(?: FAILED)? \(\d| +store (?P<stored>\S+) \(\d)"
)
"""Lines at which a boot begins, a cell was measured or stored, or a boot ends; other steps are indented further."""


@dataclass(frozen=True)
class Durations:
    """Median durations in seconds by cell id and by benchmark, including a share of the guest's start."""

    cells: Mapping[str, float]
    benchmarks: Mapping[str, float]

    def of(self, cell: str, benchmark: str) -> float | None:
        """The expected duration of a cell; None if neither it nor its benchmark was measured before."""
        return self.cells.get(cell, self.benchmarks.get(benchmark))


def durations(store: Store, experiment: str) -> Durations:
    """Durations in the latest complete runs: of the experiment by cell, of all by benchmark.

    Runs with an unreadable log or record are left out.
    """

    def latest(name: str | None) -> list[RunEntry]:
        complete = (run for run in store.runs() if run.status == "complete" and name in (None, run.experiment))
        return list(islice((run_entry for run_entry in complete if (run_entry.directory / LOG_NAME).is_file()), _RUNS))

    entries = latest(experiment)
    by_cell: dict[str, list[float]] = defaultdict(list)
    by_benchmark: dict[str, list[float]] = defaultdict(list)
    for entry in dict.fromkeys([*entries, *latest(None)]):
        try:
            record, lines = store.load_run(entry.id), _log_lines(entry.directory, _LARGEST_TIMED_LOG)
        except (LabError, OSError):
            continue
        seconds = logged_durations(lines)
        for cell in record.cells:
            if cell.id in seconds:
                by_benchmark[cell.benchmark].append(seconds[cell.id])
                if entry in entries:
                    by_cell[cell.id].append(seconds[cell.id])
    return Durations(_medians(by_cell), _medians(by_benchmark))


def _medians(seconds: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
    return {name: median(times) for name, times in seconds.items()}


def _log_lines(directory: Path, most: int) -> Sequence[str]:
    with (directory / LOG_NAME).open("rb") as log:
        return log.read(most).decode("utf-8", errors="replace").splitlines()


@dataclass
class _Boot:
    """The state of a boot while its log is read: the time counted so far, its last measured cell, its stored cells."""

    last: float
    measured: str | None = None
    stored: list[str] = field(default_factory=list)


def logged_durations(lines: Iterable[str]) -> Mapping[str, float]:
    """Seconds of each cell by a run's log: since the end of the previous cell, or since the guest's start.

    The last cell of a guest includes the guest's end. The cells of an unattended guest share its time equally.
    """
    seconds: dict[str, float] = defaultdict(float)
    boots: dict[str, _Boot] = {}
    for line in lines:
        if line.startswith("#"):  # another process resumes the run
            boots.clear()
        step = _TIMED_LINE.match(line)
        if step is None:
            continue
        boot = boots.get(step["boot"])
        if step["begins"]:
            boots[step["boot"]] = _Boot(float(step["at"]))
        elif boot is not None and step["stored"]:
            boot.stored.append(step["stored"])
        elif boot is not None:
            boot.measured = step["cell"] or boot.measured
            cells = [boot.measured] if boot.measured else boot.stored
            for cell in cells:
                seconds[cell] += (float(step["at"]) - boot.last) / len(cells)
            boot.last = float(step["at"])
    return seconds


def repeat_command(directory: Path, record: CellRecord) -> str | None:
    """The command that measures the cell and its baseline again; None without the experiment's file."""
    experiment = directory / EXPERIMENT_FILE
    return command("run", str(experiment.absolute()), *only([record])) if experiment.is_file() else None
