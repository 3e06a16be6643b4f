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
from orchestrator.cli import options
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.cli.subjects_at_commits import SubjectAtCommit, subject_of_today
from orchestrator.cost.reference import Reference, ReferenceLines, by_ids, by_lines
from orchestrator.cost.request import CostRequest, NamedCalls
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.library.commit_runs import CommitRuns, skipping
from orchestrator.library.costs import cost_experiment, cost_lines
from orchestrator.library.experiment_request import ExperimentRequest
from orchestrator.library.stored import compared_runs
from orchestrator.paths import cache_dir, lab_dir, user_path
from orchestrator.results.commits import Commit
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run, find_run


@dataclass(frozen=True)
class StoredRun:
    """A stored run to compare with."""

    run: Run

    def reference(self, lines: Sequence[CostRequest], after: Run) -> Reference:
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

    def reference(self, lines: Sequence[CostRequest], after: Run) -> Reference:
        if self.run is not None:
            reference = by_lines(self.title, self.run, lines, self.before, after)
            return replace(reference, before={cell: self._of_user(record) for cell, record in reference.before.items()})
        new = {
            cell.id: f"{self.title} has no {line.subject.source}"
            for line in lines
            for cell in after.record.cells
            if line.has(cell) and line.subject.source in self.before.lacking
        }
        return Reference(self.title, new=new, trouble=self.trouble)

    def _of_user(self, cell: CellRecord) -> CellRecord:
        return cell if cell.reason is None else cell.model_copy(update={"reason": _of_user(cell.reason, self.tree)})


@dataclass(frozen=True)
class AtCommit:
    """The subjects' files at a commit of their repository, measured by an experiment in ``file``."""

    names: Sequence[str]
    kernels: Sequence[str]
    cpu: str
    given: NamedCalls
    measurer: ConsoleLab
    file: Path

    def measured(self, revision: Revision) -> MeasuredAtCommit:
        """Measure what the commit has. Raises HostError."""
        with GitTree.open(Cache(cache_dir()), revision.top, offline=self.measurer.offline) as tree:
            try:
                tree.check_out(revision.commit)
                return self._run(tree, revision, tree.commit(revision.commit))
            except LabError as error:
                if isinstance(skipping(error), HostError):
                    raise
                error.rename(str(self.file), f"the experiment for {revision.name}")
                error.rename(f"{tree.folder}/", "")
                options.say(f"{revision.name} could not be measured: {error}")
                sentence = ": ".join(part for part in (error.where, error.what) if part)
                return MeasuredAtCommit(revision.name, tree, trouble=sentence)

    def _run(self, tree: GitTree, revision: Revision, commit: Commit) -> MeasuredAtCommit:
        """The run of the subjects that the commit has, under their names of today."""
        subjects = [SubjectAtCommit.of(name, tree) for name in self.names]
        there = [subject for subject in subjects if subject.is_there]
        lacking = [source for subject in subjects if not subject.is_there for source in subject.sources.values()]
        if not there:
            return MeasuredAtCommit(revision.name, tree, before=ReferenceLines(lacking=lacking))
        with options.building(offline=self.measurer.offline, verbose=self.measurer.verbose) as context:
            names = [subject.then for subject in there]
            requests, missed = cost_lines(context, names, self.kernels, self.cpu, self.given)
        for error in missed:
            options.say(f"not measured at {revision.name}: {_of_user(str(error), tree)}")
        lines = [replace(line, subject=subject_of_today(line.subject, there)) for line in requests]
        for error in missed:
            error.subject = subject_of_today(error.subject, there)
            error.rename(f"{tree.folder}/", "")
        before = ReferenceLines(lines, lacking, missed)
        text = cost_experiment([subject.name for subject in there], lines, self.kernels, self.cpu, {})
        self.file.write_text(text)
        if any(subject.file in line.subject.row for subject in there if subject.file for line in lines):
            runs = CommitRuns(
                tree, ExperimentRequest(self.file), TreeBuild.of(tree.top, None, ()), self.measurer, "-commits"
            )
            runs.check(commit.hash)
            return MeasuredAtCommit(revision.name, tree, runs.measured(commit), before)
        experiment = self.measurer.load(self.file)  # with a script's text, whose file it does not name
        run = self.measurer.measured(experiment, self.measurer.planned(experiment))
        return MeasuredAtCommit(revision.name, tree, run, before)


def _of_user(text: str, tree: GitTree) -> str:
    """A text with the paths of a clone's files relative to the repository."""
    return text.replace(f"{tree.folder}/", "")


def stored_or_measured(name: str, request: AtCommit) -> StoredRun | MeasuredAtCommit:
    """The stored run of a name, or what a commit has, measured. Raises UsageError if there is neither, HostError."""
    run = find_reference(name, request.names)
    return StoredRun(run) if isinstance(run, Run) else request.measured(run)


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
    paths = [user_path(split_member(split_path(text)[0])[0]) for text in subjects if not is_one_liner(text)]
    return next((path if path.is_dir() else path.parent for path in paths if path.exists()), None)
