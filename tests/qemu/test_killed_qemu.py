# SPDX-License-Identifier: GPL-2.0-only
"""Is a QEMU that somebody else kills told as such, and what does it cost?"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import QUICKSTART, REDUCED, CommandLine, FinishedRun
from killed_run import KilledLab, Moment
from memory_group import memory_group

from orchestrator.errors import GuestExit
from orchestrator.guest.guest import Guest

pytestmark = pytest.mark.qemu

LIMIT = 520 << 20
"""Bytes for the lab, QEMU and a guest of 512 MiB: it fits, and once it fills its memory they do not."""


@pytest.mark.nightly("five seconds; a QEMU is killed at another moment every day")
def test_a_killed_qemu_costs_its_cell_and_no_other(undisturbed: FinishedRun, tmp_path: Path) -> None:
    lab = KilledLab.warm(tmp_path)
    with lab.running("run", QUICKSTART, *REDUCED) as command:
        while not any(line.startswith("[1/4]") for line in command.lines):
            assert command.reach(Moment(len(command.lines) + 1, 0)), command.lines
        assert command.strike("QEMU", random.Random(0)) is not None
        assert command.end() == 1, command.lines
    cells = {cell.probe: cell for cell in lab.cells(lab.runs()[0]).values()}
    (killed,) = (cell for cell in cells.values() if cell.status == "failed")
    assert killed.reason is not None
    assert "QEMU ended (signal 9) while " in killed.reason
    assert killed.reason.endswith(
        "hint: another program or a person killed it; the system killed no process for lack of memory"
    )
    measured = {probe: cell.samples for probe, cell in cells.items() if cell.status == "ok"}
    assert measured.items() <= {probe: cell.samples for probe, cell in undisturbed.cells().items()}.items()
    assert len(measured) == 3
    assert lab.runs()[0].status == "complete"


@pytest.mark.guest(kernel="lab-i386-up", timing="tcg")
def test_a_qemu_that_is_killed_while_it_counts_is_an_exit(guest: Guest) -> None:
    def kill_while_counting() -> None:
        with guest.counted_interrupts():
            assert guest.pid is not None
            os.kill(guest.pid, signal.SIGKILL)

    with pytest.raises(GuestExit, match=r"QEMU ended \(signal 9\) while counting interrupts"):
        kill_while_counting()


@pytest.mark.nightly("the system takes back the memory of files first, again and again: 100 s")
def test_a_want_of_memory_is_named(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    with memory_group(f"lab-{tmp_path.name}", LIMIT) as group:
        # The root has half of the guest's memory.
        filling = (
            "sh",
            "-c",
            "mkdir /m; mount -t tmpfs -o size=480m tmpfs /m; exec dd if=/dev/zero of=/m/file bs=1M count=430",
        )
        process = command.start("exec", "--memory", "512", "--", *filling, stderr=subprocess.PIPE)
        group.write_text(str(process.pid))
        _, told = process.communicate()
    assert process.returncode == 1, told
    assert "QEMU ended (signal 9) while running sh" in told
    assert "hint: the system has killed processes for lack of memory meanwhile: free some" in told
