# SPDX-License-Identifier: GPL-2.0-only
"""The tables of a history: its steps, what changed at each, and its runs; and of several, a line for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from orchestrator.counted import counted
from orchestrator.program import PROGRAM
from orchestrator.report.figures import NOTHING, figure, signed_figure, unit_name
from orchestrator.report.footnotes import Footnote
from orchestrator.report.grid import Grid, Row
from orchestrator.report.shared_parts import shared_parts
from orchestrator.report.sheet import Sheet
from orchestrator.report.sparkline import BLOCKS, sparkline
from orchestrator.results.history import History, Point
from orchestrator.results.origin import OriginDifference
from orchestrator.results.steps import Step, Steps

_LINE = 80  # characters of a history's sparkline
_SHORT_LINE = 24
_SHOWN_CAUSES = 12


@dataclass(frozen=True)
class ExplainedStep:
    """A step, and what the runs on either side of it were not made with alike."""

    step: Step
    causes: Sequence[OriginDifference]


@dataclass(frozen=True)
class Traced:
    """A history with its steps."""

    history: History
    steps: Steps


def history_sheets(
    traced: Traced, newest: Sequence[ExplainedStep], limit: int | None, characters: str = BLOCKS
) -> Sequence[Sheet]:
    """A history's steps, of which ``newest`` has the last ones, newest first, and its runs in ``limit`` lines."""
    history = traced.history
    runs = _runs_grid(history, limit)
    head = [_facts(history), sparkline([history.of(point) for point in history.points], _LINE, characters)]
    how = [traced.steps.how, *_left_out(history)]
    if not newest:
        return [Sheet(str(history.metric), head, runs, ["No step.", *how], [], [])]
    rows = [_step_row(one.step, history, mark) for mark, one in enumerate(newest, 1)]
    notes = [Footnote(mark, "\n".join(_explanation(one))) for mark, one in enumerate(newest, 1)]
    earlier = len(traced.steps.found) - len(newest)
    if earlier > 0:
        how.append(f"{counted(earlier, 'earlier step')}: --limit 0 lists all.")
    grid = Grid(["before", "after", "change", "%", ""], [rows], together=5)
    steps = Sheet(str(history.metric), head, grid, how, notes, [])
    return [steps, Sheet("Runs, the newest first", [], runs, [], [], [])]


def overview_sheet(
    title: str, histories: Sequence[Traced], sentences: Sequence[str], characters: str = BLOCKS
) -> Sheet:
    """A line for each of several histories, of which there is one at least: its course and its last step."""
    names = [(one.history.metric.experiment, *one.history.metric.cell.split("/")) for one in histories]
    alike = shared_parts(names) if len(histories) > 1 else []
    labels = [_without(name, alike) for name in names] if alike else [str(one.history.metric) for one in histories]
    common = ", ".join(part for part, out in zip(names[0], alike, strict=True) if out) if alike else ""
    rows = [Row(label, _overview_cells(one, characters)) for label, one in zip(labels, histories, strict=True)]
    grid = Grid(["course", "newest", "steps", "last step", "change"], [rows], together=3)
    return Sheet(title, [f"all cells: {common}"] if common else [], grid, sentences, [], [])


def _without(name: Sequence[str], alike: Sequence[bool]) -> str:
    return "/".join(part for part, out in zip(name, alike, strict=True) if not out)


def _overview_cells(traced: Traced, characters: str) -> Sequence[str]:
    history = traced.history
    values = [history.of(point) for point in history.points]
    last = traced.steps.found[-1] if traced.steps.found else None
    newest = "failed" if values[-1] is None else f"{figure(values[-1], history.unit)} {unit_name(history.unit)}"
    return [
        sparkline(values, _SHORT_LINE, characters),
        newest,
        str(len(traced.steps.found)),
        NOTHING if last is None else _day(last.after),
        NOTHING if last is None else signed_figure(last.change, history.unit),
    ]


def _facts(history: History) -> str:
    first, last = history.points[0], history.points[-1]
    newest, count = history.newest, len(history.points)
    what = newest.metric if history.quantity == "value" else f"overhead, {newest.metric},"
    return f"{what} in {newest.unit}, {counted(count, 'run')} from {_day(first)} to {_day(last)}"


def _left_out(history: History) -> Iterator[str]:
    if history.other_units:
        yield f"{counted(history.other_units, 'run')} measured something else and are left out."
    without = len(history.points) - len(history.numbers)
    if without:
        yield f"{counted(without, 'run')} without a number."


def _step_row(step: Step, history: History, mark: int) -> Row:
    share = f"{100 * step.change / step.old:+.1f}" if step.old > 0 else NOTHING
    figures = [
        figure(step.old, history.unit),
        figure(step.new, history.unit),
        signed_figure(step.change, history.unit),
        share,
    ]
    return Row(_day(step.after), [*figures, f"[{mark}]"])


def _explanation(one: ExplainedStep) -> Iterator[str]:
    shown = [cause.sentence for cause in one.causes[:_SHOWN_CAUSES]]
    yield from shown or ["What both runs were made with is the same, as far as it was recorded."]
    if len(one.causes) > _SHOWN_CAUSES:
        yield f"... and {len(one.causes) - _SHOWN_CAUSES} more"
    if one.step.missing:
        yield f"{counted(one.step.missing, 'run')} without a number between the two"
    yield in_one_line(f"{PROGRAM} compare {one.step.before.run} {one.step.after.run}")


def _runs_grid(history: History, limit: int | None) -> Grid:
    """Neighbours of equal outcome share a line, which names the newest of them."""
    groups = [list(group) for _, group in groupby(reversed(history.points), _outcome)]
    shown = groups[:limit] if limit else groups
    rows = [_run_row(group, history) for group in shown]
    rest = [point for group in groups[len(shown) :] for point in group]
    if rest:
        rows.append(Row(f"... {counted(len(rest), 'earlier run')}", [""] * 5))
    return Grid(["runs", "since", "value", "overhead", "95 %"], [rows], together=4)


def _outcome(point: Point) -> tuple[object, ...]:
    return point.status, point.value, point.overhead, point.interval, point.verdict


def _run_row(group: Sequence[Point], history: History) -> Row:
    newest, oldest = group[0], group[-1]
    low, high = newest.interval or (None, None)
    interval = NOTHING if low == high else f"{figure(low, history.unit)} to {figure(high, history.unit)}"
    if newest.verdict is not None:
        interval += ", undecided"
    value = newest.status if newest.value is None else figure(newest.value, history.unit)
    cells = [str(len(group)), _day(oldest), value, figure(newest.overhead, history.unit), interval]
    return Row(newest.run, cells, "red" if newest.status == "failed" else "")


def _day(point: Point) -> str:
    return f"{datetime.fromisoformat(point.started).astimezone():%Y-%m-%d}"


def in_one_line(command: str) -> str:
    """A command that is not folded where it is too long for the terminal, so that it can be copied."""
    return command.replace(" ", "\N{NO-BREAK SPACE}")
