# SPDX-License-Identifier: GPL-2.0-only
"""What comparisons say in every format: names of cells, figures and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.counted import counted
from orchestrator.report.figures import NOTHING, figure
from orchestrator.report.shared_parts import shared_parts
from orchestrator.results.compared_runs import MOST_REPEATS, ComparedRuns, next_run, unresolvable
from orchestrator.results.comparison import CellChange, Comparison, first_line
from orchestrator.results.contract import CellRecord
from orchestrator.results.verdicts import Difference

_SHOWN = 5


class CellNames:
    """Names of compared cells without the parts that all of them have: ``kprobe`` of ``pentium4/debian-686/kprobe``.

    What differs between the two cells of a pair is ``kprobe -> djprobe``. ``common`` has the parts that are left out.
    """

    def __init__(self, comparison: Comparison) -> None:
        parts = [_parts(one) for one in comparison.cells]
        alike = shared_parts(parts)
        if all(alike) and alike:  # a single cell keeps its name, or what is compared
            alike = [" -> " not in part for part in parts[0]] if " -> " in "".join(parts[0]) else []
        self._left_out = alike
        self.common = tuple(part for part, out in zip(parts[0], alike, strict=True) if out) if alike else ()

    def of(self, change: CellChange) -> str:
        """The name of a pair of cells."""
        parts = _parts(change)
        if self._left_out:
            parts = tuple(part for part, out in zip(parts, self._left_out, strict=True) if not out)
        return "/".join(parts)


def _parts(change: CellChange) -> tuple[str, ...]:
    """The parts of a cell's id; of two cells ``one -> other`` where they differ."""
    cells = (change.pair.before, change.pair.after)
    ids = [cell.id.split("/") for cell in cells if cell is not None]
    if len({len(one) for one in ids}) > 1:
        return (change.pair.title,)
    return tuple(" -> ".join(dict.fromkeys(sides)) for sides in zip(*ids, strict=True))


def side(cell: CellRecord | None) -> str:
    """A cell's value; its status where it has none, a dash where there is no cell."""
    if cell is None:
        return NOTHING
    return cell.status if cell.value is None else figure(cell.value, cell.unit)


def difference_figures(difference: Difference | None, unit: str) -> tuple[str, str, str]:
    """A difference with its sign, in percent of what was before, and its interval where it is not exact."""
    if difference is None:
        return "", "", ""
    text = figure(difference.value, unit)
    return f"+{text}" if difference.value > 0 else text, _percent(difference), _interval(difference, unit)


def _percent(difference: Difference) -> str:
    if difference.relative is None or not difference.value:
        return ""
    percent = 100 * difference.relative
    return f"{percent:+.1f} %" if abs(percent) >= 0.1 else f"{percent:+.2g} %"


def _interval(difference: Difference, unit: str) -> str:
    if difference.interval is None or difference.interval[0] == difference.interval[1]:
        return ""
    low, high = (figure(round(end, 1), unit) for end in difference.interval)
    return f"{low} to {high}"


def budget_figure(change: CellChange) -> str:
    """Whether a cell is beyond its budget: ``beyond +0``, ``within +1% of overhead``; empty without one of its own."""
    if change.is_lost:
        return "beyond"
    beyond = [one for one in change.held if one.is_beyond]
    shown = beyond or [one for one in change.held if one.is_own and one.difference.value]
    allowed = [f"{one.allowance}{' of overhead' if one.figure == 'overhead' else ''}" for one in shown]
    return f"{'beyond' if beyond else 'within'} {', '.join(allowed)}" if allowed else ""


def summary(compared: ComparedRuns) -> str:
    """What all cells come to, in one sentence."""
    comparison = compared.comparison
    counts = ", ".join(f"{count} {change}" for change, count in comparison.counts.items())
    beyond = len(comparison.beyond)
    decided = not any(held.difference.undecided for one in comparison.cells for held in one.held)
    verdict = ""
    if beyond:
        verdict = f"; {beyond} beyond budget"
    elif any(held.is_own for one in comparison.cells for held in one.held):
        verdict = "; within budget" if decided else "; none is known to be beyond budget"
    return f"{counted(len(comparison.cells), 'cell')} compared: {counts or 'none'}{verdict}."


def runs_sentence(compared: ComparedRuns) -> Iterator[str]:
    """Which runs were compared, where they are two."""
    before, after = compared.before.record.run, compared.after.record.run
    if before != after:
        yield f"runs {before} -> {after}"


def experiments(compared: ComparedRuns) -> str:
    """The experiment of both runs, or the two of them."""
    return " -> ".join(dict.fromkeys(run.record.experiment for run in (compared.before, compared.after)))


def common_parts(compared: ComparedRuns) -> Iterator[str]:
    """What all cells' names leave out, such as the machine, and the two kernels of one run."""
    common = CellNames(compared.comparison).common
    if common:
        yield f"all cells: {', '.join(common)}"


def origin_sentences(compared: ComparedRuns) -> Iterator[str]:
    """What else differs between the runs."""
    for one in compared.origin:
        yield f"different {one.sentence}"


def remarks(compared: ComparedRuns) -> Iterator[str]:
    """What is not in the table: cells that were not compared or had failed before, what would decide undecided ones."""
    refused = compared.comparison.not_compared
    for one in refused[:_SHOWN]:
        yield f"Not compared: {one.pair.title}: {one.reason}."
    if len(refused) > _SHOWN:
        yield f"Not compared: {len(refused) - _SHOWN} more."
    failed = [one for one in compared.comparison.cells if one.failed_in_both]
    for cell in failed[:_SHOWN]:
        yield f"Failed in both: {cell.pair.title}: {first_line(cell.pair.first)}"
    if len(failed) > _SHOWN:
        yield f"Failed in both: {len(failed) - _SHOWN} more."
    unfinished = dict.fromkeys(one.unfinished_sentence for one in (compared.before, compared.after) if one.unfinished)
    yield from (f"{sentence}." for sentence in unfinished)
    hopeless = len(unresolvable(compared.comparison.cells))
    if hopeless:
        yield f"{counted(hopeless, 'cell')} would need more than {MOST_REPEATS} samples: their scatter is too large."


def command(compared: ComparedRuns) -> str | None:
    """The command that would decide what is undecided."""
    return next_run(compared)


def reasons(changes: Sequence[CellChange]) -> Sequence[str]:
    """The sentences on changes, each once; a mark is its number."""
    return list(dict.fromkeys(one.reason for one in changes if one.reason))
