# SPDX-License-Identifier: GPL-2.0-only
"""What a boot needs before its guest starts: its kernel, its machine and its cells' modules."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.module_files import loaded_files, missing_module_reason
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.experiment.plan import Boot
from orchestrator.run.benchmark_kind import BenchmarkKind, BootArtifacts, Ready, unsupported
from orchestrator.run.machines import counting, machine_of
from orchestrator.run.plan_check import wrong_points


def prepare(context: BuildContext, kind: BenchmarkKind, boot: Boot) -> BootArtifacts:
    """Fetch and build what a boot needs. Raises HostError and the like if there is no kernel to boot.

    A module that does not build, or a point or kernel module that this kernel lacks, fails only its own cells.
    """
    kernel = ready_kernel(context, boot.spec)
    boot, reasons = checked_cells(kind, kernel, boot)
    machine = machine_of(context, kernel, boot)
    refused = {id_: unsupported(reason) for id_, reason in reasons.items()}
    rest = [cell for cell in boot.cells if cell.id not in refused]
    cells = {**refused, **(kind.prepare(context, kernel, rest) if rest else {})}
    if any(isinstance(cell, Ready) and cell.needs_counter for cell in cells.values()) and not machine.counts_code:
        machine = counting(context, machine)
    return BootArtifacts(kernel, machine, cells, loaded_files(kernel, boot.kernel_modules))


def checked_cells(kind: BenchmarkKind, kernel: Kernel, boot: Boot) -> tuple[Boot, Mapping[str, str]]:
    """The boot, and why the kernel cannot have some of its cells, by cell id. Nothing is built or started for this.

    If the kernel lacks some of the requested kernel modules, the boot is without any.
    """
    missing = missing_module_reason(kernel, boot.kernel_modules)
    if missing is not None:
        return boot.without_kernel_modules(), {cell.id: missing for cell in boot.cells}
    wrong = wrong_points(kernel, boot.cells)
    refused = kind.refused(kernel, [cell for cell in boot.cells if cell.id not in wrong])
    return boot, {**wrong, **{id_: reason for id_, reason in refused.items() if reason is not None}}
