# SPDX-License-Identifier: GPL-2.0-only
"""Everything a boot needs before its guest starts: kernel, initramfs, disks, and what each cell's kind prepares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.module_files import loaded_files, missing_module_reason
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.experiment.plan import Boot
from orchestrator.guest.machine import Machine
from orchestrator.run.kind import BenchmarkKind
from orchestrator.run.machines import machine_of
from orchestrator.run.point_check import wrong_points
from orchestrator.run.preparation import Prepared, unsupported


@dataclass(frozen=True)
class BootArtifacts:
    """A boot's kernel and machine, and what was prepared for each cell, by its id.

    ``kernel_modules`` are the files of the kernel's own modules to load first, by name, in the order of loading.
    ``plugin`` counts instructions where the machine does not and a failure has to be explained; None where it is to be
    made when it is needed.
    """

    kernel: Kernel
    machine: Machine
    cells: Mapping[str, Prepared[Any]]
    kernel_modules: Mapping[str, Path] = field(default_factory=dict)
    plugin: Path | None = None

    @property
    def keys(self) -> dict[str, str]:
        """What names the exact content of everything: kernel, initramfs, image, and by cell modules and the rest."""
        keys = {"kernel": self.kernel.key, "initramfs": self.machine.initramfs.parent.name}
        if self.machine.root is not None:
            keys["image"] = self.machine.root.key
        if self.machine.counter is not None:
            keys["counting plugin"] = self.machine.counter.file.parent.name
        if self.kernel_modules:
            keys |= {disk.name: disk.file.parent.name for disk in self.machine.data}
            keys["loaded modules"] = ", ".join(self.kernel_modules)  # the disk has all of the kernel's
        for cell, prepared in self.cells.items():
            keys |= {f"{cell}: {module.name}": module.key for module in prepared.modules}
            keys |= {f"{cell}: {name}": key for name, key in prepared.keys.items()}
        return keys


def prepare(context: BuildContext, kind: BenchmarkKind, boot: Boot) -> BootArtifacts:
    """Fetch and build what a boot needs. Raises HostError and the like when there is no kernel to boot.

    A module that does not build, or a point or a module of its own that this kernel lacks, is its own cells' failure
    only.
    """
    kernel = ready_kernel(context, kernel_spec(boot.kernel))
    boot, missing = without_missing_modules(kernel, boot)
    machine = machine_of(context, kernel, boot)
    reasons = missing or wrong_points(kernel, boot.cells)
    refused = {id_: unsupported(reason) for id_, reason in reasons.items()}
    rest = [cell for cell in boot.cells if cell.id not in refused]
    cells = {**refused, **kind.prepare(context, kernel, rest)}
    return BootArtifacts(kernel, machine, cells, loaded_files(kernel, boot.kernel_modules))


def without_missing_modules(kernel: Kernel, boot: Boot) -> tuple[Boot, Mapping[str, str]]:
    """The boot, and nothing where the kernel has its modules; else the boot without any, and why, by its cells' ids."""
    reason = missing_module_reason(kernel, boot.kernel_modules)
    if reason is None:
        return boot, {}
    return replace(boot, kernel_modules=()), {cell.id: reason for cell in boot.cells}
