# SPDX-License-Identifier: GPL-2.0-only
"""What costs are compared with: another file's in the same run, those of a stored run, or those of a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.cost.request import CostRequest
from orchestrator.errors import UsageError
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run


@dataclass(frozen=True)
class Reference:
    """The reference as the user named it, and its run: None if there is nothing to measure, or nothing could be.

    By the ids of the cells that are compared: the cell ``before``; and what is ``new``, with a sentence why. Without
    both a cell has no reference because of ``trouble``. ``gone`` are sentences on what only the reference has.
    """

    title: str
    run: Run | None = None
    before: Mapping[str, CellRecord] = field(default_factory=dict)
    new: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""
    gone: Sequence[str] = ()

    def unknown(self, cell: CellRecord) -> str:
        """Why a cell with a number has none to be compared with, although it is not new; empty otherwise."""
        if cell.value is None or cell.id in self.new:
            return ""
        before = self.before.get(cell.id)
        if before is None:
            return f"{self.title} could not be measured: {self.trouble}"
        if before.value is None and before.status != "unsupported":
            verb = "failed" if before.status == "failed" else f"was {before.status}"
            return f"at {self.title} it {verb}: {before.first_line}"
        if before.value is not None and before.overhead is None and cell.overhead is not None:
            return f"at {self.title} it has no cost: {'; '.join(before.notes) or 'its baseline has no number'}"
        return ""

    def why_new(self, cell: CellRecord) -> str:
        """Why there was nothing before to compare a cell with; empty if there was."""
        before = self.before.get(cell.id)
        if before is not None and before.status == "unsupported" and cell.value is not None:
            return f"at {self.title} it was unsupported: {before.first_line}"
        return self.new.get(cell.id, "")


def by_ids(run: Run, lines: Sequence[CostRequest], after: Run) -> Reference:
    """A stored run, whose cells have equal ids."""
    name, cells = run.record.run, {cell.id: cell for cell in run.record.cells}
    measured = [cell for line in lines for cell in after.record.cells if line.has(cell)]
    missing = [cell.id for cell in measured if cell.id not in cells]
    if run.unfinished and missing:
        return Reference(name, run, cells, trouble=run.unfinished_sentence)
    now = {cell.id for cell in after.record.cells}
    is_same = run.record.experiment == after.record.experiment
    gone = [f"{name} has {cell}, and this run has not." for cell in cells if is_same and cell not in now]
    return Reference(name, run, cells, dict.fromkeys(missing, f"run {name} has no such cell"), gone=gone)


def by_lines(
    title: str,
    run: Run,
    lines: Sequence[CostRequest],
    before: Sequence[CostRequest],
    after: Run,
    lacking: Sequence[str] = (),
) -> Reference:
    """The lines ``before``, measured in ``run``; ``lacking`` are files that the reference has not."""
    cells: dict[str, CellRecord] = {}
    new: dict[str, str] = {}
    partners = [_comparable(line, partner(line, lines, before)) for line in lines]
    for line, other_request in zip(lines, partners, strict=True):
        for cell in (cell for cell in after.record.cells if line.has(cell)):
            same = [
                one
                for one in run.record.cells
                if other_request and other_request.has(one) and one.kernel == cell.kernel
            ]
            if same:
                cells[cell.id] = same[0]
            elif other_request is None:
                new[cell.id] = _why_new(title, line, before, lacking)
            else:
                new[cell.id] = f"{title} was not measured on {cell.kernel}"
    left = [line for line in before if line not in partners]
    gone = [f"{title} has {_titled(title, line)}, which is gone." for line in left]
    renamed = [
        f"{line.subject.title} is compared with {other_cost_request.subject.title}, which is in its place at {title}."
        for line, other_cost_request in zip(lines, partners, strict=True)
        if other_cost_request is not None and line.subject.name != other_cost_request.subject.name
    ]
    return Reference(title, run, cells, new, gone=[*renamed, *gone])


def partner(line: CostRequest, lines: Sequence[CostRequest], before: Sequence[CostRequest]) -> CostRequest | None:
    """The line of ``before`` with the same name, or a renamed one in the same place.

    It is of the same file, unless ``before`` is of another file altogether.
    """
    of_file = [request for request in lines if request.subject.source == line.subject.source]
    same_file = [request for request in before if request.subject.source == line.subject.source]
    is_other_file = not any(
        request.subject.source == other_request.subject.source for request in lines for other_request in before
    )
    old = before if is_other_file else same_file
    place, names = of_file.index(line), {request.subject.name for request in of_file}
    on_them = [request for request in old if set(request.kernels) & set(line.kernels)]
    same = [request for request in on_them if request.subject.name == line.subject.name]
    renamed = [
        request for request in old[place : place + 1] if request in on_them and request.subject.name not in names
    ]
    return next(iter([*same, *renamed]), None)


def check_calls(line: CostRequest, other_request: CostRequest | None) -> None:
    """Raise UsageError for two lines that are hit by different calls."""
    if other_request is not None and _comparable(line, other_request) is None:
        pair = " and ".join(f"{request.subject.title} of {request.subject.source}" for request in (line, other_request))
        hint = "name calls that hit both equally often: --call CALL, or --workload FILE.c"
        raise UsageError(f"{pair} are hit by different calls", hint=hint)


def _comparable(line: CostRequest, other_request: CostRequest | None) -> CostRequest | None:
    """The other line, if the same calls hit both."""
    return (
        None
        if other_request is None or (other_request.benchmark, other_request.hits) != (line.benchmark, line.hits)
        else other_request
    )


def _why_new(title: str, line: CostRequest, before: Sequence[CostRequest], lacking: Sequence[str]) -> str:
    subject = line.subject
    if subject.source in lacking:
        return f"{title} has no {subject.source}"
    is_file = any(request.subject.source == title for request in before)
    if is_file:
        return f"{title} has no {subject.title}"
    elsewhere = next((request for request in before if request.subject.name == subject.name), None)
    if elsewhere is not None and subject.name:
        return f"at {title} it is hit by other calls, at {elsewhere.point}"
    return f"{title} has no {_titled(title, line)}"


def _titled(title: str, line: CostRequest) -> str:
    """A program with its file, unless the reference is a file."""
    subject = line.subject
    return f"{subject.name} of {subject.source}" if subject.name and subject.source != title else subject.title
