# SPDX-License-Identifier: GPL-2.0-only
"""Is a kernel that fails under a command known for it over a console and over SSH as well?"""

from __future__ import annotations

import pytest
from faulty_module import insert
from module_maker import ModuleMaker

from orchestrator.errors import GuestError, GuestExit, GuestHang, GuestOops, GuestPanic
from orchestrator.guest.guest import Guest

pytestmark = [
    pytest.mark.guest(kernel="lab-i386-up", image="debian-i386", channel=["serial", "ssh"], timing="tcg"),
    pytest.mark.allow_oops("."),
    pytest.mark.nightly("boots a distribution for each: three minutes"),
]

FAULTS: dict[str, tuple[type[GuestError], str]] = {
    "null": (GuestOops, r"oops in lab_fault_null \[faulty\]"),
    "panic": (GuestPanic, r"panicked in lab_fault_panic \[faulty\] while running insmod: this is only a test"),
    "triple": (GuestExit, r"QEMU ended \(status 0\) while running insmod"),
    "spin": (GuestHang, r"its CPU is in lab_fault_spin \[faulty\]"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_under_a_command(guest: Guest, modules: ModuleMaker, fault: str) -> None:
    error, sentence = FAULTS[fault]
    with pytest.raises(error, match=sentence):
        insert(guest, modules, fault, time_limit=10.0)
    assert (guest.pid is None) == (fault != "null")


def test_a_full_disk_is_the_commands_failure(guest: Guest) -> None:
    guest.succeed(["mkdir", "-p", "/run/small"])
    guest.succeed(["mount", "-t", "tmpfs", "-o", "size=64k", "small", "/run/small"])
    assert "No space left on device" in guest.run(["dd", "if=/dev/zero", "of=/run/small/a", "bs=1k"]).stderr.decode()
    with pytest.raises(GuestError, match=r"cannot write /run/small/b: .*(?i:no space left on device|failure)"):
        guest.put(bytes(1 << 17), "/run/small/b")
    assert guest.run(["true"]).status == 0
