# SPDX-License-Identifier: GPL-2.0-only
"""Profiles of stored cells by source line."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import ConfigError
from orchestrator.experiment.file import load_experiment
from orchestrator.guest.qemu_facts import qemu_cpu_names
from orchestrator.library.stored_profiles import RunCell, difference_of
from orchestrator.profile.lines.by_line import Sources, by_line, same_lines, with_lines
from orchestrator.profile.lines.stored_sources import stored_sources
from orchestrator.profile.stored.profile_difference import ProfileDifference, difference
from orchestrator.results.runs import EXPERIMENT_FILE


def sources_of(context: BuildContext, cell: RunCell, function: str | None = None) -> Sources:
    """The sources of a stored cell, or of one function; the run's experiment has the place of a user's kernel."""
    name, directory = cell.cell.kernel, cell.run.directory

    def spec() -> KernelSpec:
        try:
            return kernel_spec(name)
        except ConfigError:
            tables = load_experiment(directory / EXPERIMENT_FILE, kinds(), (), qemu_cpu_names).tables
            specs = {spec.name: spec for t in tables for spec in map(kernel_spec, t.table.all_kernels)}
            if name not in specs:
                raise
            return specs[name]

    return stored_sources(context, directory, cell.cell, spec, function)


def difference_by_line(context: BuildContext, pair: tuple[RunCell, RunCell]) -> ProfileDifference:
    """The difference of two cells by source line."""
    whole = difference_of(*pair)
    profiles = (whole.before, whole.after)
    before, after = (
        by_line(cell_profile, sources_of(context, cell)) for cell_profile, cell in zip(profiles, pair, strict=True)
    )
    first, second = with_lines(whole.before, before, same_lines(before, after)), with_lines(whole.after, after)
    return replace(difference(first, second), notes=whole.notes, noun="line")
