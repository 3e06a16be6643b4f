# SPDX-License-Identifier: GPL-2.0-only
"""Is a panic noticed that does not restart the guest, and a program that prints one not taken for it?"""

from __future__ import annotations

import pytest
from elsewhere import ELSEWHERE

from orchestrator.errors import GuestConnectionLost, GuestExit, GuestPanic
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_reports import Trouble

pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4")

PRINTED = "Kernel panic - not syncing: that is what it would print"
STAYS = "echo 1000 > /proc/sys/kernel/panic; echo c > /proc/sysrq-trigger"


@pytest.mark.parametrize(
    "timing",
    [
        pytest.param("instructions", marks=pytest.mark.guest(timing="instructions")),
        pytest.param("tcg", marks=[pytest.mark.guest(timing="tcg"), ELSEWHERE]),
    ],
)
@pytest.mark.usefixtures("timing")
@pytest.mark.allow_oops(".")
def test_a_panic_that_stays_ends_the_guest(guest: Guest) -> None:
    _ends(guest)


@pytest.mark.allow_oops(".")
@pytest.mark.nightly("the same, with two CPUs and with 64 bits")
@pytest.mark.guest(kernel=["debian-686", "debian-amd64"], cpu="xeon-e5410", smp=2, timing="tcg")
def test_a_panic_that_stays_on_one_cpu_of_two_ends_the_guest(guest: Guest) -> None:
    _ends(guest)


def _ends(guest: Guest) -> None:
    with pytest.raises(GuestPanic, match="sysrq triggered crash") as panic:
        guest.run(["sh", "-c", STAYS])
    # By the end of QEMU, and not by the time limit.
    assert isinstance(panic.value.__context__, GuestConnectionLost)


EACH_WAY = [
    pytest.param(
        file,
        id=f"{file}-{timing}",
        marks=[
            pytest.mark.guest(timing=timing),
            *([] if daily else [pytest.mark.nightly("the same on the other clock")]),
        ],
    )
    for file, timing, daily in (
        ("/dev/ttyS0", "tcg", True),
        ("/dev/kmsg", "instructions", True),
        ("/dev/ttyS0", "instructions", False),
        ("/dev/kmsg", "tcg", False),
    )
]


@pytest.mark.parametrize("file", EACH_WAY)
def test_a_program_that_prints_one_does_not_end_it(guest: Guest, file: str) -> None:
    _print(guest, file)
    # The kernel is at work all the time, and at rest.
    guest.succeed(["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=100"])
    guest.succeed(["sleep", "2"])
    assert any(report.trouble is Trouble.PANIC for report in guest.console.reports())
    guest.check_console()


@pytest.mark.nightly("with two CPUs")
@pytest.mark.guest(kernel=["debian-686", "debian-amd64"], cpu="xeon-e5410", smp=2, timing="tcg")
def test_a_cpu_that_is_off_line_has_not_panicked(guest: Guest) -> None:
    guest.succeed(["sh", "-c", "echo 0 > /sys/devices/system/cpu/cpu1/online"])
    _print(guest, "/dev/kmsg")
    guest.succeed(["sleep", "2"])
    guest.check_console()


@pytest.mark.allow_oops(".")
@pytest.mark.guest(timing="tcg")
def test_a_restart_after_a_program_printed_one_is_a_restart(guest: Guest) -> None:
    _print(guest, "/dev/kmsg")
    with pytest.raises(GuestExit) as ended:
        guest.run(["sh", "-c", "echo b > /proc/sysrq-trigger"])
    assert "switched itself off" in ended.value.hint


def _print(guest: Guest, file: str) -> None:
    guest.succeed(["sh", "-c", f"echo '<0>[    1.000000] {PRINTED}' > {file}"])
    guest.drain_console()
