# SPDX-License-Identifier: GPL-2.0-only
"""Is a panic on the console told from what a program printed there, by how QEMU ended?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalog.cpus import cpu
from orchestrator.errors import GuestConnectionLost, GuestError, GuestExit, GuestHang, GuestOops, GuestPanic
from orchestrator.guest.console import REPORTS_MAX, Console
from orchestrator.guest.diagnosis import cause_of
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import DataDisk, Machine, RootImage
from orchestrator.process import spawn

PANIC = "[    2.000000] Kernel panic - not syncing: is what the manual says"
ANSWER = "[    3.000000] Kernel panic - not syncing: NMI: Not continuing"
RESTART = "[    3.000000] reboot: Restarting system"
WARNING = "[    1.000000] WARNING: CPU: 0 PID: 1 at kernel/panic.c:1 f+0x1/0x2"
TERMINATED = "qemu-system-x86_64: terminating on signal 15 from pid 7 (systemd)"


def cause(folder: Path, lines: list[str], *, end: str = "exit 0", says: str = "") -> GuestError:
    """The error for a guest that printed these lines, and whose QEMU said something and ended so."""
    console, messages = Console(folder / "console"), folder / "messages"
    console.path.write_text("".join(f"{line}\n" for line in lines))
    messages.write_text(says)
    process = spawn(["sh", "-c", end])
    try:
        return cause_of(GuestConnectionLost("it broke"), "running true", console, messages, process)
    finally:
        process.close()


def test_a_qemu_that_ends_after_a_panic_has_panicked(tmp_path: Path) -> None:
    error = cause(tmp_path, [PANIC])
    assert isinstance(error, GuestPanic)
    assert error.what == "the guest's kernel panicked while running true: is what the manual says"


def test_a_panic_behind_many_reports_is_found(tmp_path: Path) -> None:
    assert isinstance(cause(tmp_path, [*[WARNING] * (REPORTS_MAX + 1), PANIC]), GuestPanic)


@pytest.mark.parametrize(
    ("lines", "end", "says", "hint"),
    [
        ([PANIC, RESTART], "exit 0", "", "the guest restarted, or switched itself off"),
        ([PANIC], "exit 0", TERMINATED, "another program, or a person, ended it"),
        ([RESTART], "exit 0", TERMINATED, "another program, or a person, ended it"),
        ([PANIC], "kill -KILL $$", "", "QEMU's messages come first above"),
    ],
)
def test_a_panic_that_a_program_printed_is_not_what_ended_it(
    lines: list[str], end: str, says: str, hint: str, tmp_path: Path
) -> None:
    error = cause(tmp_path, lines, end=end, says=says)
    assert isinstance(error, GuestExit)
    assert error.hint.startswith(hint)
    assert lines[-1] in error.detail


def test_a_panic_while_a_guest_restarts_is_one(tmp_path: Path) -> None:
    assert isinstance(cause(tmp_path, [RESTART, PANIC]), GuestPanic)


@pytest.mark.parametrize("others", [[], [WARNING] * (REPORTS_MAX + 1)])
def test_a_kernel_that_answers_an_nmi_had_not_panicked(others: list[str], tmp_path: Path) -> None:
    console = Console(tmp_path / "console")
    place = "[    3.000001] EIP: lab_spin+0x1/0x2 [lab]"
    console.path.write_text("".join(f"{line}\n" for line in [PANIC, *others, ANSWER, place]))
    error = cause_of(GuestHang("no answer"), "running true", console, tmp_path / "messages", None)
    assert isinstance(error, GuestHang)
    assert ("reported trouble (warning in f)" in error.what) == bool(others)
    assert "(panic" not in error.what
    assert place in error.detail
    assert ANSWER not in error.detail


def test_a_task_that_waits_for_a_disk_in_virtual_time_is_no_stall(tmp_path: Path) -> None:
    disk = RootImage("own", "key", tmp_path / "disk", "qcow2")
    on_disk = Machine(cpu("athlon64"), tmp_path / "kernel", tmp_path / "initramfs", root=disk)
    without = replace(on_disk, root=None)
    with_modules = replace(without, data=(DataDisk("modules", tmp_path / "modules"),))
    for machine in (on_disk, with_modules, without, replace(on_disk, timing="tcg")):
        guest = Guest(machine, tmp_path)
        guest.console.path.write_text("[ 4109.364664] INFO: task agent:1 blocked for more than 120 seconds.\n")
        if machine in (on_disk, with_modules):
            guest.check_console()
            continue
        with pytest.raises(GuestOops, match="stall"):
            guest.check_console()


def test_a_panic_that_no_command_met_names_the_log_that_is_left(tmp_path: Path) -> None:
    guest = Guest(Machine(cpu("pentium4"), tmp_path / "kernel", tmp_path / "initramfs"), tmp_path)
    guest.console.path.write_text(f"{PANIC}\n")
    with pytest.raises(GuestPanic, match="panicked: is what the manual says") as panic:
        guest.check_console()
    assert panic.value.where == str(guest.console.path)
