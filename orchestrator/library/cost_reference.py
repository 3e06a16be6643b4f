# SPDX-License-Identifier: GPL-2.0-only
"""What ``orchestrator cost --against`` compares with, if that is no file: a stored run, or a commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, Revision, find_revision
from orchestrator.artifacts.own_kernel_build import TreeBuild
from orchestrator.catalog.probes import is_one_liner, split_member, split_path
from orchestrator.catalog.tools import is_script, is_tool, named_file
from orchestrator.cost.cost_experiment import check_names, experiment_content, planned_lines
from orchestrator.cost.line import CostLine
from orchestrator.cost.reference import Reference, ReferenceLines, by_ids, by_lines
from orchestrator.cost.request import CostRequest
from orchestrator.cost.subject_at_commit import SubjectAtCommit, subject_of_today
from orchestrator.cost.subjects import NoSuchSubject
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.file import BUILT
from orchestrator.library.commit_runs import CommitRuns, skipping
from orchestrator.library.experiment_request import BuiltRequest
from orchestrator.library.measurer import Measurer
from orchestrator.library.stored import compared_runs
from orchestrator.paths import cache_dir, lab_dir, user_path
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run, find_run


@dataclass(frozen=True)
class StoredRun:
    """A stored run to compare with."""

    run: Run

    def reference(self, lines: Sequence[CostLine], after: Run) -> Reference:
        """Raises UsageError if nothing can be compared."""
        compared_runs(self.run, after)
        return by_ids(self.run, lines, after)


@dataclass(frozen=True)
class MeasuredAtCommit:
    """What was measured at a commit: its run, if there is one, and what it has; or the ``trouble``."""

    title: str
    tree: GitTree
    run: Run | None = None
    before: ReferenceLines = field(default_factory=ReferenceLines)
    trouble: str = ""

    def reference(self, lines: Sequence[CostLine], after: Run) -> Reference:
        if not self.trouble:
            reference = by_lines(self.title, self.run or after, lines, self.before, after)
            before = {cell: self._of_user(record) for cell, record in reference.before.items()}
            return replace(reference, run=self.run, before=before)
        return Reference(self.title, trouble=self.trouble)

    def _of_user(self, cell: CellRecord) -> CellRecord:
        return cell if cell.reason is None else cell.model_copy(update={"reason": _of_user(cell.reason, self.tree)})


def _measured_at(
    measurer: Measurer, request: CostRequest, kernels: Sequence[str], revision: Revision
) -> MeasuredAtCommit:
    """Measure what the commit has of the request's subjects, under their names of today. Raises HostError."""
    with GitTree.open(Cache(cache_dir()), revision.top, offline=measurer.offline) as tree:
        try:
            tree.check_out(revision.commit)
            return _AtCommit(measurer, request, kernels, tree, revision).measured()
        except LabError as error:
            if isinstance(skipping(error), HostError):
                raise
            error.rename(BUILT, f"the experiment for {revision.name}")
            error.rename(f"{tree.folder}/", "")
            measurer.say(f"{revision.name} could not be measured: {error}")
            sentence = ": ".join(part for part in (error.where, error.what) if part)
            return MeasuredAtCommit(revision.name, tree, trouble=sentence)


@dataclass(frozen=True)
class _AtCommit:
    """The request's subjects at a commit that is checked out in ``tree``."""

    measurer: Measurer
    request: CostRequest
    kernels: Sequence[str]
    tree: GitTree
    revision: Revision

    def measured(self) -> MeasuredAtCommit:
        named = [SubjectAtCommit.of(name, self.tree) for name in self.request.sources()]
        there: Sequence[SubjectAtCommit] = [subject for subject in named if subject.is_there]
        lacking = [source for subject in named if not subject.is_there for source in subject.sources.values()]
        before, there = self._lines(there, lacking)
        if not before.lines:
            return MeasuredAtCommit(self.revision.name, self.tree, before=before)
        subjects = [subject.name for subject in there]
        name, cpu = replace(self.request, subjects=subjects).name, self.request.cpu
        check_names(before.lines)
        content = experiment_content(before.lines, name, self.kernels, cpu, {})
        if not any(subject.file in line.subject.row for subject in there if subject.file for line in before.lines):
            experiment = self.measurer.build(content)  # with a script's text, whose file it does not name
            cells = self.measurer.planned(experiment)
            run = self.measurer.measured(experiment, cells)
        else:
            build = TreeBuild.of(self.tree.top, None, ())
            runs = CommitRuns(self.tree, BuiltRequest(content), build, self.measurer, "-commits")
            commit = self.tree.commit(self.revision.commit)
            checked = runs.check(commit.hash)
            assert checked is not None  # no point is to be found in a guest
            run, cells = runs.measured(commit), checked
        lines = planned_lines(before.lines, cells)
        return MeasuredAtCommit(self.revision.name, self.tree, run, replace(before, lines=lines))

    def _lines(
        self, there: Sequence[SubjectAtCommit], lacking: Sequence[str]
    ) -> tuple[ReferenceLines, Sequence[SubjectAtCommit]]:
        """The lines of what is there; a file may lack a program that is named by itself."""
        while there:
            request = replace(self.request, subjects=[subject.then for subject in there], cflags=())
            try:
                with self.measurer.building() as context:
                    lines, missed = request.lines(context, self.kernels)
            except NoSuchSubject as error:
                there = [subject for subject in there if subject.then != error.text]
                continue
            break
        else:
            return ReferenceLines(lacking=lacking), there
        for unreached in missed:
            said = self.measurer.spoken(_of_user(str(unreached), self.tree))
            self.measurer.say(f"not measured at {self.revision.name}: {said}")
            unreached.subject = subject_of_today(unreached.subject, there)
            unreached.rename(f"{self.tree.folder}/", "")
        today = [replace(line, subject=subject_of_today(line.subject, there)) for line in lines]
        return ReferenceLines(today, lacking, missed), there


def _of_user(text: str, tree: GitTree) -> str:
    """A text with the paths of a clone's files relative to the repository."""
    return text.replace(f"{tree.folder}/", "")


def stored_or_measured(
    measurer: Measurer, request: CostRequest, kernels: Sequence[str]
) -> StoredRun | MeasuredAtCommit:
    """The stored run that a request is compared with, or what a commit has, measured.

    Raises UsageError if there is neither, HostError.
    """
    assert request.against is not None
    run = find_reference(request.against, request.subjects)
    return StoredRun(run) if isinstance(run, Run) else _measured_at(measurer, request, kernels, run)


def find_reference(name: str, subjects: Sequence[str]) -> Run | Revision:
    """The stored run of a name, or the commit of the repository of the first subject that is a file.

    Raises UsageError if there is neither.
    """
    try:
        return find_run(name, lab_dir())
    except UsageError as unknown:
        try:
            folder = _folder(subjects)
            if folder is None:
                raise UsageError("no subject is a file, whose repository could have the commit")
            return find_revision(f"{folder}@{name}")
        except UsageError as error:
            what = f"'{name}' is neither a file, nor a run, nor a commit"
            raise UsageError(what, where="--against", detail=[unknown.what, error.what]) from None


def check_reference(name: str, subjects: Sequence[str]) -> None:
    """Raise as ``find_reference`` does, unless a subject is a file that does not exist, which is said first."""
    if _folder(subjects) is not None:
        find_reference(name, subjects)


def _folder(subjects: Sequence[str]) -> Path | None:
    """The folder of the first subject that is a file or a folder."""
    paths = [user_path(split_member(file)[0]) for file in map(_file, subjects) if file is not None]
    return next((path if path.is_dir() else path.parent for path in paths if path.exists()), None)


def _file(text: str) -> str | None:
    """What may be the path of the user's file in a subject."""
    if is_tool(text) or is_script(text):
        return named_file(text)
    return None if is_one_liner(text) else split_path(text)[0]
