# SPDX-License-Identifier: GPL-2.0-only
"""What is wrong with a plan on this host, found before anything boots."""

from __future__ import annotations

from orchestrator.catalog.cpus import cpu
from orchestrator.errors import ConfigError, HostError, LabError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file.origin import TableOrigin, error_of_tables
from orchestrator.experiment.file.problems import Problem
from orchestrator.experiment.plan import Plan
from orchestrator.guest.available_cpu import check_cpu
from orchestrator.guest.emulator import qemu_cpu_names
from orchestrator.run.machines import timing_of
from orchestrator.run.module_check import check_modules
from orchestrator.run.point_check import FindKernel, check_points


def check_plan(experiment: Experiment, plan: Plan, find: FindKernel) -> list[str]:
    """Check the CPUs, kernels' modules and points of a plan; the names of kernels whose points could not be checked.

    Raises ConfigError, which lists all modules or points that are wrong, and HostError for CPUs that this host cannot
    give, or where it has no QEMU.
    """
    _check_cpus(experiment, plan)
    check_modules(experiment, plan, find)
    return check_points(experiment, plan, find)


def _check_cpus(experiment: Experiment, plan: Plan) -> None:
    problems: list[tuple[TableOrigin | None, Problem]] = []
    errors: list[LabError] = []
    qemu_cpu_names()  # without QEMU no CPU of the file is to blame
    for boot in {(boot.cpu, boot.clock): boot for boot in plan.boots}.values():
        try:
            check_cpu(cpu(boot.cpu), timing_of(boot))
        except LabError as error:
            errors.append(error)
            for named in experiment.tables:
                machines = enumerate(named.table.machines if named.table.clock == boot.clock else ())
                keys = [("machines", index, "cpu") for index, machine in machines if machine.cpu == boot.cpu]
                problems += [(named.origin, Problem(key, error.what)) for key in keys]
    if not errors:
        return
    found = error_of_tables(problems)
    kind = HostError if all(isinstance(error, HostError) for error in errors) else ConfigError
    raise kind(found.what, where=found.where, detail=found.detail, hint=errors[0].hint)
