# SPDX-License-Identifier: GPL-2.0-only
"""Which guests may be restored?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalog.cpus import cpu
from orchestrator.guest.machine import Lan, Machine, RootImage
from orchestrator.run.guests import can_be_restored

MACHINE = Machine(cpu("pentium4"), Path("kernel"), Path("initramfs"))
IMAGE = RootImage("debian-i386", "key", Path("base"), "qcow2")


@pytest.mark.parametrize("machine", [MACHINE, replace(MACHINE, timing="tcg", smp=2), replace(MACHINE, root=IMAGE)])
def test_those_that_depend_on_nothing_outside_may(machine: Machine) -> None:
    assert can_be_restored(machine)


@pytest.mark.parametrize(
    "machine",
    [
        replace(MACHINE, timing="kvm"),
        replace(MACHINE, timing="tcg", keeps_time=True),
        replace(MACHINE, root=IMAGE, channel="serial"),
        replace(MACHINE, root=replace(IMAGE, is_users=True)),
        replace(MACHINE, timing="tcg", lan=Lan(5, 1)),
    ],
)
def test_others_may_not(machine: Machine) -> None:
    assert not can_be_restored(machine)
