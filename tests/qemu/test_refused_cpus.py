# SPDX-License-Identifier: GPL-2.0-only
"""Does a kernel that refuses the guest's CPU end the boot at once, and with its own words?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import qemus_in

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.cpus import cpu
from orchestrator.errors import UnsupportedError
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine
from orchestrator.run.machines import machine_for

pytestmark = pytest.mark.guest(kernel=["debian-686", "lab-i386-up"], cpu="pentium4")


@pytest.fixture
def machine(workshop: BuildContext, guest_kernel: Kernel) -> Machine:
    """One that the kernel boots on."""
    return machine_for(workshop, guest_kernel, GuestSpec(cpu="pentium4", timing="tcg"))


def test_an_older_cpu(machine: Machine, guest_kernel: Kernel, tmp_path: Path) -> None:
    """Under SeaBIOS, which a kernel of Debian's starts with, the boot stub prints on a screen only."""
    guest = Guest(replace(machine, cpu=cpu("486")), tmp_path)
    words = (
        "This kernel requires an i686 CPU, but only detected an i486 CPU"
        if guest_kernel.drivers_built_in
        else "its boot stub has stopped silently"
    )
    with pytest.raises(UnsupportedError, match=f"the kernel does not boot on CPU '486': {words}"):
        guest.boot(time_limit=3600.0)
    assert qemus_in(tmp_path) == []


@pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4")
def test_missing_features(machine: Machine, tmp_path: Path) -> None:
    without = cpu("pentium3").model_copy(update={"qemu": "pentium3,-cmov,-cx8"})
    guest = Guest(replace(machine, cpu=without), tmp_path)
    with pytest.raises(UnsupportedError, match=r"features not present on the CPU: cx8 cmov\n"):
        guest.boot(time_limit=3600.0, listener=lambda lines: None)
    assert qemus_in(tmp_path) == []


def test_the_catalogue_knows_what_a_kernel_needs(guest_kernel: Kernel) -> None:
    assert guest_kernel.spec.cpu_family == int(guest_kernel.config["CONFIG_X86_MINIMUM_CPU_FAMILY"])
    assert guest_kernel.spec.needs_pae == ("CONFIG_X86_PAE" in guest_kernel.config)
