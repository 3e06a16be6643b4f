# SPDX-License-Identifier: GPL-2.0-only
"""A measured patch series: as tables, as a table for a cover letter, as mails to authors, as JSON."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.headerregistry import Address
from email.message import EmailMessage
from functools import cached_property
from operator import attrgetter
from pathlib import Path

from orchestrator.comparison.comparison import CellChange, ComparedRuns, Comparison, compare, pairs_by_id
from orchestrator.comparison.comparison_sheet import value_or_status
from orchestrator.comparison.verdicts import is_exact
from orchestrator.plain_text import counted, cut
from orchestrator.profile.printed.profile_sheets import CHANGES, change_figures, first_and_rest, others
from orchestrator.profile.stored.profile_difference import ProfileDifference
from orchestrator.program import command
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import COUNTED, NOTHING, clocked_unit, figure, signed_figure, unit_name
from orchestrator.report.github_comment import made_with
from orchestrator.report.grid import Grid, Row
from orchestrator.report.sheet import Sheet, shared_parts
from orchestrator.report.text import ascii_text
from orchestrator.results.budgets import Budgets
from orchestrator.results.commit_heads import Commit, SeriesCommit
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run

_SUBJECT = 50
_SYMBOLS = 5
_MAIL_WIDTH = 72
_NO_BUDGETS = Budgets()
_UNDECIDED = "?"
"""In place of a change that has no verdict."""
_ADDRESS = re.compile(r"[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,190}", re.ASCII)


@dataclass(frozen=True)
class MeasuredCommit:
    """A commit with its run, or the ``reason`` why it has none; ``same_as`` is the commit with the same kernel."""

    in_series: SeriesCommit
    run: Run | None
    reason: str = ""
    same_as: str = ""

    @property
    def commit(self) -> Commit:
        return self.in_series.commit

    @property
    def remark(self) -> str:
        """What is special about the commit; empty for a usual one."""
        first_line = next(iter(self.reason.splitlines()), "")
        same = f"builds the same kernel as {self.same_as}" if self.same_as else ""
        return "; ".join(filter(None, [self.in_series.remark, same, first_line]))

    def cell(self, cell: str) -> CellRecord | None:
        return (
            None if self.run is None else next((record for record in self.run.record.cells if record.id == cell), None)
        )


@dataclass(frozen=True)
class SeriesStep:
    """A commit of the series: each cell compared with the last commit where it has a number, and with the base.

    ``compared`` are runs by the cell that alone is compared; ``before`` has the commits of those before. ``of_base``
    are the cells' changes to the base, by id, with the budgets of the series.
    """

    number: int
    measured: MeasuredCommit
    compared: Mapping[str, ComparedRuns]
    before: Mapping[str, MeasuredCommit]
    of_base: Mapping[str, CellChange]

    @property
    def exceeded(self) -> Sequence[CellChange]:
        return [change for change in self.of_base.values() if change.exceeded]

    def change(self, cell: str) -> CellChange | None:
        """A cell's change; None without a run, and where the two cannot be compared (``refusal``)."""
        runs = self.compared.get(cell)
        return None if runs is None else next(iter(runs.comparison.cells), None)

    def refusal(self, cell: str) -> str:
        """Why a cell cannot be compared with the one before, such as for different work; empty if it can."""
        runs = self.compared.get(cell)
        return "" if runs is None else "; ".join(why for _, why in runs.comparison.not_compared)

    def symbols(self, cell: str) -> ProfileDifference | None:
        """A cell's change by symbol."""
        runs = self.compared.get(cell)
        return None if runs is None else next(iter(runs.symbols(runs.comparison.cells).values()), None)

    @property
    def changes(self) -> Sequence[CellChange]:
        return [change for runs in self.compared.values() for change in runs.comparison.cells]

    @property
    def regressed(self) -> Sequence[CellChange]:
        return [change for change in self.changes if change.change == "regressed"]


@dataclass(frozen=True)
class MeasuredSeries:
    """The base, then the commits of a series; ``budgets`` are of cells compared with the base.

    ``clone`` is the checked-out tree that was built; ``again`` are the options that measure the same again.
    """

    commits: Sequence[MeasuredCommit]
    budgets: Budgets | None
    config: Path
    clone: Path
    again: Sequence[str] = ()

    def plain(self, text: str) -> str:
        """A text of a build or a guest, with the paths of the lab's clone made relative, and no console's path."""
        return re.sub(r"^/\S+\.console: ", "", text.replace(f"{self.clone}/", ""))

    @cached_property
    def steps(self) -> Sequence[SeriesStep]:
        """A step for each commit after the base."""
        steps, base = [], self.commits[0]
        assert base.run is not None
        last = {cell.id: base for cell in self.cells}
        for number, commit in enumerate(self.commits[1:], start=1):
            compared, of_base, before = dict[str, ComparedRuns](), dict[str, CellChange](), dict(last)
            known = [] if commit.run is None else [cell for cell in before if commit.cell(cell) is not None]
            if commit.run is not None and known:
                for earlier in {id(before[cell]): before[cell] for cell in known}.values():
                    assert earlier.run is not None
                    cells = [cell for cell in known if before[cell] is earlier]
                    compared |= _compared(earlier.run, commit.run, cells, _NO_BUDGETS)
                with_budgets = _compared(base.run, commit.run, known, self.budgets or _NO_BUDGETS)
                of_base = {cell: change for cell, runs in with_budgets.items() for change in runs.comparison.cells}
                last |= {cell: commit for cell in known if (now := commit.cell(cell)) and now.value is not None}
            if self.budgets is None:
                of_base = {cell: replace(change, budgeted=()) for cell, change in of_base.items()}
            steps.append(SeriesStep(number, commit, compared, before, of_base))
        return steps

    @property
    def cells(self) -> Sequence[CellRecord]:
        """The base's cells with a number."""
        run = self.commits[0].run
        return [] if run is None else [cell for cell in run.record.cells if cell.value is not None]

    @property
    def failed(self) -> Sequence[CellRecord]:
        """The base's cells that failed: they cannot be compared."""
        run = self.commits[0].run
        return [] if run is None else [cell for cell in run.record.cells if cell.status == "failed"]

    @property
    def new(self) -> Mapping[str, tuple[int, CellRecord]]:
        """The cells that the base lacks, by id: where each has its first number."""
        base = {cell.id for cell in (*self.cells, *self.failed)}
        pairs: dict[str, tuple[int, CellRecord]] = {}
        for number, commit in enumerate(self.commits[1:], start=1):
            for cell in () if commit.run is None else commit.run.record.cells:
                if cell.value is not None and cell.id not in base:
                    pairs.setdefault(cell.id, (number, cell))
        return pairs

    @property
    def is_wrong(self) -> bool:
        """Whether a commit exceeds its budget, has no run, or a cell failed or is missing."""
        lost = any(change.is_lost or change.failed_in_both for step in self.steps for change in step.changes)
        absent = any(step.measured.run is None or not step.compared for step in self.steps)
        refused = any(step.refusal(cell) for step in self.steps for cell in step.compared)
        return lost or absent or refused or bool(self.failed) or any(step.exceeded for step in self.steps)

    def name(self, cell: str) -> str:
        """A cell's id without the parts that all share."""
        return self._names.get(cell, cell)

    @cached_property
    def _names(self) -> Mapping[str, str]:
        ids = [cell.id.split("/") for cell in self.cells]
        alike = shared_parts(ids) if len(ids) > 1 else [False] * len(ids[0])
        return {
            "/".join(parts): "/".join(part for part, is_shared in zip(parts, alike, strict=True) if not is_shared)
            for parts in ids
            if len(parts) == len(alike)
        }


def _compared(before: Run, after: Run, cells: Sequence[str], budgets: Budgets) -> Mapping[str, ComparedRuns]:
    """Cells of two runs, judged together, as ``compare`` judges them; each in a comparison of its own, by id."""
    cells_before, cells_after = ([cell for cell in run.record.cells if cell.id in cells] for run in (before, after))
    together = compare(pairs_by_id(cells_before, cells_after), budgets, before.record.cells, after.record.cells)
    apart = {change.pair.first.id: Comparison([change]) for change in together.cells}
    apart |= {pair.first.id: Comparison([], [(pair, why)]) for pair, why in together.not_compared}
    return {cell: ComparedRuns(before, after, comparison) for cell, comparison in apart.items()}


def _label(number: int, total: int, commit: MeasuredCommit) -> str:
    place = "base" if number == 0 else f"{number}/{total}"
    return f"{place} {commit.commit.short} {cut(commit.commit.subject, _SUBJECT, '...')}"


def series_sheets(measured: MeasuredSeries, limit: int | None = None) -> Sequence[Sheet]:
    """A table for each cell that changed: a row for each commit, and the symbols that changed, at most ``limit``.

    Without a change, the first cell has a table.
    """
    changed = [cell for cell in measured.cells if any(_is_other(step, cell) for step in measured.steps)]
    listed = changed or measured.cells[:1]
    equal = [measured.name(cell.id) for cell in measured.cells if cell not in changed]
    sentences = [f"Equal in all commits: {', '.join(equal)}."] if equal else []
    sheets = [_cell_sheet(measured, cell, limit) for cell in listed]
    return [*sheets[:-1], *(replace(sheet, sentences=[*sheet.sentences, *sentences]) for sheet in sheets[-1:])]


def _is_other(step: SeriesStep, cell: CellRecord) -> bool:
    """Whether a cell has changed at a commit, has no number, or cannot be compared."""
    change = step.change(cell.id)
    return bool(step.refusal(cell.id)) or (change is not None and change.change != "unchanged")


def _cell_sheet(measured: MeasuredSeries, cell: CellRecord, limit: int | None) -> Sheet:
    columns = _commit_columns(unit_name(cell.unit))
    rows = [columns.row(_label(0, len(measured.steps), measured.commits[0]), _Figures(value_or_status(cell)))]
    for step in measured.steps:
        rows += _rows(columns, measured, step, cell, limit)
    return Sheet(
        title=cell.id,
        facts=[
            f"{cell.metric} in {clocked_unit(cell.unit)}; each commit compared with the one before it that has a number"
        ],
        grid=columns.grid(rows),
        sentences=[*_sentences(measured), *_beyond(measured, cell.id)],
    )


@dataclass(frozen=True)
class _Figures:
    """A row of a cell: of a commit, or of a symbol that it changes."""

    value: str = ""
    change: str = ""
    of_base: str = ""
    remark: str = ""


def _commit_columns(unit: str) -> Columns[_Figures]:
    columns = {unit: "value", "change": "change", "of base": "of_base", "": "remark"}
    return Columns([Column(heading, attrgetter(name)) for heading, name in columns.items()], together=4)


def _rows(
    columns: Columns[_Figures], measured: MeasuredSeries, step: SeriesStep, cell: CellRecord, limit: int | None
) -> Iterator[Row]:
    now = step.measured.cell(cell.id)
    of_base = _added(step, cell)
    failed = now.first_line if now is not None and now.value is None and now.reason else ""
    remarks = [step.measured.remark, measured.plain(failed), step.refusal(cell.id), _doubt(step.change(cell.id))]
    remark = measured.plain("; ".join(filter(None, remarks)))
    figures = _Figures(value_or_status(now), _moved(step.change(cell.id)), of_base, cut(remark, 60, "..."))
    is_wrong = step.measured.run is None or any(change.pair.first.id == cell.id for change in step.exceeded)
    yield columns.row(_label(step.number, len(measured.steps), step.measured), figures, "red" if is_wrong else "")
    symbols = step.symbols(cell.id)
    listed, rest = first_and_rest([] if symbols is None else symbols.symbols, limit)
    for difference in listed:
        *_, by, kind = change_figures(difference.before, difference.after)
        yield columns.row(difference.title, _Figures(change=by, remark=kind), depth=2)
    if rest:
        together = signed_figure(float(sum(symbol_difference.change for symbol_difference in rest)), COUNTED)
        yield columns.row(others(len(rest)), _Figures(change=together), depth=2)


def _moved(change: CellChange | None) -> str:
    """The figure by which a cell has regressed or improved; a question mark if that is not known."""
    if change is None or change.change == "undecided":
        return "" if change is None else _UNDECIDED
    return "" if change.decided is None else signed_figure(change.decided.value, change.pair.first.unit)


def _added(step: SeriesStep, cell: CellRecord) -> str:
    """The figure by which a cell has regressed or improved by a commit and those before it."""
    change, now = step.of_base.get(cell.id), step.measured.cell(cell.id)
    if change is None or now is None or now.value is None:
        return ""
    return _moved(change) or "0"


def _doubt(change: CellChange | None) -> str:
    """Why a cell has no verdict; empty if it has one."""
    return change.reason if change is not None and change.change == "undecided" else ""


def _sentences(measured: MeasuredSeries) -> Iterator[str]:
    for step in measured.steps:
        if step.measured.run is None:
            lines = " / ".join(step.measured.reason.splitlines()[:3])
            yield f"{step.measured.commit.short} has no number: {cut(measured.plain(lines), 300)}"
    yield from _without_base(measured)


def _without_base(measured: MeasuredSeries) -> Iterator[str]:
    for cell in measured.failed:
        yield f"The base has no number of {cell.id}: {cut(measured.plain(cell.first_line), 200)}."
    for number, cell in measured.new.values():
        value = f"{figure(cell.value, cell.unit)} {unit_name(cell.unit)}"
        yield f"{number}/{len(measured.steps)} adds {cell.id}, {value}: the base has nothing to compare it with."


def _beyond(measured: MeasuredSeries, cell: str) -> Iterator[str]:
    for step in measured.steps:
        for change in step.exceeded:
            if change.pair.first.id == cell:
                yield f"{step.measured.commit.short} exceeds the budget: {'; '.join(change.exceeded)}."


def cover_letter(measured: MeasuredSeries) -> str:
    """Tables of all cells and commits in plain ASCII, 72 columns wide, for the cover letter of the series.

    Each unit has a table of its own.
    """
    units: dict[str, list[CellRecord]] = {}
    for cell in measured.cells:
        units.setdefault(clocked_unit(cell.unit), []).append(cell)
    sheets = [
        Sheet(
            title=f"Cost of each patch, {unit}, by experiment {measured.config.name}:",
            facts=[],
            grid=_by_commit(measured, cells),
            sentences=[],
        )
        for unit, cells in units.items()
    ]
    explained = (sentence for step in measured.steps for sentence in _explained(measured, step))
    sentences = [*_without_base(measured), *explained]
    return ascii_text([*sheets[:-1], replace(sheets[-1], sentences=sentences)], _MAIL_WIDTH)


_FigureAndChange = Callable[[CellRecord], tuple[str, str]]
"""A row of a cover letter: a figure and a change of each cell."""


def _by_commit(measured: MeasuredSeries, cells: Sequence[CellRecord]) -> Grid:
    """A row for each commit with the cells' figures and changes, and one with the changes of all commits together."""

    def part(cell: CellRecord, place: int) -> Callable[[_FigureAndChange], str]:
        return lambda figures: figures(cell)[place]

    def at(step: SeriesStep) -> _FigureAndChange:
        return lambda cell: (value_or_status(step.measured.cell(cell.id)), _moved(step.change(cell.id)))

    def together(step: SeriesStep) -> _FigureAndChange:
        return lambda cell: ("", _added(step, cell) or NOTHING)

    headings = [(cell, place, heading) for cell in cells for place, heading in enumerate((measured.name(cell.id), ""))]
    columns = Columns([Column(heading, part(cell, place)) for cell, place, heading in headings], together=2)
    rows = [columns.row("base", lambda cell: (value_or_status(cell), ""))]
    rows += [columns.row(f"{step.number}/{len(measured.steps)}", at(step)) for step in measured.steps]
    if measured.steps:
        rows.append(columns.row("all", together(measured.steps[-1])))
    return columns.grid(rows)


def _explained(measured: MeasuredSeries, step: SeriesStep) -> Iterator[str]:
    place = f"{step.number}/{len(measured.steps)}"
    if step.measured.remark:
        yield f"{place}: {cut(measured.plain(step.measured.remark), 200)}."
    reasons: dict[str, list[str]] = {}
    for cell in measured.cells:
        now = step.measured.cell(cell.id)
        if now is not None and now.value is None:
            sentence = f"{now.status}: {cut(measured.plain(now.first_line), 200)}"
            reasons.setdefault(sentence, []).append(measured.name(cell.id))
    yield from (f"{place}, {', '.join(names)}: {sentence}." for sentence, names in reasons.items())
    doubts: dict[str, list[str]] = {}
    for cell in measured.cells:
        if doubt := _doubt(step.change(cell.id)):
            doubts.setdefault(doubt, []).append(measured.name(cell.id))
    yield from (f"{place}, {', '.join(names)}: {doubt}." for doubt, names in doubts.items())
    for cell in measured.cells:
        symbols = step.symbols(cell.id)
        if symbols is not None:
            listed, rest = first_and_rest(symbols.symbols, _SYMBOLS)
            parts = [f"{difference.title} {signed_figure(float(difference.change), COUNTED)}" for difference in listed]
            parts += [others(len(rest))] if rest else []
            yield f"{place}, {measured.name(cell.id)}: {', '.join(parts)}."


def mail(measured: MeasuredSeries) -> str | None:
    """A mail to the author of each commit by which a cell regressed, as an mbox; None if there is none.

    The form is that of the reports that the kernel's test robots send.
    """
    mails = [_mail(measured, step) for step in measured.steps if step.regressed]
    return "\n".join(mails) if mails else None


def _mail(measured: MeasuredSeries, step: SeriesStep) -> str:
    commit, worst, message = step.measured.commit, step.regressed[0], EmailMessage()
    decided, unit, cell = worst.decided, worst.pair.first.unit, worst.pair.first.id
    assert decided is not None
    share = "" if decided.relative is None else f" ({100 * decided.relative:+.2f} %)"
    what = "" if decided is worst.value else " of overhead"
    title = f"{signed_figure(decided.value, unit)} {unit_name(unit)}{share}{what} in {measured.name(cell)}"
    before, compared = step.before[cell].commit, step.compared[cell]
    units = {change.pair.first.unit for change in step.regressed}
    rows = [
        row for change in step.regressed for row in _mail_rows(measured, step, change, several_units=len(units) > 1)
    ]
    grid = CHANGES.grid(rows)
    table = ascii_text([Sheet("", [], grid, [])], _MAIL_WIDTH).strip("\n")
    again = command("series", f"{before.short}..{commit.short}", *measured.again)
    certainty = ", and ".join(dict.fromkeys(_certainty(change.pair.first) for change in step.regressed))
    certainty = textwrap.fill(f"The figures are {certainty}.", _MAIL_WIDTH)
    made = textwrap.fill(f"Measured by: {made_with(compared.before, compared.after)}", _MAIL_WIDTH)
    if _ADDRESS.fullmatch(step.measured.in_series.email):
        # A name that looks like an encoded word would be decoded.
        name = "" if "=?" in commit.author or not commit.author.isprintable() else commit.author
        message["To"] = Address(name, addr_spec=step.measured.in_series.email)
    message["Subject"] = f"[probe-lab] {commit.short}: {title}"
    message.set_content(
        f"""\
Hello {commit.author},

{counted(len(step.regressed), "cell")} of {measured.config.name} regressed with your commit:
{title}.

commit: {commit.hash} ("{commit.subject}")
place:  {step.number}/{len(measured.steps)} of a series; compared with {before.short}

{table}

{certainty}
The same is measured again by:

    {again}

{made}
""",
        cte="8bit",
    )
    return f"From {commit.hash} Mon Sep 17 00:00:00 2001\n{message.as_bytes().decode()}"


def _certainty(cell: CellRecord) -> str:
    if cell.clock == "wall":
        return "medians of times"
    return f"counts of executed instructions, {'equal in each run' if is_exact(cell) else 'which vary from run to run'}"


def _mail_rows(measured: MeasuredSeries, step: SeriesStep, change: CellChange, *, several_units: bool) -> Iterator[Row]:
    cell = change.pair.first
    unit = f", {unit_name(cell.unit)}" if several_units else ""
    before, after = value_or_status(change.pair.before), value_or_status(change.pair.after)
    yield CHANGES.texts(f"{measured.name(cell.id)}{unit}", [before, after, _moved(change)])
    symbols = step.symbols(cell.id)
    for difference in [] if symbols is None else symbols.symbols[:_SYMBOLS]:
        yield CHANGES.row(difference.title, (difference.before, difference.after), depth=2)
