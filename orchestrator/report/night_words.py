# SPDX-License-Identifier: GPL-2.0-only
"""What every form of a night says: how it went, what equal runs differ by, what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from orchestrator.counted import counted
from orchestrator.program import command
from orchestrator.report.comparison_figures import CellNames, difference_figures
from orchestrator.report.comparison_figures import summary as comparison_summary
from orchestrator.report.figures import COUNTED, figure, unit_name
from orchestrator.results.comparison import CellChange
from orchestrator.results.contract import PER_CALL, PER_LOOP, CellRecord, Status
from orchestrator.results.night import Night, good_night
from orchestrator.results.verdicts import is_exact, resolvable

_NAMED = 3
"""Cells that a reproducer names."""
_LONGEST_SUBJECT = 200


def word(night: Night) -> str:
    """``good`` or ``bad``."""
    return "good" if night.is_good else "bad"


def states(night: Night) -> Mapping[Status | str, int]:
    """How many cells have each status; ``planned`` are those without an outcome."""
    counts: Counter[Status | str] = Counter(cell.status for cell in night.run.record.cells)
    if night.run.unfinished:
        counts["planned"] = night.run.unfinished
    return counts


def verdict(night: Night) -> str:
    """The night in a sentence: ``nightly: good night, 45 cells ok``."""
    counts = ", ".join(f"{count} {status}" for status, count in states(night).items())
    return f"{night.experiment}: {word(night)} night, cells: {counts or 'none'}"


def against(night: Night) -> str:
    """What it was compared with, and what that comes to."""
    if night.doubt:
        return f"Not compared with the last good night: {night.doubt}"
    if night.compared is None:
        return "There is no good night before it to compare with."
    return (
        f"Compared with the last good night, {night.compared.before.record.run}: {comparison_summary(night.compared)}"
    )


def subject(night: Night) -> str:
    """A line for a mailbox: what is wrong, the largest of it by name."""
    text = f"[{night.experiment}] {word(night)}: {_in_short(night)}"
    return text if len(text) <= _LONGEST_SUBJECT else f"{text[: _LONGEST_SUBJECT - 4]} ..."


def _in_short(night: Night) -> str:
    count = len(night.run.record.cells)
    cells = counted(count, "cell")
    if night.compared is not None:
        counts = ", ".join(f"{count} {change}" for change, count in night.compared.comparison.counts.items())
        return f"{counts}; {change_sentence(night, night.beyond[0])}" if night.beyond else counts
    if night.failed:
        return f"{len(night.failed)} of {cells} failed"
    return "not compared" if night.doubt else cells


def change_sentence(night: Night, change: CellChange) -> str:
    """A cell and its change: ``kprobe +10 instructions (+1.1 %)``, or ``kprobe failed``."""
    name = change.pair.title if night.compared is None else CellNames(night.compared.comparison).of(change)
    if change.value is None:
        return f"{name} {change.change}"
    unit = change.pair.first.unit
    difference, percent, _ = difference_figures(change.value, unit)
    return f"{name} {difference} {unit_name(unit)}" + (f" ({percent})" if percent else "")


def equal_runs(night: Night) -> Iterator[str]:
    """What the measurement of one thing, done again, differs by (A/A), for each kind of figure that the night has."""
    cells = [cell for cell in night.run.record.cells if cell.status == "ok"]
    # Samples of other exact cells are of different things: of one probe after the other.
    exact = [cell for cell in cells if is_exact(cell) and cell.metric in (PER_CALL, PER_LOOP)]
    if exact:
        spread = max(max(cell.samples) - min(cell.samples) for cell in exact)
        samples = sum(len(cell.samples) for cell in exact)
        yield f"calls and loops: {figure(spread, COUNTED)} instructions, in {samples} samples of {len(exact)} cells"
    by_id = {cell.id: cell for cell in night.run.record.cells}
    counted = [cell for cell in cells if cell.clock == "instructions" and not is_exact(cell)]
    for table in dict.fromkeys(cell.table for cell in counted):
        yield _whole_systems(table, [cell for cell in counted if cell.table == table], by_id)
    timed = [cell for cell in cells if cell.clock == "wall"]
    if timed:
        widest = max(timed, key=_half_width)
        yield f"times: their 95 % intervals reach up to {figure(_half_width(widest), 'ns')} ns to a side ({widest.id})"


def _whole_systems(table: str | None, cells: list[CellRecord], by_id: Mapping[str, CellRecord]) -> str:
    known = [(level, cell) for cell in cells if (level := resolvable(cell, by_id)) is not None]
    name = table or cells[0].benchmark
    if not known:
        return f"{name}: unknown, without a further boot of the baseline"
    largest, cell = max(known, key=lambda one: one[0])
    share = f" ({100 * largest / cell.value:.2g} %)" if cell.value else ""
    return f"{name}: up to {figure(largest, COUNTED)} instructions{share} between boots of the same work"


def _half_width(cell: CellRecord) -> float:
    low, high = cell.interval or (0.0, 0.0)
    return (high - low) / 2


def reproducers(night: Night) -> Iterator[str]:
    """Commands that measure what is beyond budget or failed again, and that explain it."""
    wrong = [one.pair.after for one in night.beyond if one.pair.after is not None] or list(night.failed)
    if not wrong:
        return
    experiment = str(night.run.directory / "experiment.yaml")
    # A comma in an id would part the filter.
    only = [part for cell in wrong[:_NAMED] for part in ("--only", f"id={cell.id.replace(',', '?')}")]
    yield command("run", experiment, *only)
    if night.compared is not None:
        yield command("compare", night.compared.before.record.run, night.run.record.run)


def acceptance(night: Night) -> str | None:
    """The command that makes a night the one that later ones are compared with; None where it is, or has failed."""
    if night.is_good or night.failed or night.run.unfinished:
        return None
    return command("baseline", "set", good_night(night.experiment), night.run.record.run)
