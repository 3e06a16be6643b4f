# SPDX-License-Identifier: GPL-2.0-only
"""The machine and the kernels that costs are measured on."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import UsageError
from orchestrator.experiment.fields import ValidationContext
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.guest.qemu_facts import qemu_cpu_names
from orchestrator.run.machines import check_possible, known_cpu

DEFAULT_CPU = "xeon-e5410"
"""The x86_64 CPU model with a price list."""
DEFAULT_KERNEL = "debian-amd64"
MEMORY = "512M"


def cost_kernel(name: str) -> KernelSpec:
    """The kernel of a name, or of a Linux version: ``6.12`` is Debian's. Raises ConfigError."""
    is_version = re.fullmatch(r"\d+\.\d+(\.\d+)?|newest", name)
    return kernel_spec(f"{DEFAULT_KERNEL}@{name}" if is_version else name)


def cost_kernels(names: Iterable[str], cpu: str) -> list[str]:
    """The kernels of names and versions. Raises UsageError for none, or a CPU that the first does not boot on."""
    kernels = list(dict.fromkeys(cost_kernel(name.strip()).argument for name in names if name.strip()))
    if not kernels:
        raise UsageError("names no kernel", where="--kernels", hint="for example --kernels 6.1,7.3")
    check_possible(cost_kernel(kernels[0]), known_cpu(cpu))
    return kernels


def cost_machine(cpu: str) -> MachineSpec:
    """The machine with this CPU model. Raises ValidationError."""
    return MachineSpec.model_validate({"cpu": cpu, "memory": MEMORY}, context=ValidationContext(qemu_cpu_names))
