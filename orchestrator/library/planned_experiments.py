# SPDX-License-Identifier: GPL-2.0-only
"""Several experiments of one command: loaded and checked all before the first one runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.catalog.kernels import kernel
from orchestrator.errors import HostError, UsageError
from orchestrator.experiment.experiment import Experiment, unprofiled, with_profile
from orchestrator.experiment.plan import Plan
from orchestrator.library.measurer import Measurer
from orchestrator.library.needed_packages import check_packages
from orchestrator.paths import cache_dir
from orchestrator.results.runs import check_directory
from orchestrator.run.plan_check import check_plan


@dataclass(frozen=True)
class PlannedExperiment:
    """An experiment whose points are known, its selected cells, and the directory of its run."""

    experiment: Experiment
    plan: Plan
    directory: Path | None
    """None for one that the store chooses."""


def loaded_experiments(
    measurer: Measurer, files: Sequence[tuple[Path, Sequence[str]]], profile: Sequence[str] = ()
) -> Sequence[Experiment]:
    """The experiments of files, each with its overrides and with these parts of profiles where it supports them.

    The listener is told of tables without a profile. Raises ConfigError, and UsageError for two experiments of one
    name, whose results would be mixed up.
    """
    experiments = [measurer.load(config, overrides) for config, overrides in files]
    if profile:
        without = [sentence for experiment in experiments for sentence in unprofiled(experiment, profile)]
        experiments = [with_profile(experiment, profile) for experiment in experiments]
        for sentence in without:
            measurer.say(sentence)
    first: dict[str, Path] = {}
    for (config, _), experiment in zip(files, experiments, strict=True):
        namesake = first.setdefault(experiment.name, config)
        if namesake is not config:
            raise UsageError(
                f"{namesake} and {config} are both named '{experiment.name}'",
                hint="rename one of them, or run them one at a time",
            )
    return experiments


def run_directories(
    out: Path | None, experiments: Sequence[Experiment], *, resumed: bool = False
) -> Sequence[Path | None]:
    """The directory of each experiment's run: ``out``, or a folder in it for each of several.

    Raises UsageError for one that has a run, unless that is ``resumed``.
    """
    directories = [
        out / experiment.name if out is not None and len(experiments) > 1 else out for experiment in experiments
    ]
    for directory in directories:
        if directory is not None and not resumed:
            check_directory(directory)
    return directories


def unchecked_kernels(cached: BuildContext, experiment: Experiment, planned: Plan) -> Sequence[str]:
    """Check a plan with the cached kernels; returns those whose points could not be checked.

    Raises ConfigError for points and modules that none of the kernels has, HostError for CPUs.
    """

    def find(name: str) -> Kernel | None:
        try:
            return ready_kernel(cached, kernel(name))
        except HostError:
            return None

    return check_plan(experiment, planned, find)


def planned_experiments(
    measurer: Measurer, experiments: Sequence[Experiment], only: Sequence[str], out: Path | None, *, resumed: bool
) -> Sequence[PlannedExperiment]:
    """Resolve and plan experiments that are measured in ``out``, or go on there, and check what can be checked.

    Raises UsageError for a directory that another run has, HostError for missing packages, ConfigError.
    """
    directories = run_directories(out, experiments, resumed=resumed)
    measurer.check()
    check_packages(measurer.context(), experiments)  # of all files, before the first one's are fetched
    cached = BuildContext(Cache(cache_dir()), offline=True)
    resolved = [measurer.resolved(experiment) for experiment in experiments]
    plans = [measurer.planned(experiment, only) for experiment in resolved]
    if not resumed:
        for experiment, planned in zip(resolved, plans, strict=True):
            unchecked_kernels(cached, experiment, planned)
    return list(map(PlannedExperiment, resolved, plans, directories))
