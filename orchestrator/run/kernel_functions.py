# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's facts about its own functions, read once in a guest of its own and cached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine
from orchestrator.probes.placement import BLACKLIST, BLACKLIST_MAX
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX

_LISTS = {"symbols": (KALLSYMS, KALLSYMS_MAX), "blacklist": (BLACKLIST, BLACKLIST_MAX)}


@dataclass(frozen=True)
class KernelFunctions:
    """The kernel's symbols, and its list of functions that kprobes must not touch."""

    symbols: bytes
    blacklist: bytes


def kernel_functions(
    context: BuildContext, kernel: Kernel, machine: Machine, watch: Callable[[Guest], None]
) -> KernelFunctions:
    """The lists of a kernel, the same in each boot (nokaslr). ``watch`` gets the guest before it runs.

    Raises GuestError if it does not boot.
    """

    def ask(folder: Path) -> None:
        context.say(f"asking {kernel.spec.name} for its functions")
        guest = Guest(machine, folder)
        guest.say = context.say
        watch(guest)
        with guest:
            for name, (file, largest) in _LISTS.items():
                (folder / name).write_bytes(guest.get(file, largest=largest))

    inputs = {"kernel": kernel.key, "initramfs": machine.initramfs.parent.name, "cpu": machine.cpu.name}
    artifact = context.cache.obtain("kernel-functions", inputs, f"functions of {kernel.spec.name}", ask)
    return KernelFunctions(**{name: (artifact.path / name).read_bytes() for name in _LISTS})
