# SPDX-License-Identifier: GPL-2.0-only
"""Is each way in which a guest's kernel fails known for what it is, with the function to blame?"""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from faulty_module import insert
from module_maker import ModuleMaker

from orchestrator.cpio_archive import Entry, archive
from orchestrator.errors import GuestError, GuestExit, GuestHang, GuestOops, GuestPanic
from orchestrator.guest.guest import Guest
from orchestrator.guest.interruption import is_stopped

pytestmark = [
    pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg"),
    pytest.mark.allow_oops("."),
]

EVERY_KERNEL = pytest.mark.guest(kernel=["lab-i386-up", "debian-686", "debian-amd64"], cpu="xeon-e5410")

SURVIVED = {
    "null": "oops in lab_fault_null [faulty]",
    "write": "oops in lab_fault_write [faulty]",
    "jump": "oops in lab_fault_jump [faulty]",
    "protection": "oops in lab_fault_protection [faulty]",
    "divide": "oops in lab_fault_divide [faulty]",
    "bug": "oops in lab_fault_bug [faulty]",
    "warn": "warning in lab_fault_warn [faulty]",
    "refcount": "warning in lab_fault_refcount [faulty]",
    "sleep": "oops in lab_fault_sleep [faulty]",
    "twice": "warning in lab_fault_twice [faulty]",
    "banner": "warning in lab_fault_banner [faulty]",
}
"""Faults of tests/qemu/modules/faulty.c, and what is said of them."""

PANIC = r"panicked in lab_fault_panic \[faulty\] while running insmod: this is only a test"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that has not answered for a moment is taken for dead."""
    monkeypatch.setattr("orchestrator.guest.framed.DEATH_LIMIT", 0.3)


@pytest.mark.parametrize("fault", ["null", "warn", "twice"])
def test_what_a_kernel_survives_names_the_function(guest: Guest, modules: ModuleMaker, fault: str) -> None:
    _survives(guest, modules, fault)


@pytest.mark.nightly("every form, on each kernel: two minutes")
@EVERY_KERNEL
@pytest.mark.parametrize("fault", [fault for fault in SURVIVED if fault != "sleep"])
def test_every_form_names_the_function(guest: Guest, modules: ModuleMaker, fault: str) -> None:
    _survives(guest, modules, fault)


@pytest.mark.nightly("on the kernels that count preemption (CONFIG_PREEMPT_COUNT)")
@pytest.mark.guest(kernel=["debian-686", "debian-amd64"], cpu="xeon-e5410")
def test_sleep_where_a_kernel_may_not_names_the_function(guest: Guest, modules: ModuleMaker) -> None:
    _survives(guest, modules, "sleep")


def _survives(guest: Guest, modules: ModuleMaker, fault: str) -> None:
    with pytest.raises(GuestOops, match=re.escape(SURVIVED[fault])) as oops:
        insert(guest, modules, fault)
    assert oops.value.detail
    assert guest.run(["true"]).status == 0


def test_a_panic_names_the_function(guest: Guest, modules: ModuleMaker) -> None:
    _panics(guest, modules, "panic", PANIC)


@pytest.mark.nightly("on each kernel: half a minute")
@EVERY_KERNEL
def test_a_panic_of_each_kernel_names_the_function(guest: Guest, modules: ModuleMaker) -> None:
    _panics(guest, modules, "panic", PANIC)


# 32-bit kernels have no guard page below a stack (CONFIG_VMAP_STACK): there anything may follow.
@pytest.mark.nightly("a kernel of 64 bit")
@pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410")
def test_a_stack_that_overflows_is_an_oops_before_the_panic(guest: Guest, modules: ModuleMaker) -> None:
    _panics(guest, modules, "stack", r"panicked in lab_fault_stack \[faulty\] while running insmod: Fatal exception")


def _panics(guest: Guest, modules: ModuleMaker, fault: str, what: str) -> None:
    with pytest.raises(GuestPanic, match=what) as panic:
        insert(guest, modules, fault)
    assert any("lab_fault_" in line for line in panic.value.detail)
    assert guest.pid is None


def test_a_loop_with_interrupts_off_is_found_by_an_nmi(guest: Guest, modules: ModuleMaker, impatient: None) -> None:
    _spins(guest, modules)


@pytest.mark.nightly("a kernel that faults without end slows QEMU's monitor down: a minute")
def test_a_kernel_that_does_not_answer_an_nmi_has_an_address(
    guest: Guest, modules: ModuleMaker, impatient: None
) -> None:
    with pytest.raises(GuestHang, match=r"it does not answer an NMI, and executes at d0[0-9a-f]{6}"):
        insert(guest, modules, "deaf", time_limit=1.0)


@pytest.mark.nightly("on each kernel: a minute")
@EVERY_KERNEL
def test_a_loop_is_found_on_each_kernel(guest: Guest, modules: ModuleMaker, impatient: None) -> None:
    _spins(guest, modules)


@pytest.mark.nightly("as above, on the exact clock")
@pytest.mark.guest(timing="instructions")
def test_a_loop_is_found_on_the_exact_clock(guest: Guest, modules: ModuleMaker, impatient: None) -> None:
    _spins(guest, modules)


def _spins(guest: Guest, modules: ModuleMaker) -> None:
    pid = guest.pid
    what = r"the guest hangs \(running insmod\): .* does not answer any more; its CPU is in lab_fault_spin \[faulty\]"
    with pytest.raises(GuestHang, match=what) as hang:
        insert(guest, modules, "spin", time_limit=1.0)
    assert any("lab_fault_spin" in line for line in hang.value.detail)
    assert hang.value.where == str(guest.console.path)
    guest.kill()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.usefixtures("impatient")
def test_a_qemu_that_is_stopped_is_no_kernel_that_hangs(shared_guest: Guest) -> None:
    _is_known_for_stopped(shared_guest)


@pytest.mark.usefixtures("impatient")
@pytest.mark.guest(timing="instructions")
def test_nor_is_one_that_was_stopped_while_its_guest_rested(shared_guest: Guest) -> None:
    monitor = shared_guest._qemu.monitor
    assert monitor is not None
    for _ in range(10_000):
        if monitor.status() == "paused":
            break
        time.sleep(0.01)
    _is_known_for_stopped(shared_guest)


def _is_known_for_stopped(guest: Guest) -> None:
    assert guest.pid is not None
    os.kill(guest.pid, signal.SIGSTOP)
    try:
        # A busy host stops it later: asked to go on before that, it would not answer for a minute.
        for _ in range(10_000):
            if is_stopped(guest.pid):
                break
            time.sleep(0.001)
        with pytest.raises(GuestHang, match="QEMU is stopped") as hang:
            guest.run(["true"], time_limit=1.0)
        assert hang.value.hint == f"kill -CONT {guest.pid}"
    finally:
        os.kill(guest.pid, signal.SIGCONT)
    assert guest.run(["true"]).status == 0


def test_a_reset_without_a_word_is_a_triple_fault(guest: Guest, modules: ModuleMaker) -> None:
    with pytest.raises(GuestExit, match=r"QEMU ended \(status 0\) while running insmod") as ended:
        insert(guest, modules, "triple")
    assert "triple fault" in ended.value.hint


def test_a_reset_that_was_asked_for_is_no_triple_fault(guest: Guest) -> None:
    with pytest.raises(GuestExit, match=r"QEMU ended \(status 0\) while running sh") as ended:
        guest.run(["sh", "-c", "echo b > /proc/sysrq-trigger"])
    assert "switched itself off" in ended.value.hint
    with pytest.raises(GuestExit, match=r"QEMU ended \(status 0\) while reading memory"):
        guest.read_memory(0xC1000000, 16)


def test_a_guest_without_memory_says_so(guest: Guest, modules: ModuleMaker) -> None:
    # insmod is killed first; the kernel panics then, or as soon as anything else needs a page.
    what = r"panicked(?: while [^:]+)?: System is deadlocked on memory|trouble \(out of memory: insmod was killed"
    with pytest.raises((GuestPanic, GuestOops), match=what) as lack:
        insert(guest, modules, "memory")
    assert "more memory" in lack.value.hint


@pytest.mark.nightly("fills a guest's memory: ten seconds")
def test_a_process_that_is_killed_for_its_memory_is_named(guest: Guest) -> None:
    assert guest.run(["tail", "/dev/zero"]).status == 128 + signal.SIGKILL
    guest.drain_console()
    with pytest.raises(GuestOops, match=r"trouble \(out of memory: tail was killed\)") as killed:
        guest.check_console()
    assert "more memory" in killed.value.hint
    assert guest.run(["true"]).status == 0


def test_an_init_that_ends_is_named(shared_guest: Guest, tmp_path: Path) -> None:
    # Of two archives in one initramfs the later one wins.
    script = (Path(__file__).parent / "guest" / "ending_init.sh").read_bytes()
    initramfs = tmp_path / "initramfs.cpio"
    initramfs.write_bytes(shared_guest.machine.initramfs.read_bytes() + archive([Entry.file("init", script)]))
    lost = Guest(replace(shared_guest.machine, initramfs=initramfs), tmp_path)
    with pytest.raises(GuestPanic, match=r"panicked while booting: process 1 \(init\) ended with status 7"):
        lost.boot()


def test_a_full_disk_in_the_guest_is_the_commands_failure(shared_guest: Guest) -> None:
    shared_guest.succeed(["mount", "-t", "tmpfs", "-o", "size=64k", "small", "/tmp"])
    filled = shared_guest.run(["dd", "if=/dev/zero", "of=/tmp/file", "bs=1k"])
    assert "No space left on device" in filled.stderr.decode()
    with pytest.raises(GuestError, match="cannot write /tmp/other: no space left on device"):
        shared_guest.put(bytes(1 << 17), "/tmp/other")
    shared_guest.succeed(["umount", "/tmp"])
