# SPDX-License-Identifier: GPL-2.0-only
"""Which CPUs can QEMU and the host give a guest."""

from __future__ import annotations

from orchestrator.catalog.cpus import CpuModel
from orchestrator.catalog.spelling import nearest
from orchestrator.errors import HostError, UsageError
from orchestrator.guest.accelerator import known_kvm_speed
from orchestrator.guest.emulator import qemu_cpu_names, qemu_version
from orchestrator.guest.machine import Timing
from orchestrator.program import PROGRAM

_HOSTS_OWN = "host"
_ANOTHER = f"name another CPU: {PROGRAM} list cpus, or max for all that QEMU emulates"


def check_cpu(model: CpuModel, timing: Timing) -> None:
    """Raise HostError for a CPU that this host cannot give, and UsageError for one that the clock excludes."""
    name = model.qemu.partition(",")[0]
    if name not in qemu_cpu_names():
        guess = nearest(name, qemu_cpu_names())
        like = f"; the nearest is '{guess}'" if guess else ""
        raise HostError(f"CPU '{model.name}' needs QEMU's model '{name}', which {qemu_version()} has not{like}")
    if name != _HOSTS_OWN or timing == "kvm":
        return
    if timing == "instructions":
        raise UsageError(f"CPU '{name}' is this host's own, and the exact clock needs an emulated one", hint=_ANOTHER)
    speed = known_kvm_speed()
    why = "emulation was asked for" if speed.usable else speed.reason
    raise HostError(f"CPU '{name}' is this host's own, which takes KVM: {why}", hint=_ANOTHER)
