# SPDX-License-Identifier: GPL-2.0-only
"""Histories as tables and CSV, and the result of a bisection as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import compress, groupby, zip_longest
from operator import attrgetter, not_

from orchestrator.plain_text import counted, shown
from orchestrator.program import command
from orchestrator.report.chart import sparkline
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import NOTHING, clocked_unit, figure, number, signed_figure, unit_name
from orchestrator.report.footnotes import Footnote
from orchestrator.report.grid import Grid
from orchestrator.report.sheet import Sheet, shared_parts
from orchestrator.results.bisection_result import BisectionResult, Tried
from orchestrator.results.commit_heads import Commit
from orchestrator.results.contract import Interval
from orchestrator.results.cost_history import History, HistoryPoint, Metric
from orchestrator.results.history_steps import HistoryStep, Steps
from orchestrator.results.recorded_provenance import ProvenanceDifference

EQUAL_PROVENANCE = "The provenance of both runs is equal, as far as it was recorded."
_LINE = 80  # characters of a history's sparkline
_SHORT_LINE = 24
_SHOWN_CAUSES = 12
_OUTCOME = attrgetter("status", "value", "overhead", "interval", "verdict")


@dataclass(frozen=True)
class ExplainedStep:
    """A step with the differences in the provenance of its two runs."""

    step: HistoryStep
    causes: Sequence[ProvenanceDifference]

    @property
    def command(self) -> str:
        return command("compare", self.step.before.run, self.step.after.run)

    def sentences(self, most: int) -> list[str]:
        return shown([cause.sentence for cause in self.causes], most, "and {} more")


def history_sheets(steps: Steps, newest: Sequence[ExplainedStep], limit: int | None) -> Sequence[Sheet]:
    """A history's ``newest`` steps, newest first, and its runs in at most ``limit`` lines."""
    history = steps.history
    title, runs = str(history.metric), _runs_grid(history, limit)
    what = history.newest.metric if history.quantity == "value" else f"overhead, {history.newest.metric},"
    first, last = (_day(history.points[at]) for at in (0, -1))
    facts = f"{what} in {history.unit}, {counted(len(history.points), 'run')} from {first} to {last}"
    head = [facts, sparkline([history.of(point) for point in history.points], _LINE)]
    how = [steps.how, *left_out(history)]
    if not newest:
        return [Sheet(title, head, runs, ["There is no step.", *how])]
    notes = [Footnote(mark, "\n".join(_explanation(explained))) for mark, explained in enumerate(newest, 1)]
    columns = _step_columns(history.unit)
    grid = columns.grid(
        columns.row(_day(explained.step.after), (mark, explained.step)) for mark, explained in enumerate(newest, 1)
    )
    earlier = len(steps.ordered) - len(newest)
    if earlier > 0:
        how.append(f"{counted(earlier, 'earlier step')} not shown; --limit 0 lists all.")
    return [Sheet(title, head, grid, how, notes), Sheet("Runs, newest first", [], runs, [])]


def _step_columns(unit: str) -> Columns[tuple[int, HistoryStep]]:
    """Columns of steps, each with the number of its note."""

    def share(step: HistoryStep) -> str:
        return f"{100 * step.change / step.old:+.1f}" if step.old > 0 else NOTHING

    return Columns(
        [
            Column("before", lambda noted: figure(noted[1].old, unit)),
            Column("after", lambda noted: figure(noted[1].new, unit)),
            Column("change", lambda noted: signed_figure(noted[1].change, unit)),
            Column("%", lambda noted: share(noted[1])),
            Column("", lambda noted: f"[{noted[0]}]"),
        ],
        together=5,
    )


def overview_sheet(title: str, histories: Sequence[Steps], sentences: Sequence[str]) -> Sheet:
    """A line per history, of at least one: its course and its last step."""
    names = [(history.history.metric.experiment, *history.history.metric.cell.split("/")) for history in histories]
    alike = shared_parts(names) if len(histories) > 1 else []
    labels = (
        ["/".join(compress(name, map(not_, alike))) for name in names]
        if alike
        else [str(history.history.metric) for history in histories]
    )
    common = ", ".join(compress(names[0], alike))
    rows = (_OVERVIEW.row(label, steps) for label, steps in zip(labels, histories, strict=True))
    return Sheet(title, [f"all cells: {common}"] if common else [], _OVERVIEW.grid(rows), sentences)


def _values(steps: Steps) -> Sequence[float | None]:
    return [steps.history.of(point) for point in steps.history.points]


def _newest(steps: Steps) -> str:
    value, unit = _values(steps)[-1], steps.history.unit
    return "failed" if value is None else f"{figure(value, unit)} {unit_name(unit)}"


def _of_last_step(text: Callable[[HistoryStep, str], str]) -> Callable[[Steps], str]:
    """A text of a history's last step and unit; a dash without a step."""
    return lambda steps: text(steps.ordered[-1], steps.history.unit) if steps.ordered else NOTHING


def left_out(history: History) -> list[str]:
    """Sentences on runs without a figure in the history."""
    left_out_runs, without = history.other_units, len(history.points) - len(history.numbers)
    return [
        *([f"Left out: {counted(left_out_runs, 'run')} with another metric or unit."] if left_out_runs else []),
        *([f"{counted(without, 'run')} without a number."] if without else []),
    ]


def _explanation(step: ExplainedStep) -> Iterator[str]:
    causes = [cause.sentence for cause in step.causes]
    yield from shown(causes or [EQUAL_PROVENANCE], _SHOWN_CAUSES)
    if step.step.missing:
        yield f"{counted(step.step.missing, 'run')} without a number in between"
    yield in_one_line(step.command)


def _runs_grid(history: History, limit: int | None) -> Grid:
    """A table of runs, in which neighbours with equal outcomes share a line with the newest one's name."""
    groups = [list(group) for _, group in groupby(reversed(history.points), _OUTCOME)]
    listed, unit = groups[:limit] if limit else groups, history.unit

    def value(group: Sequence[HistoryPoint]) -> str:
        return group[0].status if group[0].value is None else figure(group[0].value, unit)

    def interval(group: Sequence[HistoryPoint]) -> str:
        return interval_figure(group[0].interval, unit) + (", undecided" if group[0].verdict is not None else "")

    columns = Columns(
        [
            Column("runs", lambda group: str(len(group))),
            Column("since", lambda group: _day(group[-1])),
            Column("value", value),
            Column("overhead", lambda group: figure(group[0].overhead, unit)),
            Column("95 %", interval),
        ],
        together=4,
    )
    rows = [columns.row(group[0].run, group, "red" if group[0].status == "failed" else "") for group in listed]
    rest = [point for group in groups[len(listed) :] for point in group]
    if rest:
        rows.append(columns.title(f"... {counted(len(rest), 'earlier run')}", ""))
    return columns.grid(rows)


def interval_figure(interval: Interval | None, unit: str) -> str:
    """Both ends of an interval; a dash if it has no width."""
    low, high = interval or (None, None)
    return NOTHING if low == high else f"{figure(low, unit)} to {figure(high, unit)}"


def _day(point: HistoryPoint) -> str:
    return f"{datetime.fromisoformat(point.started).astimezone():%Y-%m-%d}"


def in_one_line(command: str) -> str:
    """A command with no-break spaces, so that it is not wrapped and can be copied."""
    return command.replace(" ", "\N{NO-BREAK SPACE}")


_OVERVIEW: Columns[Steps] = Columns(
    [
        Column("course", lambda steps: sparkline(_values(steps), _SHORT_LINE)),
        Column("newest", _newest),
        Column("steps", lambda steps: str(len(steps.ordered))),
        Column("last step", _of_last_step(lambda step, _: _day(step.after))),
        Column("change", _of_last_step(lambda step, unit: signed_figure(step.change, unit))),
    ],
    together=3,
)


@dataclass(frozen=True)
class _HistoryRun:
    """A run of a history, and its change where it is a step."""

    metric: Metric
    point: HistoryPoint
    change: float | None


CSV: Columns[_HistoryRun] = Columns(
    [
        Column("experiment", attrgetter("metric.experiment")),
        Column("cell", attrgetter("metric.cell")),
        *(Column(name, attrgetter(f"point.{name}")) for name in ("run", "started", "status", "value", "overhead")),
        Column("low", lambda run: run.point.interval and run.point.interval[0]),
        Column("high", lambda run: run.point.interval and run.point.interval[1]),
        Column("unit", attrgetter("point.unit")),
        Column("verdict", attrgetter("point.verdict")),
        Column("step", attrgetter("change")),
    ]
)


def histories_csv(histories: Sequence[Steps]) -> str:
    """Histories as CSV with a row per run; ``step`` is the change at the run, or empty."""
    runs = []
    for steps in histories:
        changes = {step.after.run: step.change for step in steps.ordered}
        runs += [_HistoryRun(steps.history.metric, point, changes.get(point.run)) for point in steps.history.points]
    return CSV.csv(runs)


_LONGEST = 60


def bisection_sheet(bisection: BisectionResult) -> Sheet:
    """The first bad commit, or its candidates, and the measured commits in order."""
    ends = [tried.measured for tried in bisection.tried[:2] if tried.measured is not None]
    good, bad = (measured.value for measured in ends)
    unit = clocked_unit(ends[0].unit)
    sure = len(bisection.candidates) == 1
    title = f"First bad commit: {_named(bisection.candidates[0])}" if sure else "The first bad commit is one of these"
    facts = [
        f"{candidate.author}, {candidate.date}" if sure else _named(candidate) for candidate in bisection.candidates
    ]

    def end(commit: tuple[Tried, str | None]) -> str:
        tried, end = commit
        if end is not None or tried.measured is None:
            return end or "skip"
        return "bad" if abs(tried.measured.value - bad) <= abs(tried.measured.value - good) else "good"

    columns = Columns(
        [
            Column(
                "cost", lambda commit: "skipped" if commit[0].measured is None else number(commit[0].measured.value)
            ),
            Column("end", end),
        ],
        together=2,
    )
    commits = zip_longest(bisection.tried, ("good end", "bad end"))
    rows = (columns.row(_named(commit[0].commit)[:_LONGEST], commit) for commit in commits)
    sentences = [f"A cost of {number((good + bad) / 2)} {unit} or more is bad, halfway between both ends."]
    sentences += [f"{skipped.commit.short} was skipped: {skipped.why_skipped}" for skipped in bisection.skipped]
    return Sheet(title, facts, columns.grid(rows), sentences)


def _named(commit: Commit) -> str:
    return f"{commit.short} {commit.subject}"
