# SPDX-License-Identifier: GPL-2.0-only
"""The commits of a patch series measured one after the other, or what was measured of them before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree
from orchestrator.artifacts.own_kernel_build import TreeBuild
from orchestrator.artifacts.patch_series import ends_of, series
from orchestrator.comparison.series import MeasuredCommit, MeasuredSeries
from orchestrator.errors import LabError, UsageError
from orchestrator.experiment.source import read_source
from orchestrator.library.commit_runs import CommitRuns, reason_of, skipping
from orchestrator.library.experiment_request import ExperimentRequest
from orchestrator.library.measured_commits import series_of
from orchestrator.library.measurer import Measurer
from orchestrator.paths import cache_dir
from orchestrator.results.budgets import BudgetError, Budgets
from orchestrator.results.commit_heads import SeriesCommit
from orchestrator.results.runs import Run
from orchestrator.run.bisection import NotMeasured


class UnmeasuredSeries(LabError):
    """The base of a series has no number yet."""


def measured_series(
    measurer: Measurer, request: ExperimentRequest, span: str, tree: str = "./", at_most: str | None = None
) -> MeasuredSeries:
    """Measure each commit of a series ``[TREE@]BASE..TOPIC``; without a tree before BASE, it is one of ``tree``.

    A commit with a cell that exceeds the budget ``at_most`` (``+5``, ``+1%``, ``<=300``) is wrong. Commits that do not
    build or boot have their reason. An interrupted series goes on where it was. Raises UsageError, HostError, and
    LabError for a base without a number.
    """
    with _opened(measurer, request, span, tree, at_most) as opened:
        commits = opened.commits
        opened.runs.tree.check_out(commits[0].commit.hash, commits[-1].commit.hash)
        opened.runs.check(commits[0].commit.hash, request.only)
        return opened.series([opened.measure(commit) for commit in commits])


def stored_series(
    measurer: Measurer, request: ExperimentRequest, span: str, tree: str = "./", at_most: str | None = None
) -> MeasuredSeries:
    """What ``measured_series`` has measured with the same words; nothing is built or measured.

    Raises as it does, and UnmeasuredSeries.
    """
    with _opened(measurer, request, span, tree, at_most) as opened:
        return opened.series([opened.stored(commit) for commit in opened.commits], UnmeasuredSeries)


@contextmanager
def _opened(
    measurer: Measurer, request: ExperimentRequest, span: str, tree: str, at_most: str | None
) -> Iterator[_OpenedSeries]:
    budgets = _budgets(measurer, at_most)
    read_source(request.file)  # report an unreadable file before cloning and building
    base, topic = ends_of(span, tree)
    build = TreeBuild.of(base.top, request.kconfig, request.make)
    measurer.check()
    with GitTree.open(Cache(cache_dir()), base.top, offline=measurer.offline) as clone:
        runs = CommitRuns(clone, request, build, measurer, "-series", topic.commit)
        yield _OpenedSeries(request, runs, series(clone, base, topic), budgets, base.top)


@dataclass
class _OpenedSeries:
    """The commits of a series in their clone, and the runs of them; ``first`` has the commit of each run."""

    request: ExperimentRequest
    runs: CommitRuns
    commits: Sequence[SeriesCommit]
    budgets: Budgets | None
    top: Path
    first: dict[str, str] = field(default_factory=dict)

    def measure(self, commit: SeriesCommit) -> MeasuredCommit:
        """Measure a commit, and note the run, or why there is none.

        Raises UsageError for a wrong experiment, HostError.
        """
        outcome: Run | str
        try:
            outcome = self.runs.measured(commit.commit, self.request.only)
        except LabError as error:
            is_skipped = self.first if isinstance(error, UsageError) else isinstance(skipping(error), NotMeasured)
            if not is_skipped:
                raise
            outcome = reason_of(error)
        self.runs.memory.remember(self._series, commit.commit.hash, outcome)
        return self._measured(commit, outcome)

    def stored(self, commit: SeriesCommit) -> MeasuredCommit:
        """What was noted of a commit when the same series was measured."""
        return self._measured(
            commit, self.runs.memory.outcome(self._series, commit.commit.hash) or "it is not measured yet"
        )

    @cached_property
    def _series(self) -> str:
        return series_of(self.request.file, self.request.overrides, self.request.only, self.runs.build)

    def _measured(self, commit: SeriesCommit, run: Run | str) -> MeasuredCommit:
        if isinstance(run, str):
            return MeasuredCommit(commit, None, run)
        first = self.first.setdefault(run.record.run, commit.commit.short)
        return MeasuredCommit(commit, run, same_as="" if first == commit.commit.short else first)

    def series(self, measured: Sequence[MeasuredCommit], unmeasured: type[LabError] = LabError) -> MeasuredSeries:
        """The series of these commits. Raises ``unmeasured`` for a base without a run, LabError without a number."""
        again = ["--experiment", str(self.request.file), "--tree", str(self.top), *self.request.options]
        whole = MeasuredSeries(measured, self.budgets, self.request.file, self.runs.tree.folder, again)
        if not whole.cells:
            raise _no_base(measured[0], LabError if measured[0].run else unmeasured)
        return whole


def _no_base(base: MeasuredCommit, error: type[LabError]) -> LabError:
    what = f"the base, {base.commit.short} {base.commit.subject}, has no numbers to compare with"
    failed = () if base.run is None else base.run.record.cells
    detail = base.reason.splitlines() or [f"{cell.id}: {cell.first_line}" for cell in failed]
    hint = "measure it first" if error is UnmeasuredSeries else "choose a base that builds and boots"
    return error(what, detail=detail[:20], hint=hint)


def _budgets(measurer: Measurer, at_most: str | None) -> Budgets | None:
    if at_most is None:
        return None
    text, option = at_most, measurer.argument("at_most")
    if re.fullmatch(r"[0-9.]+ ?%?", at_most):  # as it was written before budgets had one grammar
        text = f"+{at_most}"
        measurer.say(f"{option}: {at_most} allows an increase; write it as {text}")
    try:
        return Budgets.of({"*": text})
    except BudgetError as error:
        raise UsageError(str(error), where=option) from None
