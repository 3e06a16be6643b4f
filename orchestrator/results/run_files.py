# SPDX-License-Identifier: GPL-2.0-only
"""What a run's directory has beside its results: consoles, the C of modules, how long cells took.

The directory may come from another machine: parts may be missing, and what is there is read with bounds, as text, and
never through a link that leads out of the directory.
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

from orchestrator.errors import LabError
from orchestrator.plain_text import plain_line, without_sequences
from orchestrator.results.contract import CellRecord
from orchestrator.results.origin import FILE_NAME, Boot, Origin, origin_of
from orchestrator.results.store import RunEntry, Store
from orchestrator.steps import LOG_NAME

_MODULES, _OWN = "modules", "sources"
_SOURCES = (".c", ".h", ".S", "Kbuild")
_PLAIN = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+@-]*")


@dataclass(frozen=True)
class KeptFile:
    """A text of the run: ``path`` in its directory, and its content, of which ``left_out`` bytes are not there."""

    path: str
    content: bytes
    left_out: int = 0


def provenance(directory: Path) -> Origin:
    """Read what the run was made with; what is missing or damaged is unknown, as a guest without a plain name is."""
    try:
        found = Origin() if _inside(directory, directory / FILE_NAME) is None else origin_of(directory)
    except LabError:
        return Origin()
    named = [boot for boot in found.boots if all(map(_PLAIN.fullmatch, boot.name.split("/")))]
    return found.model_copy(update={"boots": tuple(named)})


def kept_file(directory: Path, path: str, most: int) -> KeptFile | None:
    """The last ``most`` bytes of a file in the run's directory, such as a console; None where it is not there."""
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


def module_folders(directory: Path, boot: Boot, cell: CellRecord) -> Iterator[str]:
    """The folders of the cell's modules, and of what else is the user's, in the run's directory, as far as kept."""
    for one in boot.inputs.get(cell.id, {}).values():
        if _PLAIN.fullmatch(one.key):
            own = sorted((directory / _OWN).glob(f"*-{one.key[:8]}"))
            yield from (f.relative_to(directory).as_posix() for f in own if f.is_dir())
    for key in boot.keys.get(cell.id, ()):
        kept = directory / _MODULES / boot.kernel.name
        if key and _PLAIN.fullmatch(boot.kernel.name) and _PLAIN.fullmatch(key):
            yield from (f.relative_to(directory).as_posix() for f in sorted(kept.glob(f"*-{key[:8]}")) if f.is_dir())


def module_source(directory: Path, folder: str, most: int) -> KeptFile | None:
    """The C of a module as one text, the file that is named after it first; at most ``most`` bytes of each file."""
    own = Path(folder).name.rpartition("-")[0]
    files = [file for file in (directory / folder).iterdir() if file.name.endswith(_SOURCES)]
    text = b""
    for file in sorted(files, key=lambda one: (not one.name.startswith(own), one.suffix != ".c", one.name)):
        found = kept_file(directory, file.relative_to(directory).as_posix(), most)
        if found is not None:
            text += f"/* ----- {file.name} ----- */\n".encode() + found.content + b"\n"
    return KeptFile(folder, text[:most], max(0, len(text) - most)) if text else None


def _inside(directory: Path, file: Path) -> Path | None:
    """The file, where it is a regular one in the directory."""
    try:
        whole = file.resolve(strict=True)
        return whole if whole.is_file() and whole.is_relative_to(directory.resolve()) else None
    except (OSError, RuntimeError):
        return None


LAST_LINES = 40
"""A panic has thirty to fifty, with its trace and registers; the cell's reason quotes the first of them."""
_TAIL_BYTES = 16 << 10
_LARGEST_LOG = 64 << 20
_GUEST_LINE = re.compile(
    r" *\d+\.\d{3}  (?P<boot>boot\d+): +"
    r"(?:(?:boot|restore) (?P<guest>guest\d+-[\w.+-]+) on |measure (?P<cell>\S+)(?: FAILED)? \(\d)"
)


def consoles(directory: Path) -> Mapping[str, str]:
    """Console logs by cells' ids, as paths in a run's directory; of cells in its log, in guests a channel reached.

    A cell of an interrupted run has its last guest. Empty where there is no log.
    """
    try:
        lines = _log_lines(directory, _LARGEST_LOG)
    except OSError:
        return {}
    guests: dict[str, str] = {}
    found: dict[str, str] = {}
    for line in lines:
        step = _GUEST_LINE.match(line)
        if step is None:
            continue
        if step["guest"]:
            guests[step["boot"]] = step["guest"]
        elif step["boot"] in guests:
            found[step["cell"]] = f"{step['boot']}/{guests[step['boot']]}.console"
    return found


def last_lines(directory: Path, cells: Iterable[str]) -> Mapping[str, str]:
    """The last lines of the console of each of these cells, where it is still there."""
    wanted = list(cells)
    known = consoles(directory) if wanted else {}
    tails = {}
    for cell in wanted:
        kept = kept_file(directory, known[cell], _TAIL_BYTES) if cell in known else None
        text = "" if kept is None else kept.content.decode("utf-8", errors="replace")
        lines = [plain_line(line.rstrip()) for line in without_sequences(text).split("\n")]
        tails[cell] = "\n".join([line for line in lines if line][-LAST_LINES:])
    return {cell: tail for cell, tail in tails.items() if tail}


_RUNS = 3
"""Runs that are looked at, of the experiment and of all: the latest ones, as the host and the lab are now."""
_LARGEST_TIMED_LOG = 8 << 20
_TIMED_LINE = re.compile(
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

    def latest(wanted: str | None) -> list[RunEntry]:
        complete = (one for one in store.runs() if one.status == "complete" and wanted in (None, one.experiment))
        return list(islice((one for one in complete if (one.directory / LOG_NAME).is_file()), _RUNS))

    own = latest(experiment)
    by_cell: dict[str, list[float]] = defaultdict(list)
    by_benchmark: dict[str, list[float]] = defaultdict(list)
    for entry in dict.fromkeys([*own, *latest(None)]):
        try:
            record, lines = store.load_run(entry.id), _log_lines(entry.directory, _LARGEST_TIMED_LOG)
        except (LabError, OSError):
            continue
        found = logged_durations(lines)
        for cell in record.cells:
            if cell.id in found:
                by_benchmark[cell.benchmark].append(found[cell.id])
                if entry in own:
                    by_cell[cell.id].append(found[cell.id])
    return Durations(*({name: median(all_of) for name, all_of in one.items()} for one in (by_cell, by_benchmark)))


def _log_lines(directory: Path, most: int) -> Sequence[str]:
    with (directory / LOG_NAME).open("rb") as log:
        return log.read(most).decode("utf-8", errors="replace").splitlines()


@dataclass
class _Boot:
    """A boot while its log is read: until when its time is counted, its last measured cell, and those stored."""

    last: float
    measured: str | None = None
    stored: list[str] = field(default_factory=list)


def logged_durations(lines: Iterable[str]) -> Mapping[str, float]:
    """Seconds of each cell by a run's log: since the one before it ended, or its guest's start began.

    The last one of a guest has that guest's end. Cells of a guest that works by itself end together: each has an equal
    part of its boot.
    """
    found: dict[str, float] = defaultdict(float)
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
                found[cell] += (float(step["at"]) - boot.last) / len(cells)
            boot.last = float(step["at"])
    return found
