# SPDX-License-Identifier: GPL-2.0-only
"""A night: its run compared with the last good one, the verdict, and the summary on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from orchestrator.comparison.comparison import CellChange, ComparedRuns
from orchestrator.comparison.comparison_sheet import CellNames, difference_figures
from orchestrator.comparison.comparison_sheet import summary as comparison_summary
from orchestrator.comparison.verdicts import is_exact, resolution
from orchestrator.errors import UsageError
from orchestrator.files import write_whole
from orchestrator.plain_text import counted, cut, shown
from orchestrator.profile.stored.profile_difference import SymbolDifference
from orchestrator.program import command
from orchestrator.report.figures import COUNTED, figure, signed_figure, unit_name
from orchestrator.report.summary import summary
from orchestrator.report.table_report import ReportRegistry
from orchestrator.results.cell_filters import only
from orchestrator.results.contract import PER_CALL, PER_LOOP, CellRecord, Status, all_ok
from orchestrator.results.faults import storage_faults
from orchestrator.results.runs import EXPERIMENT_FILE, Run
from orchestrator.results.store import RunEntry, Store


def last_good(experiment: str) -> str:
    """The name of the baseline for an experiment's last good nightly run."""
    return f"good-{experiment}"


@dataclass(frozen=True)
class NightlyResult:
    """A nightly run of the experiment in ``file``, and its comparison with the last good one.

    ``compared`` is None for the first nightly run, or if ``not_compared`` says why the runs cannot be compared.
    """

    run: Run
    file: str
    compared: ComparedRuns | None = None
    not_compared: str = ""

    @property
    def experiment(self) -> str:
        return self.run.record.experiment

    @property
    def failed(self) -> Sequence[CellRecord]:
        return [cell for cell in self.run.record.cells if cell.status == "failed"]

    @property
    def exceeded(self) -> Sequence[CellChange]:
        """The cells that exceed their budgets, with failed and missing ones."""
        return () if self.compared is None else self.compared.comparison.exceeded

    @cached_property
    def most_changed(self) -> Mapping[str, SymbolDifference]:
        """The symbol that changed most, in the direction of the whole, of the first cells that exceed their budgets.

        By the titles of their pairs; without those that have no profile in one of the runs.
        """
        if self.compared is None:
            return {}
        listed = self.exceeded[:MOST_CELLS]
        grown = {change.pair.title: change.value is not None and change.value.value > 0 for change in listed}
        by_cell = self.compared.symbols(listed)
        differences = {
            title: next((symbol for symbol in whole.symbols if (symbol.change > 0) == grown[title]), None)
            for title, whole in by_cell.items()
        }
        return {title: symbol for title, symbol in differences.items() if symbol is not None}

    @property
    def is_good(self) -> bool:
        """Whether later runs are compared with it: every cell has an outcome, none failed or exceeds its budget."""
        has_number = any(cell.value is not None for cell in self.run.record.cells)
        is_whole = has_number and all_ok(self.run.record) and not self.run.unfinished
        return is_whole and not self.not_compared and (self.compared is None or self.compared.passes)


class NightlyMarker:
    """A file in the results folder with the start of an unreported nightly run; it outlives the process."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def begin(self, now: datetime | None = None) -> None:
        """Write the start of a new run, ``now``, after which no earlier run is resumed."""
        with storage_faults(self._file):
            write_whole(self._file, f"{(now or datetime.now(UTC)).isoformat()}\n")

    def end(self) -> None:
        with storage_faults(self._file):
            self._file.unlink(missing_ok=True)

    def runs(self, store: Store, experiment: str, cells: Iterable[str]) -> Sequence[RunEntry]:
        """The runs of the experiment since the marker, planned with exactly these cell ids, newest first.

        Runs with other cells were started by a user, or with another version of the experiment.
        """
        with storage_faults(self._file):
            text = self._file.read_text(errors="replace") if self._file.exists() else ""
        planned = set(cells)
        try:
            since = datetime.fromisoformat(text.strip())
        except ValueError:  # a damaged marker: start a new run
            return []
        if since.tzinfo is None:
            return []
        return [
            entry
            for entry in store.runs()
            if entry.experiment == experiment
            and datetime.fromisoformat(entry.started) >= since
            and {row["id"] for row in store.select("SELECT id FROM cells WHERE run = ?", entry.id)} == planned
        ]


@contextmanager
def nightly_lock(lab: Path, experiment: str) -> Iterator[NightlyMarker]:
    """Lock an experiment's nightly runs for this process. Raises UsageError while another process has the lock."""
    folder = lab / "nights"
    with storage_faults(folder):
        for path in (lab, folder):  # mkdir's mode does not apply to parents
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / f"{experiment}.lock").acquire(timeout=0)
    except Timeout:
        what = f"another process is measuring the nightly experiment '{experiment}'"
        raise UsageError(what, where=str(lab), hint="wait until it has ended") from None
    with lock:
        yield NightlyMarker(folder / experiment)


def good_or_bad(result: NightlyResult) -> Literal["good", "bad"]:
    """``good`` or ``bad``."""
    return "good" if result.is_good else "bad"


def status_counts(result: NightlyResult) -> Mapping[Status | str, int]:
    """The number of cells by status; ``planned`` are those without an outcome."""
    counts: Counter[Status | str] = Counter(cell.status for cell in result.run.record.cells)
    if result.run.unfinished:
        counts["planned"] = result.run.unfinished
    return counts


def verdict(result: NightlyResult) -> str:
    """The result in one line: ``nightly: good, cells: 45 ok``."""
    counts = ", ".join(f"{count} {status}" for status, count in status_counts(result).items())
    return f"{result.experiment}: {good_or_bad(result)}, cells: {counts or 'none'}"


def comparison_sentence(result: NightlyResult) -> str:
    """The run compared with, and a summary of the comparison."""
    if result.not_compared:
        return f"Not compared with the last good run: {result.not_compared}"
    if result.compared is None:
        return "There is no earlier good run to compare with."
    run = result.compared.before.record.run
    return f"Compared with the last good run, {run}: {comparison_summary(result.compared)}"


def subject(result: NightlyResult) -> str:
    """The subject of the mail, with the largest problem."""
    return cut(f"[{result.experiment}] {good_or_bad(result)}: {_in_short(result)}", 200)


def _in_short(result: NightlyResult) -> str:
    cells = counted(len(result.run.record.cells), "cell")
    if result.compared is not None:
        counts = ", ".join(f"{count} {change}" for change, count in result.compared.comparison.counts.items())
        return f"{counts}; {change_sentence(result, result.exceeded[0])}" if result.exceeded else counts
    if result.failed:
        return f"{len(result.failed)} of {cells} failed"
    return "not compared" if result.not_compared else cells


def change_sentence(result: NightlyResult, change: CellChange) -> str:
    """A cell and its change: ``kprobe +10 instructions (+1.1 %), most in handler +10``, or ``kprobe failed``."""
    name = change.pair.title if result.compared is None else CellNames(result.compared.comparison).of(change)
    if change.value is None:
        return f"{name} {change.change}"
    unit = change.pair.first.unit
    difference, percent, _ = difference_figures(change.value, unit)
    symbol = result.most_changed.get(change.pair.title)
    where = f", most in {symbol.title} {signed_figure(float(symbol.change), COUNTED)}" if symbol else ""
    return f"{name} {difference} {unit_name(unit)}" + (f" ({percent})" if percent else "") + where


def repeatability(result: NightlyResult) -> Iterator[str]:
    """How far repeated measurements of the same work differ (A/A), for each metric of the run."""
    cells = [cell for cell in result.run.record.cells if cell.status == "ok"]
    # The samples of other exact cells are not repetitions: each is of another probe.
    exact = [cell for cell in cells if is_exact(cell) and cell.metric in (PER_CALL, PER_LOOP)]
    if exact:
        spread = max(map(_spread, exact))
        samples = sum(len(cell.samples) for cell in exact)
        yield f"calls and loops: {figure(spread, COUNTED)} instructions, in {samples} samples of {len(exact)} cells"
    by_id = {cell.id: cell for cell in result.run.record.cells}
    varying = [cell for cell in cells if cell.calls_vary]
    if varying:
        widest = max(varying, key=_spread)
        yield f"calls that vary: samples of a cell up to {figure(_spread(widest), COUNTED)} instructions ({widest.id})"
    counted = [cell for cell in cells if cell.clock == "instructions" and not (is_exact(cell) or cell.calls_vary)]
    for table in dict.fromkeys(cell.table for cell in counted):
        yield _whole_systems(table, [cell for cell in counted if cell.table == table], by_id)
    timed = [cell for cell in cells if cell.clock == "wall"]
    if timed:
        widest = max(timed, key=_half_width)
        yield f"times: their 95 % intervals reach up to {figure(_half_width(widest), 'ns')} ns to a side ({widest.id})"


def _spread(cell: CellRecord) -> float:
    return max(cell.samples) - min(cell.samples)


def _whole_systems(table: str | None, cells: list[CellRecord], by_id: Mapping[str, CellRecord]) -> str:
    known = [(level, cell) for cell in cells if (level := resolution(cell, by_id)) is not None]
    name = table or cells[0].benchmark
    if not known:
        return f"{name}: unknown, without a further boot of the baseline"
    largest, cell = max(known, key=lambda pair: pair[0])
    share = f" ({100 * largest / cell.value:.2g} %)" if cell.value else ""
    return f"{name}: up to {figure(largest, COUNTED)} instructions{share} between boots of the same work"


def _half_width(cell: CellRecord) -> float:
    low, high = cell.interval or (0.0, 0.0)
    return (high - low) / 2


def reproducers(result: NightlyResult) -> Iterator[str]:
    """Commands that repeat the cells that exceed their budgets or failed, and that show their changes."""
    wrong = [change.pair.after for change in result.exceeded if change.pair.after is not None] or list(result.failed)
    if not wrong:
        return
    yield command("run", str(result.run.directory / EXPERIMENT_FILE), *only(wrong[:3]))
    if result.compared is not None:
        yield command("compare", result.compared.before.record.run, result.run.record.run)


def acceptance(result: NightlyResult) -> Iterator[str]:
    """The command that makes a bad run the last good one, unless a cell failed or has no outcome."""
    if not (result.is_good or result.failed or result.run.unfinished):
        yield command("compare", "--set-baseline", last_good(result.experiment), result.run.record.run)


def summary_lines(result: NightlyResult, registry: ReportRegistry) -> Iterator[str]:
    """The summary for a terminal; cells that exceed their budgets or failed first."""
    yield verdict(result)
    yield comparison_sentence(result)
    wrong = [f"budget exceeded: {change_sentence(result, change)}" for change in result.exceeded]
    yield from shown(wrong or [f"failed: {cell.id}: {cell.first_line}" for cell in result.failed], 10)
    yield from (f"- {sentence}" for sentence in summary(result.run.record, registry))
    yield from (f"reproduce: {command}" for command in reproducers(result))
    yield from (f"accept: {command}" for command in acceptance(result))


PROSE, TABLE_WIDTH = 76, 100

MOST_CELLS = 20
"""Cells that a report lists."""
