# SPDX-License-Identifier: GPL-2.0-only
"""The host's packages that experiments need, checked together before anything is fetched or built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from orchestrator.artifacts.bpf_objects import bpf_lists
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernel_build import kernel_lists
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import has_programs, is_path, probe_kind
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.table import ProbedTable
from orchestrator.host_packages import check_all_installed


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


def _of_probes(names: Iterable[str]) -> Iterator[Mapping[str, str]]:
    for name in names:
        file = probe_kind(name).bpf_file if is_path(name) else None
        if file is not None and has_programs(file):
            yield bpf_lists(file)
