# SPDX-License-Identifier: GPL-2.0-only
"""The lab as one object: experiments, runs, comparisons and guests, with the user's cache and store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.experiment.guest_spec import guest_spec
from orchestrator.library.measurer import Measurer
from orchestrator.paths import lab_dir
from orchestrator.results.runs import Run, find_run, opened_store
from orchestrator.results.store import LATEST, RunEntry

if TYPE_CHECKING:
    from orchestrator.comparison.comparison import ComparedRuns
    from orchestrator.comparison.series import MeasuredSeries
    from orchestrator.cost.request import CostRequest
    from orchestrator.experiment.experiment import Experiment
    from orchestrator.library.bisected_change import BisectedChange
    from orchestrator.library.dry_run import DryRun
    from orchestrator.library.experiment_request import ExperimentRequest
    from orchestrator.library.function_probes import Disassembly
    from orchestrator.library.measured_costs import MeasuredCosts
    from orchestrator.library.tested_guest import TestedGuest
    from orchestrator.profile.stored.profile_difference import ProfileDifference
    from orchestrator.profile.stored.timeline import Timeline
    from orchestrator.results.contract import CellRecord
    from orchestrator.results.cost_history import Quantity
    from orchestrator.results.history_steps import Steps


@dataclass(frozen=True)
class Lab(Measurer):
    """The lab in this user's folders: measures experiments, and finds, compares and explains what is stored."""

    def runs(self) -> Sequence[RunEntry]:
        """All runs of the store, the newest first."""
        with opened_store() as store:
            return () if store is None else store.runs()

    def find(self, name: str = LATEST) -> Run:
        """A run by its directory, its id or the beginning of that, ``latest``, or a baseline. Raises UsageError."""
        return find_run(name, lab_dir())

    def compare(self, *runs: str | Run, only: Sequence[str] = ()) -> ComparedRuns:
        """Compare two runs or cells (``RUN:CELL``), or one with the run before it. Raises UsageError."""
        from orchestrator.library.stored import load_comparison

        names = [run if isinstance(run, str) else str(run.directory) for run in runs]
        if len(names) > 2:
            raise UsageError(f"found {len(names)} runs; expected one or two")
        return load_comparison(names or [LATEST], only)

    def compare_measured(self, experiment: ExperimentRequest, before: str, after: str) -> ComparedRuns:
        """Measure an experiment on two kernels, or at two commits ``TREE@REV`` of a tree, and compare the two.

        A commit that was measured before is not measured again. Raises UsageError, BuildError, HostError.
        """
        from orchestrator.library.compared_measurements import measured_and_compared  # loads what builds kernels

        with self.speaking():
            return measured_and_compared(self, experiment, (before, after))

    def cost(self, request: CostRequest) -> MeasuredCosts:
        """Measure what a hit of programs, one-liners, modules or mechanisms costs (docs/cost.md).

        Costs above what the request allows are ``exceeded``. Raises UsageError if no call reaches any of them.
        """
        from orchestrator.library.measured_costs import cost_plan, measured_costs  # loads what compiles programs

        with self.speaking():
            return measured_costs(self, cost_plan(self, request))

    def cost_experiment(self, request: CostRequest) -> str:
        """The experiment that ``cost`` measures, as the text of a file. Raises as it does."""
        from orchestrator.cost.cost_experiment import experiment_text
        from orchestrator.library.measured_costs import cost_plan

        with self.speaking():
            return experiment_text(cost_plan(self, request).content)

    def bisect(self, experiment: ExperimentRequest, good: str, bad: str, *, cell: str | None = None) -> BisectedChange:
        """Find the first commit at which a cell costs as much as at ``bad``; both are commits ``TREE@REV``.

        ``cell`` is the cell's id or parts of it; by default the experiment's only one. Commits that do not build or
        boot are skipped. Raises UsageError if the two cost the same, LabError if one has no number.
        """
        from orchestrator.library.bisected_change import bisected_change

        with self.speaking():
            return bisected_change(self, experiment, (good, bad), cell)

    def series(
        self, experiment: ExperimentRequest, span: str, *, tree: str = "./", at_most: str | None = None
    ) -> MeasuredSeries:
        """Measure each commit of a patch series ``[TREE@]BASE..TOPIC``, without a TREE one of ``tree``.

        An interrupted series goes on where it was.
        A cell that exceeds the budget ``at_most`` (``+5``, ``+1%``, ``<=300``) makes the series wrong. Commits that
        do not build or boot have their reason. Raises UsageError, HostError, and LabError for a base without a number.
        """
        from orchestrator.library.measured_series import measured_series

        with self.speaking():
            return measured_series(self, experiment, span, tree, at_most)

    def stored_series(
        self, experiment: ExperimentRequest, span: str, *, tree: str = "./", at_most: str | None = None
    ) -> MeasuredSeries:
        """What ``series`` has measured with the same arguments: nothing is built or measured. Raises as it does."""
        from orchestrator.library.measured_series import stored_series

        with self.speaking():
            return stored_series(self, experiment, span, tree, at_most)

    def differences(self, before: str, after: str) -> Sequence[ProfileDifference]:
        """What the cells of one run execute more than those of another, or one cell (``RUN:CELL``) than another.

        Raises UsageError for cells without profiles.
        """
        from orchestrator.library.stored_profiles import difference_of, stored_pairs
        from orchestrator.profile.code.compared_code import with_code

        return [with_code(difference_of(*pair)) for pair in stored_pairs(before, after)[0]]

    def dry_run(self, experiment: Experiment, *, only: Sequence[str] = ()) -> DryRun:
        """What ``run`` would do, by what is in the cache: nothing is fetched, built or started. Raises ConfigError."""
        from orchestrator.library.dry_run import dry_runs

        return next(dry_runs(self, [experiment], only))

    def set_baseline(self, name: str, run: str = LATEST) -> str | None:
        """Give a run a name that ``compare`` and others take; returns the run that had it. Raises UsageError."""
        from orchestrator.library.baselines import set_baseline

        return set_baseline(name, run)[1]

    def remove_baseline(self, name: str) -> None:
        """Remove a name; its run stays. Raises UsageError for an unknown name."""
        from orchestrator.library.baselines import remove_baseline

        remove_baseline(name)

    def histories(self, metric: str | None = None, *, overhead: bool = False) -> Sequence[Steps]:
        """How a cell's value or overhead went from run to run: of one metric ``EXPERIMENT:CELL``, or of all of a name.

        Without a name those with a step in the newest runs. Raises UsageError if there is none.
        """
        from orchestrator.library.histories import changed_histories, named_histories
        from orchestrator.results.store import no_run_yet

        with opened_store() as store:
            if store is None:
                raise no_run_yet(lab_dir())
            quantity: Quantity = "overhead" if overhead else "value"
            if metric is None:
                return changed_histories(store, quantity, None, self.progress.warn)
            return named_histories(store, metric, quantity)

    def timeline(self, *cells: str) -> Sequence[Timeline]:
        """One call of each stored cell ``RUN:CELL``, function by function; each is measured again.

        Raises UsageError for a cell that has no call to show, LabError for one without a number.
        """
        from orchestrator.library.cell_timelines import cell_timelines

        with self.speaking():
            return cell_timelines(self, cells)

    def debug(self, cell: str, *, at: str | None = None, instruction: int = 1) -> CellRecord:
        """Stop a stored cell ``RUN:CELL`` in a timed call, wait until gdb detaches, and return its new record.

        It stops before the instruction of this number, or ``at`` ``SYMBOL`` or ``SYMBOL:N``, where the timed calls
        enter a function for the N-th time. The listener is told how to attach. Raises UsageError for a cell or a place
        that cannot be stopped at, LabError if the cell has not its stored value, HostError without gdb.
        """
        from orchestrator.library.stopped_cell import entry_place, stopped_cell
        from orchestrator.run.debugging import StopPlace

        return stopped_cell(self, cell, StopPlace(instruction) if at is None else entry_place(at))[1]

    def disassembly(self, kernel: str, function: str, cpu: str | None = None) -> Disassembly:
        """A kernel function's instructions, and the probes that each can take, which a guest is asked."""
        from orchestrator.library.disassembly import disassembly  # not for each command: it loads a disassembler

        return disassembly(self.context(), kernel, function, cpu)

    def build_tree(self, tree: str | PathLike[str] | None = None, make: Sequence[str] = ()) -> Path:
        """Build the kernel of a tree, by default that around the current folder; returns the path of its image.

        ``make`` are variables ``NAME=VALUE``. A tree without a configuration gets the lab's. Raises UsageError,
        HostError, BuildError.
        """
        from orchestrator.library.tree_build import built_tree

        return built_tree(self.context(), None if tree is None else Path(tree), make).image

    def guest(self, **arguments: object) -> AbstractContextManager[TestedGuest]:
        """A guest, restored or booted, that ends with the block. The arguments are those of pytest's mark ``guest``.

        Raises UsageError, HostError, GuestError; at the end of the block GuestOops if its kernel has reported trouble.
        """
        from orchestrator.library.running_guest import (
            running_guest,  # not for each command either: its guests build modules
        )

        return running_guest(self.context(), guest_spec({"fresh": self.fresh, **arguments}))
