# SPDX-License-Identifier: GPL-2.0-only
"""A measured patch series: as tables, as a table for a cover letter, as mails to authors, as JSON."""

from __future__ import annotations

import io
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from email.message import EmailMessage
from email.utils import formataddr
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from orchestrator.comparison.comparison import CellChange, ComparedRuns, Comparison, compare, pairs_by_id
from orchestrator.comparison.forms import CellNames, value_or_status
from orchestrator.plain_text import counted, cut
from orchestrator.program import command
from orchestrator.report.profile_sheets import change_figures, others
from orchestrator.report.sheet import COUNTED, NOTHING, Grid, Row, Sheet, signed_figure, unit_name
from orchestrator.report.text import made_with, print_sheets
from orchestrator.results.budgets import Budgets
from orchestrator.results.contract import CellRecord
from orchestrator.results.origin import SeriesCommit
from orchestrator.results.runs import Run

_SUBJECT = 50
_SYMBOLS = 5
_MAIL_WIDTH = 72
_NO_BUDGETS = Budgets()


@dataclass(frozen=True)
class MeasuredCommit:
    """A commit with its run, or the ``reason`` why it has none; ``same_as`` is the commit with the same kernel."""

    one: SeriesCommit
    run: Run | None
    reason: str = ""
    same_as: str = ""

    @property
    def remark(self) -> str:
        """What is special about the commit; empty for a usual one."""
        first_line = next(iter(self.reason.splitlines()), "")
        same = f"builds the same kernel as {self.same_as}" if self.same_as else ""
        return "; ".join(filter(None, [self.one.remark, same, first_line]))

    def cell(self, cell: str) -> CellRecord | None:
        return None if self.run is None else next((one for one in self.run.record.cells if one.id == cell), None)


@dataclass(frozen=True)
class Step:
    """A commit of the series compared with the last measured one before it, and with the base."""

    number: int
    commit: MeasuredCommit
    from_before: ComparedRuns | None
    beyond: Sequence[CellChange]

    def change(self, cell: str) -> CellChange | None:
        changes = () if self.from_before is None else self.from_before.comparison.cells
        return next((one for one in changes if one.pair.first.id == cell), None)

    @property
    def dearer(self) -> Sequence[CellChange]:
        changes = () if self.from_before is None else self.from_before.comparison.cells
        return [one for one in changes if one.change == "dearer"]


@dataclass(frozen=True)
class MeasuredSeries:
    """The base, then the commits of a series; ``budgets`` are of cells compared with the base.

    ``clone`` is the checked-out tree that was built.
    """

    commits: Sequence[MeasuredCommit]
    budgets: Budgets | None
    config: Path
    clone: Path

    def plain(self, text: str) -> str:
        """A text of a build or a guest, with the paths of the lab's clone made relative, and no console's path."""
        return re.sub(r"^/\S+\.console: ", "", text.replace(f"{self.clone}/", ""))

    @cached_property
    def steps(self) -> Sequence[Step]:
        """A step for each commit after the base."""
        found = []
        base = before = self.commits[0].run
        assert base is not None
        for number, commit in enumerate(self.commits[1:], start=1):
            run, compared, beyond = commit.run, None, list[CellChange]()
            if run is not None and before is not None:
                compared = ComparedRuns(before, run, _compared(before, run, _NO_BUDGETS))
                beyond = [] if self.budgets is None else [*_compared(base, run, self.budgets).beyond]
                before = run
            found.append(Step(number, commit, compared, beyond))
        return found

    @property
    def cells(self) -> Sequence[CellRecord]:
        """The base's cells with a number."""
        run = self.commits[0].run
        return [] if run is None else [cell for cell in run.record.cells if cell.value is not None]

    @property
    def is_wrong(self) -> bool:
        """Whether a commit is beyond its budget, has no run, or a cell failed."""
        lost = any(
            change.is_lost for step in self.steps if step.from_before for change in step.from_before.comparison.cells
        )
        return lost or any(step.beyond or step.commit.run is None for step in self.steps)

    def name(self, cell: str) -> str:
        """A cell's id without the parts that all share."""
        return self._names.get(cell, cell)

    @cached_property
    def _names(self) -> Mapping[str, str]:
        run = self.commits[0].run
        assert run is not None
        comparison = _compared(run, run, _NO_BUDGETS)
        names = CellNames(comparison)
        return {one.pair.first.id: names.of(one) for one in comparison.cells}


def _compared(before: Run, after: Run, budgets: Budgets) -> Comparison:
    one, other = before.record.cells, after.record.cells
    return compare(pairs_by_id(one, other), budgets, one, other)


def _label(number: int, total: int, commit: MeasuredCommit) -> str:
    place = "base" if number == 0 else f"{number}/{total}"
    return f"{place} {commit.one.commit.short} {cut(commit.one.commit.subject, _SUBJECT, '...')}"


def series_sheets(measured: MeasuredSeries, limit: int | None = None) -> Sequence[Sheet]:
    """A table for each cell that changed: a row for each commit, and the symbols that changed, at most ``limit``.

    Without a change, the first cell has a table.
    """
    changed = [cell for cell in measured.cells if any(_is_other(step, cell) for step in measured.steps)]
    listed = changed or measured.cells[:1]
    equal = [measured.name(cell.id) for cell in measured.cells if cell not in changed]
    sentences = [f"Equal in all commits: {', '.join(equal)}."] if equal else []
    sheets = [_cell_sheet(measured, cell, limit) for cell in listed]
    return [*sheets[:-1], *(replace(one, sentences=[*one.sentences, *sentences]) for one in sheets[-1:])]


def _is_other(step: Step, cell: CellRecord) -> bool:
    """Whether a commit has another value of a cell than the base."""
    now = step.commit.cell(cell.id)
    return now is not None and now.value != cell.value


def _cell_sheet(measured: MeasuredSeries, cell: CellRecord, limit: int | None) -> Sheet:
    base, *_ = measured.commits
    total = len(measured.steps)
    rows = [Row(_label(0, total, base), [value_or_status(cell), "", "", ""])]
    for step in measured.steps:
        rows += _rows(measured, step, cell, limit)
    return Sheet(
        title=cell.id,
        facts=[f"{cell.metric} in {cell.unit}; each commit compared with the one before it that has a number"],
        grid=Grid([unit_name(cell.unit), "change", "of base", ""], [rows], together=4),
        sentences=[*_sentences(measured), *_beyond(measured, cell.id)],
    )


def _rows(measured: MeasuredSeries, step: Step, cell: CellRecord, limit: int | None) -> Iterator[Row]:
    now, change = step.commit.cell(cell.id), step.change(cell.id)
    unit, value = cell.unit, None if now is None else now.value
    moved = change is not None and change.value is not None and change.value.value
    by_now = "" if value is None or cell.value is None else signed_figure(value - cell.value, unit)
    difference = signed_figure(change.value.value, unit) if moved and change is not None and change.value else ""
    failed = now.first_line if now is not None and now.value is None and now.reason else ""
    remark = "; ".join(filter(None, [step.commit.remark, measured.plain(failed)]))
    style = "red" if any(one.pair.first.id == cell.id for one in step.beyond) or step.commit.run is None else ""
    yield Row(
        _label(step.number, len(measured.steps), step.commit),
        [value_or_status(now), difference, by_now, cut(measured.plain(remark), 60, "...")],
        style,
    )
    if not moved or step.from_before is None or change is None:
        return
    for found in step.from_before.symbols([change]).values():
        listed = found.symbols[: limit or None]
        for one in listed:
            *_, by, kind = change_figures(one.before, one.after)
            yield Row(one.title, ["", by, "", kind], depth=2)
        if len(found.symbols) > len(listed):
            rest = found.symbols[len(listed) :]
            yield Row(
                others(len(rest)), ["", signed_figure(float(sum(one.change for one in rest)), COUNTED), "", ""], depth=2
            )


def _sentences(measured: MeasuredSeries) -> Iterator[str]:
    for step in measured.steps:
        if step.commit.run is None:
            lines = " / ".join(step.commit.reason.splitlines()[:3])
            yield f"{step.commit.one.commit.short} has no number: {cut(measured.plain(lines), 300)}"


def _beyond(measured: MeasuredSeries, cell: str) -> Iterator[str]:
    for step in measured.steps:
        for one in step.beyond:
            if one.pair.first.id == cell:
                yield f"{step.commit.one.commit.short} is beyond the budget: {'; '.join(one.beyond)}."


def cover_letter(measured: MeasuredSeries) -> str:
    """A table of all cells and commits in plain ASCII, 72 columns wide, for the cover letter of the series."""
    total = len(measured.steps)
    columns = [cell.id for cell in measured.cells]
    rows = [Row("base", [text for cell in measured.cells for text in (value_or_status(cell), "")])]
    explained = []
    for step in measured.steps:
        figures = []
        for cell in measured.cells:
            change, now = step.change(cell.id), step.commit.cell(cell.id)
            moved = change.value.value if change is not None and change.value is not None else 0
            figures += [value_or_status(now), signed_figure(moved, cell.unit) if moved else ""]
        rows.append(Row(f"{step.number}/{total}", figures))
        explained += list(_explained(measured, step))
    last = [
        signed_figure((now.value if now and now.value is not None else 0) - (cell.value or 0), cell.unit)
        if (now := measured.commits[-1].cell(cell.id)) and now.value is not None
        else NOTHING
        for cell in measured.cells
    ]
    rows.append(Row("all", [text for figure in last for text in ("", figure)]))
    unit = unit_name(measured.cells[0].unit) if measured.cells else ""
    sheet = Sheet(
        title=f"Cost of each patch, {unit}, by experiment {measured.config.name}:",
        facts=[],
        grid=Grid([text for cell in columns for text in (measured.name(cell), "")], [rows], together=2),
        sentences=explained,
    )
    return _in_ascii([sheet])


def _explained(measured: MeasuredSeries, step: Step) -> Iterator[str]:
    place = f"{step.number}/{len(measured.steps)}"
    if step.commit.remark:
        yield f"{place}: {cut(measured.plain(step.commit.remark), 200)}."
    reasons: dict[str, list[str]] = {}
    for cell in measured.cells:
        now = step.commit.cell(cell.id)
        if now is not None and now.value is None:
            sentence = f"{now.status}: {cut(measured.plain(now.first_line), 200)}"
            reasons.setdefault(sentence, []).append(measured.name(cell.id))
    yield from (f"{place}, {', '.join(names)}: {sentence}." for sentence, names in reasons.items())
    if step.from_before is None:
        return
    for change in step.from_before.comparison.changed:
        for found in step.from_before.symbols([change]).values():
            parts = [f"{one.title} {signed_figure(float(one.change), COUNTED)}" for one in found.symbols[:_SYMBOLS]]
            rest = len(found.symbols) - len(parts)
            parts += [others(rest)] if rest else []
            yield f"{place}, {measured.name(change.pair.first.id)}: {', '.join(parts)}."


def _in_ascii(sheets: Sequence[Sheet]) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    print_sheets(sheets, Console(file=file, width=_MAIL_WIDTH, color_system=None))
    file.seek(0)
    return "\n".join(line.rstrip() for line in file.read().splitlines())


def mail(measured: MeasuredSeries) -> str | None:
    """A mail to the author of each commit that made a cell dearer, as an mbox; None if there is none.

    The form is that of the reports that the kernel's test robots send.
    """
    total = len(measured.steps)
    found = [_mail(measured, step, total) for step in measured.steps if step.dearer]
    return "\n".join(found) if found else None


def _mail(measured: MeasuredSeries, step: Step, total: int) -> str:
    commit, compared = step.commit.one.commit, step.from_before
    assert compared is not None
    worst = step.dearer[0]
    unit, value = worst.pair.first.unit, worst.value
    assert value is not None
    share = "" if value.relative is None else f" ({100 * value.relative:+.2f} %)"
    title = f"{signed_figure(value.value, unit)} {unit}{share} in {measured.name(worst.pair.first.id)}"
    before = next(one for one in reversed(measured.commits[: step.number]) if one.run is not None)
    rows = list(chain.from_iterable(_mail_rows(measured, compared, one) for one in step.dearer))
    sheet = Sheet(
        title="",
        facts=[],
        grid=Grid(["before", "after", "change", ""], [rows], together=4),
        sentences=[],
    )
    message = EmailMessage()
    message["To"] = formataddr((commit.author, step.commit.one.email)) if step.commit.one.email else commit.author
    message["Subject"] = f"[probe-lab] {commit.short}: {title}"
    cells, table = counted(len(step.dearer), "cell"), _in_ascii([sheet]).strip("\n")
    made = textwrap.fill(f"Measured by: {made_with(compared.before, compared.after)}", _MAIL_WIDTH)
    again = command("series", f"{commit.short}~..{commit.short}", "--experiment", str(measured.config))
    message.set_content(
        f"""\
Hello {commit.author},

your commit makes {cells} of {measured.config.name} dearer:
{title}.

commit: {commit.hash} ("{commit.subject}")
place:  {step.number}/{total} of a series; compared with {before.one.commit.short}

{table}

The figures are counts of executed instructions: they do not scatter, and
this counts the same again:

    {again}

{made}
""",
        cte="8bit",
    )
    return f"From {commit.hash} Mon Sep 17 00:00:00 2001\n{message.as_bytes().decode()}"


def _mail_rows(measured: MeasuredSeries, compared: ComparedRuns, change: CellChange) -> Iterator[Row]:
    unit, value = change.pair.first.unit, change.value
    figures = [value_or_status(change.pair.before), value_or_status(change.pair.after)]
    yield Row(
        measured.name(change.pair.first.id), [*figures, "" if value is None else signed_figure(value.value, unit), ""]
    )
    for found in compared.symbols([change]).values():
        for one in found.symbols[:_SYMBOLS]:
            yield Row(one.title, change_figures(one.before, one.after), depth=2)


def series_json(measured: MeasuredSeries) -> str:
    """The series as JSON; figures are in each cell's unit, changes are to the last commit before that has a number."""
    base, *_ = measured.commits
    found = {
        "experiment": str(measured.config),
        "base": _plain(base, None),
        "commits": [_plain(step.commit, step) for step in measured.steps],
        "wrong": measured.is_wrong,
    }
    return json.dumps(found, indent=2)


def _plain(commit: MeasuredCommit, step: Step | None) -> dict[str, Any]:
    cells = () if commit.run is None else commit.run.record.cells
    return {
        **asdict(commit.one.commit),
        "merge": commit.one.is_merge,
        "reverts": commit.one.reverts or None,
        "run": None if commit.run is None else commit.run.record.run,
        "same_kernel_as": commit.same_as or None,
        "reason": commit.reason or None,
        "cells": [_plain_cell(cell, step) for cell in cells],
    }


def _plain_cell(cell: CellRecord, step: Step | None) -> dict[str, Any]:
    change = None if step is None else step.change(cell.id)
    explained = {} if change is None or step is None or step.from_before is None else step.from_before.symbols([change])
    return {
        "id": cell.id,
        "status": cell.status,
        "value": cell.value,
        "unit": cell.unit,
        "change": None if change is None or change.value is None else change.value.value,
        "symbols": [one.as_json() for found in explained.values() for one in found.symbols],
        "beyond": [
            text for one in (step.beyond if step else ()) if one.pair.first.id == cell.id for text in one.beyond
        ],
    }
