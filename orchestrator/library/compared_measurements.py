# SPDX-License-Identifier: GPL-2.0-only
"""An experiment measured on two kernels, or at two commits of a tree, and the two compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, is_revision, revisions
from orchestrator.artifacts.own_kernel_build import TreeBuild
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.comparison.comparison import ComparedRuns, pairs_by_kernel
from orchestrator.errors import UsageError
from orchestrator.experiment.experiment import (
    Experiment,
    kernel_name,
    on_kernels,
    only_profiled,
    with_profile,
    with_symbols,
)
from orchestrator.experiment.source import kernels_override, names_kernels, read_source
from orchestrator.library.commit_runs import CommitRuns
from orchestrator.library.experiment_request import ExperimentRequest
from orchestrator.library.measurer import Measurer
from orchestrator.library.stored import compared_kernels, compared_runs
from orchestrator.library.stored_profiles import RunCell
from orchestrator.paths import cache_dir
from orchestrator.results.contract import CellRecord
from orchestrator.results.recorded_provenance import ProvenanceDifference
from orchestrator.results.runs import Run


def measured_and_compared(measurer: Measurer, request: ExperimentRequest, names: tuple[str, str]) -> ComparedRuns:
    """Measure an experiment at two commits ``TREE@REV`` or on two kernels. Raises UsageError for one of each."""
    measurer.check()
    are_commits = [is_revision(name) for name in names]
    if all(are_commits):
        return _at_commits(measurer, request, names)
    if any(are_commits):
        raise UsageError("one is a kernel, the other a commit", hint="name two kernels, or two commits of one tree")
    if request.kconfig or request.make:
        options = " and ".join(map(measurer.argument, ("kconfig", "make")))
        raise UsageError(f"{options} are for two commits of a kernel's tree", hint="leave them out")
    return compared_kernels(_on_kernels(measurer, request, names, with_symbols), _kernel_names(names), [])


def profiled_on_kernels(
    measurer: Measurer, request: ExperimentRequest, kernels: tuple[str, str]
) -> tuple[Sequence[tuple[RunCell, RunCell]], Sequence[CellRecord]]:
    """Profile the experiment's cells by symbol on both kernels.

    Returns the pairs of cells with a number on both, and the cells without a number.
    """
    run = _on_kernels(measurer, request, kernels, lambda whole: only_profiled(with_profile(whole, ["symbols"])))
    pairs = [(pair.before, pair.after) for pair in pairs_by_kernel(run.record.cells, *_kernel_names(kernels))]
    both = [(cell, other_cell) for cell, other_cell in pairs if cell is not None and other_cell is not None]
    numbers = [
        (RunCell(run, cell), RunCell(run, other_cell))
        for cell, other_cell in both
        if cell.status == other_cell.status == "ok"
    ]
    return numbers, [cell for cell in run.record.cells if cell.status != "ok"]


def _kernel_names(kernels: tuple[str, str]) -> tuple[str, str]:
    return kernel_spec(kernel_name(kernels[0])).name, kernel_spec(kernel_name(kernels[1])).name


def _on_kernels(
    measurer: Measurer,
    request: ExperimentRequest,
    kernels: Sequence[str],
    adapted: Callable[[Experiment], Experiment],
) -> Run:
    """Run the ``adapted`` experiment on kernels, given by names or paths."""
    overrides = request.overrides
    if not names_kernels(request.file, overrides):
        overrides = [kernels_override(kernel_name(kernels[0])), *overrides]
    experiment = on_kernels(adapted(measurer.load(request.file, overrides, request.path)), kernels)
    measurer.check_cells(experiment, request.only)
    resolved = measurer.resolved(experiment)
    run = measurer.measured(resolved, measurer.planned(resolved, request.only))
    measurer.say(f"run {run.record.run}: {run.directory}")
    return run


def _at_commits(measurer: Measurer, request: ExperimentRequest, names: tuple[str, str]) -> ComparedRuns:
    """Compare two commits, and measure each unless a run of it is stored; ``TreeBuild`` builds a kernel's tree.

    Raises UsageError for an unknown commit, two equal ones or a wrong experiment, BuildError for a kernel that does
    not build.
    """
    read_source(request.file)
    ends = revisions(*names)
    if ends[0].commit == ends[1].commit:
        raise UsageError(f"{' and '.join(names)} are the same commit", hint="name two different ones")
    build = TreeBuild.of(ends[0].top, request.kconfig, request.make)
    with GitTree.open(Cache(cache_dir()), ends[0].top, offline=measurer.offline) as tree:
        tree.check_out(*(end.commit for end in ends))
        runs = CommitRuns(tree, request, build, measurer, "-commits", ends[1].commit)
        runs.check(ends[0].commit, request.only)
        commits = [tree.commit(end.commit) for end in ends]
        before, after = (runs.measured(commit, request.only) for commit in commits)
    compared = compared_runs(before, after, runs.budgets)
    first, second = (f"{commit.short} {commit.subject}" for commit in commits)
    return replace(
        compared,
        differs=[ProvenanceDifference("commit", first, second), *compared.differs],
        again=["compare", "--config", str(request.file), *names, *request.options],
    )
