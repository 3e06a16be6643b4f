# SPDX-License-Identifier: GPL-2.0-only
"""The host's packages that experiments need, checked together before anything is fetched or built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from orchestrator.artifacts.bpf_objects import bpf_lists
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernel_build import build_lists, is_built, merged
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import has_programs, is_one_liner, is_path, probe_kind, split_path
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.table import ProbedTable
from orchestrator.paths import user_path
from orchestrator.program import check_all_installed


def check_packages(context: BuildContext, experiments: Iterable[Experiment]) -> None:
    """Install what experiments lack, all at once, as ``check_all_installed`` does. Raises HostError.

    Offline nothing is fetched: what is missing is said where it is needed.
    """
    if context.offline:
        return
    lists: dict[str, str] = {}
    for experiment in experiments:
        for named in experiment.tables:
            for kernel in named.table.all_kernels:
                lists |= kernel_lists(context, kernel_spec(kernel))
            if isinstance(named.table, ProbedTable):
                for probe in _of_probes(named.table.probes):
                    lists |= probe
    check_all_installed(lists)


def check_cost_packages(context: BuildContext, names: Iterable[str], kernels: Iterable[str]) -> None:
    """The same for what ``cost`` measures by name on kernels, which are got ready to find the calls."""
    if context.offline:
        return
    from orchestrator.cost.request import cost_kernel  # loads what finds calls, which a run does not

    lists: dict[str, str] = {}
    for kernel in kernels:
        lists |= kernel_lists(context, cost_kernel(kernel))
    for file in (user_path(split_path(name)[0]) for name in names if not is_one_liner(name)):
        if has_programs(file) and file.is_file():
            lists |= bpf_lists(file)
    check_all_installed(lists)


def kernel_lists(context: BuildContext, spec: KernelSpec) -> Mapping[str, str]:
    """The package lists that building a kernel needs; none for one that is built, or a package."""
    if spec.source is None or is_built(context, spec):
        return {}
    return build_lists(spec.name, merged(spec))


def _of_probes(names: Iterable[str]) -> Iterator[Mapping[str, str]]:
    for name in names:
        file = probe_kind(name).bpf_file if is_path(name) else None
        if file is not None and has_programs(file):
            yield bpf_lists(file)
