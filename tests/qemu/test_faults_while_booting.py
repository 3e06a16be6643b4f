# SPDX-License-Identifier: GPL-2.0-only
"""Is a kernel that fails before there is an agent known for what happened to it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import qemus_in
from module_maker import ModuleMaker

from orchestrator.cpio_archive import Entry, archive
from orchestrator.errors import GuestExit, GuestHang, GuestPanic
from orchestrator.guest.guest import Guest

pytestmark = [pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4"), pytest.mark.allow_oops(".")]

SCRIPT = Path(__file__).parent / "guest" / "faulty_init.sh"


@pytest.fixture
def doomed(shared_guest: Guest, modules: ModuleMaker, tmp_path: Path) -> Callable[[str], Guest]:
    """Makes a guest that goes wrong so while it boots."""

    def make(fault: str) -> Guest:
        module = modules.rogue("faulty").file.read_bytes()
        files = {"init": SCRIPT.read_bytes(), "fault": fault.encode(), "faulty.ko": module}
        initramfs = tmp_path / "initramfs.cpio"
        # Of two archives in one initramfs the later one wins.
        own = archive([Entry.file(name, content) for name, content in files.items()])
        initramfs.write_bytes(shared_guest.machine.initramfs.read_bytes() + own)
        return Guest(replace(shared_guest.machine, initramfs=initramfs), tmp_path)

    return make


def test_a_panic_names_the_function(doomed: Callable[[str], Guest], tmp_path: Path) -> None:
    guest = doomed("panic")
    with pytest.raises(GuestPanic, match=r"panicked in lab_fault_panic \[faulty\] while booting: this is only a test"):
        guest.boot()
    assert qemus_in(tmp_path) == []


def test_a_triple_fault_is_a_reset_without_a_word(doomed: Callable[[str], Guest], tmp_path: Path) -> None:
    guest = doomed("triple")
    with pytest.raises(GuestExit, match=r"QEMU ended \(status 0\) while booting") as ended:
        guest.boot()
    assert "triple fault" in ended.value.hint
    assert qemus_in(tmp_path) == []


def test_an_oops_before_the_agent_is_quoted(doomed: Callable[[str], Guest], tmp_path: Path) -> None:
    guest = doomed("null")
    with pytest.raises(GuestHang, match=r"had reported trouble \(oops in lab_fault_null \[faulty\]\)") as hang:
        guest.boot(time_limit=5.0)
    assert any("BUG: kernel NULL pointer dereference" in line for line in hang.value.detail)
    assert qemus_in(tmp_path) == []


@pytest.mark.nightly("waits for a boot that does not end: half a minute")
@pytest.mark.guest(kernel=["debian-686", "debian-amd64", "lab-i386-up"], cpu="xeon-e5410")
def test_a_loop_is_found_by_an_nmi(doomed: Callable[[str], Guest], tmp_path: Path) -> None:
    guest = doomed("spin")
    with pytest.raises(GuestHang, match=r"its CPU is in lab_fault_spin \[faulty\]"):
        guest.boot(time_limit=20.0)
    assert qemus_in(tmp_path) == []
