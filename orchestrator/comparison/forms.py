# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as a table, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from pydantic_core import to_json

from orchestrator.comparison.comparison import (
    MOST_REPEATS,
    CellChange,
    CellPair,
    ComparedRuns,
    Comparison,
    next_run,
    unresolvable,
)
from orchestrator.comparison.verdicts import Difference
from orchestrator.plain_text import counted, shown
from orchestrator.report.profile_sheets import change_figures, others, signed
from orchestrator.report.sheet import (
    NOTHING,
    Footnote,
    Grid,
    Row,
    Sheet,
    figure,
    shared_parts,
    signed_figure,
    used_columns,
)
from orchestrator.report.text import escaped, grid_table, paragraph, quoted
from orchestrator.results.contract import CellRecord
from orchestrator.results.stored_profile import ProfileDifference

# What comparisons say in every format: names of cells, figures and sentences.

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
    percent = interval = ""
    if difference.relative is not None and difference.value:
        share = 100 * difference.relative
        percent = f"{share:+.1f} %" if abs(share) >= 0.1 else f"{share:+.2g} %"
    if difference.interval is not None and difference.interval[0] != difference.interval[1]:
        interval = " to ".join(figure(round(end, 1), unit) for end in difference.interval)
    return signed_figure(difference.value, unit), percent, interval


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
    refused = [f"Not compared: {pair.title}: {why}." for pair, why in compared.comparison.not_compared]
    yield from shown(refused, _SHOWN, "Not compared: {} more.")
    failed = [one.pair for one in compared.comparison.cells if one.failed_in_both]
    both = [f"Failed in both: {pair.title}: {pair.first.first_line}" for pair in failed]
    yield from shown(both, _SHOWN, "Failed in both: {} more.")
    unfinished = dict.fromkeys(one.unfinished_sentence for one in (compared.before, compared.after) if one.unfinished)
    yield from (f"{sentence}." for sentence in unfinished)
    hopeless = len(unresolvable(compared.comparison.cells))
    if hopeless:
        yield f"{counted(hopeless, 'cell')} would need more than {MOST_REPEATS} samples: their scatter is too large."


def reasons(changes: Sequence[CellChange]) -> Sequence[str]:
    """The sentences on changes, each once; a mark is its number."""
    return list(dict.fromkeys(one.reason for one in changes if one.reason))


# A comparison as a table: the cells that changed, and below each the symbols that explain it.

_SYMBOLS = 5
"""Symbols of a cell that are listed; the rest are one row."""
_HEADINGS = ("before", "after", "change", "", "95 %", "", "budget")
_TOGETHER = 4
"""Columns that are not parted where a table is wider than the terminal."""
_NARROWEST = 16
"""Characters of a cell's name on one line, at least, where the terminal is too narrow for the whole name."""
_ALWAYS = 3
"""The first columns, which are there even without a figure."""
_STYLES = {"dearer": "red", "failed": "red", "vanished": "red", "cheaper": "green", "mended": "green"}


def comparison_sheet(compared: ComparedRuns, limit: int | None = None) -> Sheet:
    """The changed cells, the largest relative change first; those behind the first ``limit`` share a row."""
    changed = compared.comparison.changed
    listed = changed if limit is None or len(changed) <= limit + 1 else changed[:limit]
    names = CellNames(compared.comparison)
    said = reasons(listed)
    symbols = compared.symbols(listed)
    rows = [row for one in listed for row in _rows(one, names.of(one), symbols.get(one.pair.title), said)]
    if len(listed) < len(changed):
        rows.append(Row(others(len(changed) - len(listed)), [""] * len(_HEADINGS)))
    next_command = next_run(compared)
    headings, narrowed = used_columns(_HEADINGS, rows, _ALWAYS)
    grid = Grid(headings, [narrowed], together=_TOGETHER, narrowest=_NARROWEST)
    unchanged = Row("unchanged", [str(compared.comparison.counts.get("unchanged", 0))])
    return Sheet(
        title=experiments(compared),
        facts=[summary(compared), *runs_sentence(compared), *origin_sentences(compared), *common_parts(compared)],
        grid=grid if rows else Grid(["cells"], [[unchanged]]),
        sentences=[*remarks(compared), *([f"To decide: {next_command}"] if next_command else [])],
        footnotes=[Footnote(number, text) for number, text in enumerate(said, start=1)],
    )


def _rows(change: CellChange, name: str, symbols: ProfileDifference | None, said: Sequence[str]) -> Iterator[Row]:
    unit = change.pair.first.unit
    noted = f" [{said.index(change.reason) + 1}]" if change.reason else ""
    figures = [
        side(change.pair.before),
        side(change.pair.after),
        *difference_figures(change.value, unit),
        f"{change.change}{noted}",
        budget_figure(change),
    ]
    yield Row(name, figures, _STYLES.get(change.change, "") if change.beyond or change.change == "mended" else "")
    overhead = change.overhead
    if overhead is not None and (overhead.before or overhead.after):
        sides = [figure(one, unit) for one in (overhead.before, overhead.after)]
        yield Row("overhead", [*sides, *difference_figures(overhead, unit), "", ""], depth=2)
    rest = [""] * (len(_HEADINGS) - _ALWAYS)
    listed = symbols.symbols if symbols is not None else []
    for one in listed[:_SYMBOLS]:
        yield Row(one.title, [*change_figures(one.before, one.after), *rest[1:]], depth=2)
    hidden = listed[_SYMBOLS:]
    if hidden:
        together = signed(sum((one.change for one in hidden), start=Fraction(0)))
        yield Row(f"{others(len(hidden))}, by symbol", ["", "", together, *rest], depth=2)


# A comparison as a comment of a review: its summary in a line, what changed, and the rest folded away.

_BEYOND, _WITHIN = "❌", "✅"
_LISTED = 100
"""Unchanged cells that are named: a comment on GitHub has at most 65536 characters."""


def render_comparison(compared: ComparedRuns, limit: int | None = None) -> str:
    """Return the comparison as GitHub-flavoured Markdown, without a heading: a comment has its own context."""
    mark = _BEYOND if compared.comparison.beyond else _WITHIN
    parts = [f"{mark} **{escaped(summary(compared))}**"]
    if compared.comparison.changed:
        sheet = comparison_sheet(compared, limit)
        parts.append(grid_table(sheet.grid))
        parts += [f"\\[{note.mark}\\] {escaped(note.text)}" for note in sheet.footnotes]
    rest = "\n\n".join(_rest(compared))
    parts.append(f"<details><summary>What was compared</summary>\n\n{rest}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _rest(compared: ComparedRuns) -> Iterator[str]:
    sides = [compared.before.record.run, compared.after.record.run]
    runs = [f"run: `{sides[0]}`"] if sides[0] == sides[1] else [f"before: `{sides[0]}`", f"after: `{sides[1]}`"]
    cells = [escaped(sentence) for sentence in common_parts(compared)]
    yield "  \n".join([f"experiment {escaped(experiments(compared))}", *runs, *cells])
    origin = list(origin_sentences(compared))
    if origin:
        yield paragraph(*origin)
    said = list(remarks(compared))
    if said:
        yield paragraph(*said)
    unchanged = [one for one in compared.comparison.cells if one.change == "unchanged"]
    if unchanged:
        yield f"{len(unchanged)} unchanged: " + ", ".join(escaped(one.pair.title) for one in unchanged[:_LISTED])
    next_command = next_run(compared)
    if next_command:
        yield f"To decide what is undecided:\n\n{quoted(next_command.splitlines(), 'sh')}"


# A comparison for programs, as docs/comparing.md has it. Figures are in the cell's unit.


def comparison_text(compared: ComparedRuns) -> str:
    """All cells, the largest relative change of each kind first, as JSON with one newline at the end."""
    comparison = compared.comparison
    symbols = compared.symbols(comparison.changed)
    before, after = (
        {"run": run.record.run, "experiment": run.record.experiment, "unfinished": run.unfinished}
        for run in (compared.before, compared.after)
    )
    found = {
        "before": before,
        "after": after,
        "beyond": bool(comparison.beyond),
        "counts": comparison.counts,
        "cells": [_cell(one, symbols.get(one.pair.title)) for one in comparison.cells],
        "not_compared": [{**_ids(pair), "reason": why} for pair, why in comparison.not_compared],
        "differs": [asdict(one) for one in compared.origin],
        "next": next_run(compared),
    }
    return to_json(found, indent=2).decode() + "\n"


def _cell(change: CellChange, symbols: ProfileDifference | None) -> dict[str, Any]:
    sides = (change.pair.before, change.pair.after)
    return {
        **_ids(change.pair),
        "change": change.change,
        "reason": change.reason,
        "unit": change.pair.first.unit,
        "value": _figure(change.value, *(None if one is None else one.value for one in sides)),
        "overhead": _figure(change.overhead, *(None if one is None else one.overhead for one in sides)),
        "budgets": [
            {"figure": one.figure, "allowed": str(one.allowance), "beyond": one.is_beyond} for one in change.held
        ],
        "beyond": change.beyond,
        "symbols": [one.as_json() for one in (symbols.symbols if symbols is not None else ())],
    }


def _ids(pair: CellPair) -> dict[str, str | None]:
    return {side: None if cell is None else cell.id for side, cell in (("before", pair.before), ("after", pair.after))}


def _figure(found: Difference | None, before: float | None, after: float | None) -> dict[str, Any]:
    """A figure in both runs, and what is known of its difference; null where there is none."""
    return {
        "before": before,
        "after": after,
        "difference": None if found is None else found.value,
        **{name: getattr(found, name, None) for name in ("relative", "interval", "superiority", "p")},
        "undecided": "" if found is None else found.undecided,
        "repeats": None if found is None else found.repeats,
    }
