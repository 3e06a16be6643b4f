# SPDX-License-Identifier: GPL-2.0-only
"""One cell of an experiment at any commit of a tree, which is built and measured where that was not done before."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator import __version__
from orchestrator.artifacts.git_tree import GitTree
from orchestrator.artifacts.kernels import UnusableTreeError
from orchestrator.artifacts.tree_build import TreeBuild, is_kernel_source
from orchestrator.benchmarks.registry import kinds
from orchestrator.cli.compared_cells import Side
from orchestrator.cli.measured import Measuring
from orchestrator.cli.named_cells import cells_of_run
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file.loading import load_experiment
from orchestrator.experiment.plan import Plan, plan
from orchestrator.experiment.profiled import with_profile
from orchestrator.experiment.selection import select
from orchestrator.guest.emulator import qemu_cpu_names, qemu_version
from orchestrator.results.bisected import Commit, Measured
from orchestrator.results.statistics import median_interval
from orchestrator.run.bisection import NotMeasured
from orchestrator.whole_file import write_whole

_SUFFIX = "-bisect"
"""Of the runs' experiment: a history of the experiment itself has nothing of other commits in it."""
_KNOWN = Path(".git") / "lab-measured.json"
_LISTED = 20


@dataclass
class MeasuredCommits:
    """A cell of the experiment ``config``, whose files below the tree are those of the commit.

    ``name`` is the cell's id, or parts of it; without one the experiment has only one cell beside its baselines.
    """

    tree: GitTree
    config: Path
    overrides: Sequence[str]
    name: str | None
    build: TreeBuild
    measuring: Measuring
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
            if is_kernel_source(self.tree.folder):
                self.build.check()
                self.build.build(self.tree.folder, lambda text: print(text, file=sys.stderr, flush=True))
            experiment, planned, cell = self._planned(commit)
        except UsageError as error:
            if self.sides:  # the experiment is right: what it names is not there at this commit
                raise _skipping(error) from None
            raise
        except LabError as error:
            raise _skipping(error) from None
        key = self._key(experiment, cell)
        run = self._known().get(key, {}).get(commit.hash)
        if run is not None:
            try:
                return self._stored(run, cell)
            except LabError:  # its run was removed
                pass
        try:
            entry, _ = self.measuring.done(lambda runner: runner.run(experiment, planned, None))
        except LabError as error:
            raise _skipping(error) from None
        side = self._stored(entry.id, cell)
        if side.cell.value is not None:
            self._remember(key, commit, entry.id)
        return side

    def _planned(self, commit: Commit) -> tuple[Experiment, Plan, str]:
        """The experiment of a commit, of which only the cell and what it is compared with are left."""
        moved: list[str] = []

        def place(path: str) -> str:
            found = self.tree.moved(path)
            if found != path:
                moved.append(found)
            return found

        experiment = load_experiment(self.config, kinds(), self.overrides, qemu_cpu_names, place)
        if not moved:
            what = f"it names nothing in {self.tree.top}: all commits would cost the same"
            hint = "name a kernel, a module or a workload by its path in the tree"
            raise UsageError(what, where=str(self.config), hint=hint)
        with contextlib.suppress(UsageError):  # no table of it has a profile: the commit is found all the same
            experiment = with_profile(experiment, ["symbols"])
        heading = {"name": f"{experiment.name}{_SUFFIX}", "description": f"{commit.short} {commit.subject}"}
        experiment = self.measuring.found(replace(experiment, heading=experiment.heading.model_copy(update=heading)))
        whole = plan(experiment)
        cell = self._cell(whole.cells).id
        return experiment, select(whole, [f"id={cell}"]), cell

    def _cell(self, cells: Sequence[Cell[Any]]) -> Cell[Any]:
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
        raise UsageError(what, where=str(self.config), detail=shown, hint=hint)

    def _stored(self, run: str, cell: str) -> Side:
        named = cells_of_run(run, cell)
        assert named.cells is not None
        (record,) = named.cells
        return Side(named.run, record)

    def _key(self, experiment: Experiment, cell: str) -> str:
        """What a cost depends on beside the commit."""
        plain = replace(experiment, heading=experiment.heading.model_copy(update={"description": None}))
        config = self.build.config.read_bytes() if self.build.config.is_file() else b""
        parts = [plain.digest(), cell, config.hex(), *self.build.variables, __version__, qemu_version()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _known(self) -> dict[str, dict[str, str]]:
        """The runs of earlier bisections, by what a cost depends on and by commit."""
        try:
            known = json.loads((self.tree.folder / _KNOWN).read_text())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def _remember(self, key: str, commit: Commit, run: str) -> None:
        known = self._known()
        known.setdefault(key, {})[commit.hash] = run
        write_whole(self.tree.folder / _KNOWN, json.dumps(known))


def _skipping(error: LabError) -> LabError:
    """What to raise so that a commit that fails is skipped.

    Not where the host lacks something, such as room: all commits that follow would be skipped as well.
    """
    if isinstance(error, HostError) and not isinstance(error, UnusableTreeError):
        return error
    return NotMeasured(error.what, where=error.where, detail=error.detail)
