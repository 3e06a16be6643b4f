# SPDX-License-Identifier: GPL-2.0-only
"""The runs of an experiment at commits of a tree, stored ones used again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.diagnostics import is_of_code
from orchestrator.artifacts.git_tree import GitTree
from orchestrator.artifacts.own_kernel_build import TreeBuild, is_kernel_source
from orchestrator.artifacts.ready_kernels import UnusableTreeError
from orchestrator.artifacts.unbuilt_tree import unbuilt_tree
from orchestrator.catalog.kernel_variants import joined, split
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import split_member
from orchestrator.errors import BuildError, ConfigError, HostError, LabError, UsageError
from orchestrator.experiment.experiment import (
    Experiment,
    on_kernels,
    with_symbols,
)
from orchestrator.experiment.plan import Plan, names_of, plan, select
from orchestrator.experiment.source import kernels_override
from orchestrator.library.experiment_request import BuiltRequest, ExperimentRequest
from orchestrator.library.measured_commits import MeasuredCommits, is_lasting, request_of
from orchestrator.library.measurer import Measurer
from orchestrator.results.budgets import Budgets
from orchestrator.results.commit_heads import Commit
from orchestrator.results.runs import Run
from orchestrator.run.bisection import NotMeasured
from orchestrator.run.runner import PreparedPlan

Filters = Sequence[str] | Callable[[Plan], Sequence[str]]
"""Filters of cells, or what chooses them once the plan is known."""


@dataclass
class CommitRuns:
    """The runs of a requested experiment at commits of ``tree``.

    The experiment's paths in the tree lead to the files of the commit; a probe whose file it lacks, and the ``newest``
    commit has, is no row there. If the experiment names no kernel, or nothing in the tree, and the tree is a kernel's,
    all cells are measured on that kernel. ``suffix`` is appended to the experiment's name, which keeps other commits
    out of the experiment's history.
    """

    tree: GitTree
    request: ExperimentRequest | BuiltRequest
    build: TreeBuild
    measurer: Measurer
    suffix: str
    newest: str = "HEAD"
    outside: set[str] = field(default_factory=set)
    """Paths of the experiment outside the tree."""
    left_out: set[str] = field(default_factory=set)
    """Files of the tree whose probes are no rows at the last commit, which lacks them."""
    is_on_tree: bool = False
    """Whether all cells are measured on the tree's kernel."""
    digest: str = ""
    """The digest of the checked experiment."""
    budgets: Budgets = field(default_factory=Budgets)
    """The budgets of the checked experiment: an earlier run may have been measured with different ones."""

    def check(self, commit: str, only: Sequence[str] = ()) -> Plan | None:
        """Check all that can be known at a commit before its kernel is built, and check it out.

        Returns the plan, or None if a guest has to find its points first. Raises UsageError for a wrong experiment or
        filter, and for a configuration that no guest could boot; HostError for what this host lacks.
        """
        folder = self.tree.folder
        self.tree.check_out(commit)
        is_kernel = is_kernel_source(folder)
        if is_kernel:
            self._prepare()
        with unbuilt_tree(folder) if is_kernel else nullcontext():
            experiment = self._experiment()
            self.digest = digest([experiment.digest(), *sorted(self.left_out)])
            return self.measurer.check_cells(experiment, only)

    def measured(self, commit: Commit, filters: Filters = ()) -> Run:
        """The run of a commit's cells, stored or new; after ``check``.

        Of a kernel's tree, a commit that was measured before is not built again, nor is one that does not compile.
        Raises UsageError for an experiment that is wrong at this commit, LabError for a kernel that does not build.
        """
        request = self._request(filters)
        known = None if request is None else self.memory.outcome(request, commit.hash)
        if isinstance(known, Run):
            return known
        if known is not None:
            what, *detail = known.split("\n")
            raise BuildError(what, detail=detail)
        self.measurer.say(f"measuring {commit.short} {commit.subject}")
        self.tree.check_out(commit.hash)
        try:
            experiment, planned = self.planned(commit)
        except BuildError as error:
            if request is not None and is_of_code(reason_of(error)) and not self.tree.lacking:
                self.memory.remember(request, commit.hash, reason_of(error))
            raise
        chosen = filters(planned) if callable(filters) else filters
        run, is_final = self.run(experiment, select(planned, chosen))
        self.measurer.say(f"run {run.record.run}: {run.directory}")
        if request is not None and is_final:
            self.memory.remember(request, commit.hash, run)
        return run

    def planned(self, commit: Commit) -> tuple[Experiment, Plan]:
        """Build the checked-out kernel tree, and plan the experiment with profiles by symbol where possible.

        Raises UsageError for a wrong experiment, LabError for a kernel that does not build.
        """
        for sentence in self.tree.lacking:
            self.measurer.say(sentence)
        if is_kernel_source(self.tree.folder):
            self._prepare()
            self.build.compile(self.tree.folder, self.measurer.say)
        experiment = with_symbols(self._experiment())
        heading = {"name": f"{experiment.name}{self.suffix}", "description": f"{commit.short} {commit.subject}"}
        named = replace(experiment, heading=experiment.heading.model_copy(update=heading))
        resolved = self.measurer.resolved(named)
        return resolved, self.measurer.planned(resolved)

    def run(self, experiment: Experiment, planned: Plan) -> tuple[Run, bool]:
        """A stored run of the same content or a new one, and whether it is that of its commit for good."""
        prepared: list[PreparedPlan] = []

        def known(plan: PreparedPlan) -> str | None:
            prepared.append(plan)
            stored = self.memory.of_content(plan.content)
            return None if stored is None else stored.record.run

        run = self.measurer.measured_unless(experiment, planned, known)
        is_final = is_lasting(run.record, prepared[0]) and not self.tree.lacking
        if is_final:  # a guest may fail because the host was too busy; what a commit lacks may be there later
            self.memory.note_content(prepared[0].content, run)
        return run, is_final

    @property
    def memory(self) -> MeasuredCommits:
        return MeasuredCommits(self.tree.folder)

    def _prepare(self) -> None:
        self.build.check()
        self.build.prepare(self.tree.folder)
        self.build.check_bootable(self.tree.folder, self.tree.top)

    def _request(self, filters: Filters) -> str | None:
        """The key of what is asked of each commit; None where the commit has to be built to know its cells or parts."""
        if callable(filters) or not self.is_on_tree:
            return None
        return request_of(self.measurer.context(), self.digest, filters, self.build, self.outside)

    def _experiment(self) -> Experiment:
        moved: list[str] = []
        is_kernel = is_kernel_source(self.tree.folder)

        def place(path: str) -> str:
            at_commit = self.tree.moved(self.request.path(path))
            if at_commit != path:
                moved.append(at_commit)
            else:
                self.outside.add(split_member(path)[0])
            return at_commit

        self.left_out.clear()
        overrides = self.request.overrides
        if is_kernel and not self.request.names_kernels():
            overrides = (kernels_override(str(self.tree.top)), *overrides)
        try:
            experiment = self.request.load(self.measurer, overrides, place, self._is_lacking)
        except ConfigError as error:
            raise self._with_user_paths(error) from None
        self.budgets = experiment.budgets
        if self.left_out:
            experiment = _with_possible_budgets(experiment)
        kernels = {kernel: None for table in experiment.tables for kernel in table.table.all_kernels}
        if not moved and is_kernel:
            words = {split(kernel)[1]: None for kernel in kernels}
            experiment = on_kernels(experiment, [joined(str(self.tree.folder), word) for word in words])
        elif not moved:
            what = f"the experiment names nothing in {self.tree.top}, so all commits would cost the same"
            hint = "name a kernel, a module or a workload by its path in the tree"
            raise UsageError(what, where=self.request.title, hint=hint)
        self.is_on_tree = is_kernel and all(
            kernel_spec(kernel).tree == self.tree.folder
            for table in experiment.tables
            for kernel in table.table.all_kernels
        )
        return experiment

    def _is_lacking(self, path: str) -> bool:
        """Whether a file is in the newest commit and not in this one, which is noted."""
        file = Path(split_member(path)[0])
        if not file.is_relative_to(self.tree.folder) or file.exists():
            return False
        name = str(file.relative_to(self.tree.folder))
        if self.tree.git("cat-file", "-e", f"{self.newest}:{name}").status != 0:
            return False  # a misspelt name
        self.left_out.add(name)
        return True

    def _with_user_paths(self, error: ConfigError) -> ConfigError:
        """The error with the user's paths in place of those in the checked-out tree."""
        clone, top = str(self.tree.folder), str(self.tree.top)
        text = "\n".join((error.what, *error.detail))
        if clone not in text:
            return error
        detail = [line.replace(clone, top) for line in error.detail]
        hint = "the lab reads the tree's files at the measured commit; name only files that both commits have"
        return ConfigError(error.what.replace(clone, top), where=error.where, detail=detail, hint=hint)


def _with_possible_budgets(experiment: Experiment) -> Experiment:
    """The experiment without the budgets of cells that it does not have."""
    names = [names_of(cell) for cell in plan(experiment).cells]
    possible = {
        cell_filter.text
        for cell_filter, _ in experiment.budgets.entries
        if any(cell_filter.matches(name) for name in names)
    }
    budgets = {text: budget for text, budget in experiment.heading.budgets.items() if text in possible}
    return replace(experiment, heading=experiment.heading.model_copy(update={"budgets": budgets}))


def reason_of(error: LabError) -> str:
    """What happened, in lines."""
    return "\n".join([error.what, *error.detail])


def skipping(error: LabError) -> LabError:
    """NotMeasured, which skips the commit; an error of the host, such as a full disk, is returned unchanged."""
    if isinstance(error, HostError) and not isinstance(error, UnusableTreeError):
        return error
    return NotMeasured(error.what, where=error.where, detail=error.detail)
