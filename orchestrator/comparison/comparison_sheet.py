# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as a table, as Markdown, and as a comment of a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from orchestrator.comparison.comparison import (
    MOST_REPEATS,
    CellChange,
    ComparedRuns,
    Comparison,
    next_run,
)
from orchestrator.comparison.verdicts import Difference
from orchestrator.plain_text import counted, shown
from orchestrator.profile.printed.profile_sheets import change_figures, difference_sheet, first_and_rest, others
from orchestrator.profile.stored.profile_difference import ProfileDifference
from orchestrator.program import command
from orchestrator.report.columns import Column, Columns, Remarks
from orchestrator.report.figures import COUNTED, NOTHING, figure, signed_figure, unit_name
from orchestrator.report.footnotes import Footnote
from orchestrator.report.github_comment import FAILS, PASSES, details, github_comment, made_with
from orchestrator.report.grid import Grid, Row
from orchestrator.report.markdown import escaped, grid_table, markdown_footnote, paragraph, quoted
from orchestrator.report.sheet import Sheet, shared_parts
from orchestrator.results.contract import CellRecord

_SHOWN = 5


class CellNames:
    """Names of compared cells without the parts that all share: ``kprobe`` for ``pentium4/debian-686/kprobe``.

    Parts that differ within a pair are ``kprobe -> djprobe``. ``common`` has the shared parts.
    """

    def __init__(self, comparison: Comparison) -> None:
        parts = [_parts(cell) for cell in comparison.cells]
        alike = shared_parts(parts)
        if all(alike) and alike:  # a single cell keeps its name, or the parts that differ
            alike = [" -> " not in part for part in parts[0]] if " -> " in "".join(parts[0]) else []
        self._left_out = alike
        self.common = tuple(part for part, out in zip(parts[0], alike, strict=True) if out) if alike else ()

    def of(self, change: CellChange) -> str:
        parts = _parts(change)
        if self._left_out:
            parts = tuple(part for part, out in zip(parts, self._left_out, strict=True) if not out)
        return "/".join(parts)


def _parts(change: CellChange) -> tuple[str, ...]:
    """The parts of a cell's id, ``one -> other`` for parts that differ."""
    cells = (change.pair.before, change.pair.after)
    ids = [cell.id.split("/") for cell in cells if cell is not None]
    if len({len(parts) for parts in ids}) > 1:
        return (change.pair.title,)
    return tuple(" -> ".join(dict.fromkeys(pair)) for pair in zip(*ids, strict=True))


def value_or_status(cell: CellRecord | None) -> str:
    """A cell's value, else its status; a dash for a missing cell."""
    if cell is None:
        return NOTHING
    return cell.status if cell.value is None else figure(cell.value, cell.unit)


def difference_figures(difference: Difference | None, unit: str) -> tuple[str, str, str]:
    """A difference with its sign, its percentage, and its interval unless it is exact."""
    if difference is None:
        return "", "", ""
    percent = interval = ""
    if difference.relative is not None and difference.value:
        share = 100 * difference.relative
        percent = f"{share:+.1f} %" if abs(share) >= 0.1 else f"{share:+.2g} %"
    if difference.interval is not None and difference.interval[0] != difference.interval[1]:
        interval = " to ".join(figure(round(end, 1), unit) for end in difference.interval)
    return signed_figure(difference.value, unit), percent, interval


def budget_figure(change: CellChange) -> str:
    """``exceeds +0`` or ``within +1% of overhead``; empty without a budget of the cell's own."""
    if change.is_lost:
        return "exceeded"
    if change.unproved:
        return "unknown"
    exceeded = [budgeted_figure for budgeted_figure in change.budgeted if budgeted_figure.is_exceeded]
    shown = exceeded or [
        budgeted_figure
        for budgeted_figure in change.budgeted
        if budgeted_figure.is_own and budgeted_figure.difference.value
    ]
    allowed = [
        f"{budgeted_figure.budget}{' of overhead' if budgeted_figure.figure == 'overhead' else ''}"
        for budgeted_figure in shown
    ]
    return f"{'exceeds' if exceeded else 'within'} {', '.join(allowed)}" if allowed else ""


def summary(compared: ComparedRuns) -> str:
    """The number of cells by change, and whether all are within budget, as one sentence."""
    comparison = compared.comparison
    counts = ", ".join(f"{count} {change}" for change, count in comparison.counts.items())
    exceeded = len(comparison.exceeded)
    decided = not any(budgeted.difference.undecided for cell in comparison.cells for budgeted in cell.budgeted)
    verdict = ""
    if exceeded:
        verdict = f"; {exceeded} {'exceeds its' if exceeded == 1 else 'exceed their'} budget"
    elif any(budgeted.is_own for cell in comparison.cells for budgeted in cell.budgeted):
        verdict = "; within budget" if decided else "; none is known to exceed its budget"
    unjudged = {"without a number before": len(comparison.unproved), "not compared": len(comparison.not_compared)}
    verdict += "".join(f"; {count} {what}" for what, count in unjudged.items() if count)
    return f"{counted(len(comparison.cells), 'cell')} compared: {counts or 'none'}{verdict}."


def runs_sentence(compared: ComparedRuns) -> list[str]:
    """The compared runs, if they are two."""
    runs = dict.fromkeys(run.record.run for run in (compared.before, compared.after))
    return [f"runs {' -> '.join(runs)}"] if len(runs) > 1 else []


def experiments(compared: ComparedRuns) -> str:
    """The experiment of both runs, or both experiments."""
    return " -> ".join(dict.fromkeys(run.record.experiment for run in (compared.before, compared.after)))


def common_parts(compared: ComparedRuns) -> list[str]:
    """The parts that all cells' names share, such as the machine."""
    common = CellNames(compared.comparison).common
    return [f"all cells: {', '.join(common)}"] if common else []


def provenance_sentences(compared: ComparedRuns) -> list[str]:
    """The differences in the provenance of the runs."""
    return [f"different {difference.sentence}" for difference in compared.differs]


def remarks(compared: ComparedRuns) -> Iterator[str]:
    """Remarks on cells that are not in the table, and on undecided cells."""
    refused = [f"Not compared: {pair.title}: {why}." for pair, why in compared.comparison.not_compared]
    yield from shown(refused, _SHOWN, "Not compared: {} more.")
    failed = [cell.pair for cell in compared.comparison.cells if cell.failed_in_both]
    both = [f"Failed in both: {pair.title}: {pair.first.first_line}" for pair in failed]
    yield from shown(both, _SHOWN, "Failed in both: {} more.")
    unfinished = dict.fromkeys(run.unfinished_sentence for run in (compared.before, compared.after) if run.unfinished)
    yield from (f"{sentence}." for sentence in unfinished)
    undecided = [cell.value for cell in compared.comparison.cells if cell.change == "undecided" and cell.value]
    hopeless = sum((difference.repeats or 0) > MOST_REPEATS for difference in undecided)
    if hopeless:
        needs = "needs" if hopeless == 1 else "need"
        yield f"{counted(hopeless, 'cell')} {needs} more than {MOST_REPEATS} samples for a verdict: too much scatter."


_SYMBOLS = 5
"""Listed symbols of a cell; the rest share a row."""


@dataclass(frozen=True)
class _Figures:
    """A row of a comparison: of a cell, of its overhead, or of a symbol."""

    before: str = ""
    after: str = ""
    change: str = ""
    percent: str = ""
    interval: str = ""
    verdict: str = ""
    """How the cell has changed, with the mark of the reason; whether only one side has the symbol."""
    budget: str = ""
    unit: str = ""


_COLUMNS: Columns[_Figures] = Columns(
    [
        *(Column(name, attrgetter(name)) for name in ("before", "after", "change")),
        Column("", attrgetter("percent"), optional=True),
        Column("95 %", attrgetter("interval"), optional=True),
        Column("", attrgetter("verdict"), optional=True),
        *(Column(name, attrgetter(name), optional=True) for name in ("budget", "unit")),
    ],
    together=4,
    narrowest=16,
)
_COUNTS: Columns[int] = Columns([Column("cells", str)])
_STYLES = {"dearer": "red", "failed": "red", "vanished": "red", "cheaper": "green", "fixed": "green"}


def comparison_sheet(compared: ComparedRuns, limit: int | None = None) -> Sheet:
    """The changed cells, the largest relative change first; those after the first ``limit`` share a row."""
    listed, _ = first_and_rest(compared.comparison.changed, limit)
    grid, footnotes = _grid(compared, listed, compared.symbols(listed))
    next_command = next_run(compared)
    unchanged = _COUNTS.row("unchanged", compared.comparison.counts.get("unchanged", 0))
    return Sheet(
        title=experiments(compared),
        facts=[summary(compared), *runs_sentence(compared), *provenance_sentences(compared), *common_parts(compared)],
        grid=grid if listed else _COUNTS.grid([unchanged]),
        sentences=[*remarks(compared), *([f"To decide: {next_command}"] if next_command else [])],
        footnotes=footnotes,
    )


def _grid(
    compared: ComparedRuns, listed: Sequence[CellChange], symbols: Mapping[str, ProfileDifference]
) -> tuple[Grid, Sequence[Footnote]]:
    """The listed changes, each with its ``symbols`` by the title of its pair."""
    names = CellNames(compared.comparison)
    reasons = Remarks()
    units = [unit_name(change.pair.first.unit) for change in listed]
    # Counts alone need no unit.
    shown_units = units if {*units} - {COUNTED} else [""] * len(listed)
    rows = [
        row
        for change, unit in zip(listed, shown_units, strict=True)
        for row in _rows(change, names.of(change), symbols.get(change.pair.title), reasons, unit)
    ]
    hidden = len(compared.comparison.changed) - len(listed)
    if hidden:
        rows.append(_COLUMNS.title(others(hidden), ""))
    return _COLUMNS.grid(rows), reasons.footnotes()


def _rows(
    change: CellChange, name: str, symbols: ProfileDifference | None, reasons: Remarks, shown_unit: str
) -> Iterator[Row]:
    unit = change.pair.first.unit
    figures = _Figures(
        value_or_status(change.pair.before),
        value_or_status(change.pair.after),
        *difference_figures(change.value, unit),
        f"{change.change}{reasons.mark(change.reason)}",
        budget_figure(change),
        shown_unit,
    )
    style = _STYLES.get(change.change, "") if change.exceeded or change.change == "fixed" else ""
    yield _COLUMNS.row(name, figures, style)
    overhead = change.overhead
    if overhead is not None and (overhead.before or overhead.after):
        before, after = figure(overhead.before, unit), figure(overhead.after, unit)
        yield _COLUMNS.row("overhead", _Figures(before, after, *difference_figures(overhead, unit)), depth=2)
    listed = symbols.symbols if symbols is not None else []
    for difference in listed[:_SYMBOLS]:
        figures = _Figures(*change_figures(difference.before, difference.after))
        yield _COLUMNS.row(difference.title, figures, depth=2)
    hidden = listed[_SYMBOLS:]
    if hidden:
        together = signed_figure(float(sum(symbol_difference.change for symbol_difference in hidden)), COUNTED)
        yield _COLUMNS.row(f"{others(len(hidden))}, by symbol", _Figures(change=together), depth=2)


_LISTED = 100
"""Named unchanged cells: a comment on GitHub has at most 65536 characters."""


def render_comparison(compared: ComparedRuns, limit: int | None = None) -> str:
    """The comparison as GitHub-flavoured Markdown without a heading, for a comment."""
    mark = PASSES if compared.passes else FAILS
    parts = [f"{mark} **{escaped(summary(compared))}**"]
    if compared.comparison.changed:
        sheet = comparison_sheet(compared, limit)
        parts.append(grid_table(sheet.grid))
        parts += map(markdown_footnote, sheet.footnotes)
    parts.append(details("Details", "\n\n".join(_rest(compared))))
    return "\n\n".join(parts) + "\n"


def comparison_comment(compared: ComparedRuns, limit: int | None = None) -> str:
    """The comparison as a comment of a pull request: see ``github_comment``."""
    mark = PASSES if compared.passes else FAILS
    listed, _ = first_and_rest(compared.comparison.changed, limit)
    names = CellNames(compared.comparison)
    symbols = compared.symbols(listed)
    grid, footnotes = _grid(compared, listed, {})
    parts = [grid_table(grid)] if listed else []
    parts += map(markdown_footnote, footnotes)
    for change in listed:
        if (symbol := symbols.get(change.pair.title)) is not None:
            table = grid_table(difference_sheet(symbol, SYMBOLS_IN_FULL).grid)
            parts.append(details(f"{names.of(change)}, by symbol", table))
    parts.append(details("Details", "\n\n".join(_rest(compared))))
    before, after = compared.before.record.run, compared.after.record.run
    more = command("report", after) if before == after else command("compare", before, after, "--limit", "0")
    runs = [compared.before] if before == after else [compared.before, compared.after]
    made = made_with(*runs)
    return github_comment(experiments(compared), f"{mark} {summary(compared)}", parts, made, more)


def _rest(compared: ComparedRuns) -> Iterator[str]:
    before, after = compared.before.record.run, compared.after.record.run
    runs = [f"run: `{before}`"] if before == after else [f"before: `{before}`", f"after: `{after}`"]
    cells = [escaped(sentence) for sentence in common_parts(compared)]
    yield "  \n".join([f"experiment {escaped(experiments(compared))}", *runs, *cells])
    for sentences in (provenance_sentences(compared), list(remarks(compared))):
        if sentences:
            yield paragraph(*sentences)
    unchanged = [cell for cell in compared.comparison.cells if cell.change == "unchanged"]
    if unchanged:
        yield f"{len(unchanged)} unchanged: " + ", ".join(escaped(change.pair.title) for change in unchanged[:_LISTED])
    next_command = next_run(compared)
    if next_command:
        yield f"To decide the undecided cells:\n\n{quoted(next_command.splitlines(), 'sh')}"


SYMBOLS_IN_FULL = 20
"""Symbols of a cell in a comment and on a page."""
