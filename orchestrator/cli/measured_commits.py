# SPDX-License-Identifier: GPL-2.0-only
"""What one cell of an experiment costs at any commit of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.artifacts.kernels import UnusableTreeError
from orchestrator.cli.commit_runs import CommitRuns
from orchestrator.cli.compared_cells import Side
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.selection import select
from orchestrator.results.bisected import Commit, Measured
from orchestrator.results.statistics import median_interval
from orchestrator.run.bisection import NotMeasured

_LISTED = 20


@dataclass
class MeasuredCommits:
    """A cell of the experiment of ``runs``: ``name`` is its id, or parts of it.

    Without a name the experiment has only one cell beside its baselines.
    """

    runs: CommitRuns
    name: str | None
    sides: dict[str, Side] = field(default_factory=dict)
    """What was measured, by commit."""

    def measure(self, commit: Commit) -> Measured:
        """The cost at a commit whose files are checked out. Raises NotMeasured; UsageError for a wrong experiment."""
        side = self._side(commit)
        self.sides[commit.hash] = side
        cell = side.cell
        if cell.value is None:
            raise NotMeasured((cell.reason or "no number").splitlines()[0], detail=(cell.reason or "").splitlines()[1:])
        low, high = median_interval(cell.samples)
        return Measured(cell.value, (high - low) / 2)

    def _side(self, commit: Commit) -> Side:
        try:
            experiment, whole = self.runs.planned(commit)
            wanted = self._cell(whole.cells).id
        except UsageError as error:
            if self.sides:  # the experiment is right: what it names is not there at this commit
                raise _skipping(error) from None
            raise
        except LabError as error:
            raise _skipping(error) from None
        try:
            run = self.runs.run(commit, experiment, select(whole, [f"id={wanted}"]))
        except LabError as error:
            raise _skipping(error) from None
        return Side(run, next(cell for cell in run.record.cells if cell.id == wanted))

    def _cell(self, cells: Sequence[Cell[Any]]) -> Cell[Any]:
        """The cell that is meant; what it is compared with is measured too."""
        if self.name is None:
            found = [cell for cell in cells if cell.compared_with] or list(cells)
        else:
            parts = set(self.name.split("/"))
            found = [cell for cell in cells if cell.id == self.name]
            found = found or [cell for cell in cells if parts <= set(cell.id.split("/"))]
        if len(found) == 1:
            return found[0]
        listed = [cell.id for cell in found or cells]
        shown = [*listed[:_LISTED], *(["..."] if len(listed) > _LISTED else [])]
        what = f"--cell: {len(found) or 'no'} cells are named" + ("" if self.name is None else f" '{self.name}'")
        hint = f"name one of them: --cell {shown[0]}" if shown else "the experiment has no cell"
        raise UsageError(what, where=str(self.runs.config), detail=shown, hint=hint)


def _skipping(error: LabError) -> LabError:
    """What to raise so that a commit that fails is skipped.

    Not where the host lacks something, such as room: all commits that follow would be skipped as well.
    """
    if isinstance(error, HostError) and not isinstance(error, UnusableTreeError):
        return error
    return NotMeasured(error.what, where=error.where, detail=error.detail)
