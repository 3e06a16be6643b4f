# SPDX-License-Identifier: GPL-2.0-only
"""The commit at which a cell's cost changed: measured commits bisected, and the two at the change compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, revisions
from orchestrator.artifacts.own_kernel_build import TreeBuild
from orchestrator.errors import LabError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.plan import Plan
from orchestrator.experiment.source import read_source
from orchestrator.library.commit_runs import CommitRuns, skipping
from orchestrator.library.experiment_request import ExperimentRequest
from orchestrator.library.measurer import Measurer
from orchestrator.library.stored import shown_ids
from orchestrator.library.stored_profiles import RunCell, difference_of
from orchestrator.paths import cache_dir
from orchestrator.profile.code.compared_code import with_code
from orchestrator.profile.stored.profile_difference import ProfileDifference
from orchestrator.results.bisection_result import BisectionResult, Measured
from orchestrator.results.commit_heads import Commit
from orchestrator.results.statistics import median_interval
from orchestrator.run.bisection import Bisection, NotMeasured


@dataclass(frozen=True)
class BisectedChange:
    """The commits at which a cell's cost may have changed, and by symbol what it executes differently since then."""

    bisected: BisectionResult
    differences: Sequence[ProfileDifference]

    @property
    def is_decided(self) -> bool:
        """Whether one commit is left: skipped ones may leave several."""
        return len(self.bisected.candidates) == 1


def bisected_change(
    measurer: Measurer, request: ExperimentRequest, ends: tuple[str, str], cell: str | None = None
) -> BisectedChange:
    """Find the first commit at which a cell costs as much as at the second of the ``ends``, which are ``TREE@REV``.

    Commits that do not build or boot are skipped. Raises UsageError, LabError if an end has no number.
    """
    read_source(request.file)  # report an unreadable file before cloning and building
    good, bad = revisions(*ends)
    build = TreeBuild.of(good.top, request.kconfig, request.make)
    with GitTree.open(Cache(cache_dir()), good.top, offline=measurer.offline) as tree:
        runs = CommitRuns(tree, request, build, measurer, "-bisect", bad.commit)
        bisected_cell = BisectedCell(runs, cell)
        bisected = Bisection(tree, bisected_cell.measure, measurer.say).between(good, bad)
        last_good, newest = tree.parent(bisected.candidates[-1].hash), bisected.candidates[0].hash
        cells = [bisected_cell.measured.get(commit) for commit in (last_good, newest)]
    profiled = [run_cell for run_cell in cells if run_cell is not None and run_cell.cell.profile]
    return BisectedChange(bisected, [with_code(difference_of(*profiled))] if len(profiled) == 2 else [])


@dataclass
class BisectedCell:
    """A cell measured at several commits. ``name`` is its id or parts of it, None for the only cell with a baseline."""

    runs: CommitRuns
    name: str | None
    measured: dict[str, RunCell] = field(default_factory=dict)
    """The measured cell by commit."""
    cell_id: str | None = None
    """The id of the cell, once it is known."""

    def measure(self, commit: Commit) -> Measured:
        """The cost at a commit. Raises NotMeasured; UsageError for a wrong experiment, at first before a build."""
        if not self.measured:
            self._check(commit.hash)
        self.measured[commit.hash] = self._run(commit)
        cell = self.measured[commit.hash].cell
        if cell.value is None:
            raise NotMeasured((cell.reason or "no number").splitlines()[0], detail=(cell.reason or "").splitlines()[1:])
        low, high = median_interval(cell.samples)
        return Measured(cell.value, (high - low) / 2, cell.unit)

    def _check(self, commit: str) -> None:
        planned = self.runs.check(commit)
        if planned is not None:
            self.cell_id = self._cell(planned.cells).id

    def _run(self, commit: Commit) -> RunCell:
        def filters(whole: Plan) -> Sequence[str]:
            self.cell_id = self._cell(whole.cells).id
            return [f"id={self.cell_id}"]

        try:
            run = self.runs.measured(commit, filters if self.cell_id is None else [f"id={self.cell_id}"])
        except UsageError as error:
            if self.cell_id is None:  # there is no such cell
                raise
            raise skipping(error) from None
        except LabError as error:
            raise skipping(error) from None
        return RunCell(run, next(cell for cell in run.record.cells if cell.id == self.cell_id))

    def _cell(self, cells: Sequence[Cell[Any]]) -> Cell[Any]:
        """The cell that ``name`` selects."""
        if self.name is None:
            matching = [cell for cell in cells if cell.compared_with] or list(cells)
        else:
            parts = set(self.name.split("/"))
            matching = [cell for cell in cells if cell.id == self.name]
            matching = matching or [cell for cell in cells if parts <= set(cell.id.split("/"))]
        if self.runs.left_out and (self.name is None or not matching):
            raise NotMeasured(f"it has no {' and no '.join(sorted(self.runs.left_out))}")
        if len(matching) == 1:
            return matching[0]
        option = self.runs.measurer.argument("cell")
        shown = shown_ids([cell.id for cell in matching or cells])
        what = f"{option}: {len(matching) or 'no'} cells match" + ("" if self.name is None else f" '{self.name}'")
        hint = f"name one of them: {option} {shown[0]}" if shown else "the experiment has no cell"
        raise UsageError(what, where=self.runs.request.title, detail=shown, hint=hint)
