# SPDX-License-Identifier: GPL-2.0-only
"""What costs are compared with: another file's in the same run, those of a stored run, or those of a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.cost.line import CostLine
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.cost.unreached import UnreachedSubject
from orchestrator.errors import UsageError
from orchestrator.results.contract import CellRecord
from orchestrator.results.parameters import BPF_INSTRUCTIONS, BPF_VERIFIED
from orchestrator.results.runs import Run


@dataclass(frozen=True)
class Reference:
    """The reference as the user named it, and its run: None if there is nothing to measure, or nothing could be.

    By the ids of the cells that are compared: the cell ``before``; and with a sentence why, what is ``new``, and what
    is not, but ``unmeasured``. A cell with none of them has no reference because of ``trouble``. ``gone`` are sentences
    on what only the reference has.
    """

    title: str
    run: Run | None = None
    before: Mapping[str, CellRecord] = field(default_factory=dict)
    new: Mapping[str, str] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""
    gone: Sequence[str] = ()

    def unknown(self, cell: CellRecord) -> str:
        """Why a cell with a number has none to be compared with, although it is not new; empty otherwise."""
        if cell.value is None or cell.id in self.new:
            return ""
        if cell.id in self.unmeasured:
            return f"at {self.title} it could not be measured: {self.unmeasured[cell.id]}"
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


def by_ids(run: Run, lines: Sequence[CostLine], after: Run) -> Reference:
    """A stored run, whose cells have equal ids."""
    name, cells = run.record.run, {cell.id: cell for cell in run.record.cells}
    measured = [cell for line in lines for cell in line.records(after.record)]
    missing = [cell.id for cell in measured if cell.id not in cells]
    if run.unfinished and missing:
        return Reference(name, run, cells, trouble=run.unfinished_sentence)
    now = {cell.id for cell in after.record.cells}
    is_same = run.record.experiment == after.record.experiment
    gone = [f"{name} has {cell}, and this run has not." for cell in cells if is_same and cell not in now]
    return Reference(name, run, cells, dict.fromkeys(missing, f"run {name} has no such cell"), gone=gone)


@dataclass(frozen=True)
class ReferenceLines:
    """The ``lines`` of a reference, the files it is ``lacking``, and what it has and no call hits: ``missed``."""

    lines: Sequence[CostLine] = ()
    lacking: Sequence[str] = ()
    missed: Sequence[UnreachedSubject] = ()

    @classmethod
    def of_file(cls, file: str | None, lines: Sequence[CostLine], missed: Sequence[UnreachedSubject]) -> ReferenceLines:
        """A file's lines, measured with others in one run, which has ``missed`` those of other files, too."""
        return cls(lines, missed=[error for error in missed if error.subject.source == file])


def by_lines(title: str, run: Run, lines: Sequence[CostLine], before: ReferenceLines, after: Run) -> Reference:
    """The lines ``before``, measured in ``run``."""
    cells: dict[str, CellRecord] = {}
    new: dict[str, str] = {}
    unmeasured: dict[str, str] = {}
    renamed: dict[str, None] = {}
    kept: set[Subject] = set()
    now = [each for line in lines for each in line.on_each_kernel()]
    unreached = [(CostLine(error.subject, None, {}, (error.kernel,)), error.what) for error in before.missed]
    then = [*(each for line in before.lines for each in line.on_each_kernel()), *(line for line, _ in unreached)]
    for line in now:
        old = partner(line, now, then)
        why = next((what for missing, what in unreached if missing is old), "")
        for cell in line.records(after.record):
            measured = None if old is None else next(iter(old.records(run.record)), None)
            if old is not None and not why and not _is_kept(line, old, (cell, measured)):
                old = None
            if old is None:
                new[cell.id] = _why_new(title, line, then, before.lacking)
                continue
            kept.add(old.subject)
            if why:
                unmeasured[cell.id] = why
            elif _comparable(line, old) is None:
                new[cell.id] = f"at {title} it is hit by other calls, at {old.point}"
                continue
            elif measured is None:
                unmeasured[cell.id] = run.unfinished_sentence if run.unfinished else "its run has no such cell"
            else:
                cells[cell.id] = measured
                if line.subject.name != old.subject.name:
                    place = f"{old.subject.title}, which is in its place at {title}"
                    renamed[f"{line.subject.title} is compared with {place}."] = None
    left = dict.fromkeys(line.subject for line in then if line.subject not in kept)
    gone = [f"{title} has {_titled(title, subject)}, which is gone." for subject in left]
    return Reference(title, run, cells, new, unmeasured, gone=[*renamed, *gone])


def _is_kept(line: CostLine, old: CostLine, both: tuple[CellRecord, CellRecord | None]) -> bool:
    """Whether a partner is the same program: one of another name in the file has the same calls and the same size."""
    if line.subject.name == old.subject.name:
        return True
    if _comparable(line, old) is None:
        return False
    cell, measured = both
    if measured is None or line.subject.source != old.subject.source:
        return True  # the user named the file to compare with, and its programs may differ
    sizes = [(figure.of(cell), figure.of(measured)) for figure in (BPF_INSTRUCTIONS, BPF_VERIFIED)]
    return all(now == before for now, before in sizes if None not in (now, before))


def partner(line: CostLine, lines: Sequence[CostLine], before: Sequence[CostLine]) -> CostLine | None:
    """The line of ``before`` with the same name, or the only one that is gone, if the line is the only new one there.

    It is of the same file, unless ``before`` is of another file altogether. A renamed program is at the same place.
    """
    of_file = [request for request in lines if request.subject.source == line.subject.source]
    same_file = [request for request in before if request.subject.source == line.subject.source]
    is_other_file = not any(
        request.subject.source == other_request.subject.source for request in lines for other_request in before
    )
    old = before if is_other_file else same_file
    on_them = [request for request in old if set(request.kernels) & set(line.kernels)]
    if line.subject.is_whole:  # it has a line for each of several calls
        on_them = [request for request in on_them if request.benchmark in (line.benchmark, {})]
    names, old_names = ({request.subject.name for request in requests} for requests in (of_file, old))
    is_renamed = names - old_names == {line.subject.name} and len(old_names - names) == 1
    same = [request for request in on_them if request.subject.name == line.subject.name]
    renamed = [
        request
        for request in on_them
        if is_renamed and request.subject.name not in names and _section(request.subject) == _section(line.subject)
    ]
    return next(iter([*same, *renamed]), None)


def _section(subject: Subject) -> tuple[AttachPlace, str]:
    """What a program's section says."""
    return subject.place, subject.mechanism


def check_calls(line: CostLine, other_request: CostLine | None) -> None:
    """Raise UsageError for two lines that are hit by different calls."""
    if other_request is not None and _comparable(line, other_request) is None:
        pair = " and ".join(f"{request.subject.title} of {request.subject.source}" for request in (line, other_request))
        hint = "name calls that hit both equally often: --call CALL, or --workload FILE.c"
        raise UsageError(f"{pair} are hit by different calls", hint=hint)


def _comparable(line: CostLine, other_request: CostLine | None) -> CostLine | None:
    """The other line, if the same calls hit both."""
    return (
        None
        if other_request is None or (other_request.benchmark, other_request.hits) != (line.benchmark, line.hits)
        else other_request
    )


def _why_new(title: str, line: CostLine, before: Sequence[CostLine], lacking: Sequence[str]) -> str:
    subject = line.subject
    if subject.source in lacking:
        return f"{title} has no {subject.source}"
    is_file = any(request.subject.source == title for request in before)
    if is_file:
        return f"{title} has no {subject.title}"
    return f"{title} has no {_titled(title, subject)}"


def _titled(title: str, subject: Subject) -> str:
    """A program with its file, unless the reference is a file."""
    return f"{subject.name} of {subject.source}" if subject.name and subject.source != title else subject.title
