# SPDX-License-Identifier: GPL-2.0-only
"""Is each way in which a guest can end an error of its own, and is nothing left of it afterwards?"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path

import pytest
from command_line import qemus_in
from module_maker import ModuleMaker

from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.cpus import qemu_cpu
from orchestrator.catalog.probes import probes
from orchestrator.cpio_archive import Entry, archive
from orchestrator.errors import (
    EvidenceError,
    GuestConnectionLost,
    GuestError,
    GuestHang,
    GuestOops,
    GuestPanic,
    HostError,
)
from orchestrator.guest.guest import Guest, State
from orchestrator.guest.machine import Machine
from orchestrator.probes.arming import module_attached
from orchestrator.probes.evidence import check_taint
from orchestrator.probes.point import find_entry
from orchestrator.probes.symbols import Symbols

pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg")  # boots the quickest


def pid_of(guest: Guest) -> int:
    assert guest.pid is not None
    return guest.pid


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def load(guest: Guest, module: Module) -> int:
    """Insert a module, and return insmod's status."""
    target = f"/tmp/{module.name}.ko"
    guest.put(module.file, target)
    return guest.run(["insmod", target]).status


# --- the guest's kernel in trouble ----------------------------------------------------------------


@pytest.mark.allow_oops("this is only a test", "NULL pointer dereference")
def test_trouble_that_the_kernel_survives_is_reported_after_the_mark(guest: Guest, modules: ModuleMaker) -> None:
    guest.check_console()
    calm = guest.console.length()
    assert load(guest, modules.rogue("warning")) == 0
    with pytest.raises(
        GuestOops, match=r"^the guest's kernel reported trouble \(warning in warning_init \[warning\]\)"
    ) as warning:
        guest.check_console(calm)
    assert any("this is only a test" in line for line in warning.value.detail)
    check_taint(1 << 12 | 1 << 13)
    with pytest.raises(EvidenceError, match="tainted"):
        check_taint(int(guest.get("/proc/sys/kernel/tainted")))

    warned = guest.console.length()
    guest.check_console(warned)
    assert load(guest, modules.rogue("null_dereference")) != 0
    with pytest.raises(
        GuestOops, match=r"^the guest's kernel reported trouble \(oops in null_dereference_init \[null_dereference\]\)"
    ) as oops:
        guest.check_console(warned)
    assert any("BUG: kernel NULL pointer dereference" in line for line in oops.value.detail)
    assert guest.run(["echo", "alive"]).text == "alive\n"


@pytest.mark.allow_oops("NULL pointer dereference")
def test_a_probe_module_that_oopses_is_no_mere_refusal(
    guest: Guest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    symbol = "__ia32_sys_gettimeofday"
    symbols = Symbols.of(guest)
    point = find_entry(guest, symbols, symbol, guest_kernel.entry_offset(symbol))
    with (
        pytest.raises(
            GuestOops,
            match=r"^the guest's kernel reported trouble \(oops in null_dereference_init \[null_dereference\]\)",
        ),
        module_attached(guest, probes()["kprobe"], modules.rogue("null_dereference"), point, symbols),
    ):
        pytest.fail("the module was loaded")


# --- QEMU in trouble ------------------------------------------------------------------------------


def test_a_guest_that_stands_still_for_a_while_goes_on(shared_guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.guest.framed.DEATH_LIMIT", 0.5)
    pid = pid_of(shared_guest)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(GuestHang):
            shared_guest.run(["echo", "late"], time_limit=0.5)
    finally:
        os.kill(pid, signal.SIGCONT)
    # The late reply is not taken for that of the next command.
    assert shared_guest.run(["echo", "in time"]).text == "in time\n"


def test_a_cpu_that_qemu_does_not_have_is_quoted(shared_guest: Guest, tmp_path: Path) -> None:
    refused = Guest(dataclasses.replace(shared_guest.machine, cpu=qemu_cpu("pentium4000")), tmp_path)
    with pytest.raises(HostError, match=r"QEMU ended \(status 1\) before it had made the guest's machine") as ended:
        refused.boot()
    assert any("unable to find CPU model 'pentium4000'" in line for line in ended.value.detail)
    assert (refused.state, refused.pid) == (State.GONE, None)


# --- boots that come to nothing -------------------------------------------------------------------


def test_a_boot_that_takes_too_long_is_a_hang_and_leaves_nothing(shared_guest: Guest, tmp_path: Path) -> None:
    mute = Guest(_with_agent(shared_guest.machine, tmp_path, "mute.sh"), tmp_path)
    with pytest.raises(GuestHang, match=r"the guest hangs \(booting\)"):
        mute.boot(time_limit=0.3)
    assert (mute.state, mute.pid) == (State.GONE, None)
    assert qemus_in(tmp_path) == []


def test_a_kernel_that_finds_no_init_is_a_panic(shared_guest: Guest, tmp_path: Path) -> None:
    machine = dataclasses.replace(shared_guest.machine, extra_parameters=("rdinit=/bin/false",))
    lost = Guest(machine, tmp_path)
    with pytest.raises(GuestPanic, match="panicked while booting") as panic:
        lost.boot()
    assert any("Attempted to kill init!" in line for line in panic.value.detail)
    assert qemus_in(tmp_path) == []


def test_an_agent_that_talks_nonsense_is_a_lost_connection(shared_guest: Guest, tmp_path: Path) -> None:
    impostor = Guest(_with_agent(shared_guest.machine, tmp_path, "impostor.sh"), tmp_path)
    with pytest.raises(
        GuestConnectionLost, match=r"lost the connection to the guest while booting: .*; QEMU is still running"
    ):
        impostor.boot()
    assert (impostor.state, impostor.pid) == (State.GONE, None)
    assert qemus_in(tmp_path) == []


def _with_agent(machine: Machine, directory: Path, name: str) -> Machine:
    """The machine with another agent: of two archives in one initramfs the later one wins."""
    script = Path(__file__).with_name("guest") / name
    both = machine.initramfs.read_bytes() + archive([Entry.file("bin/agent", script.read_bytes())])
    initramfs = directory / "initramfs.cpio"
    initramfs.write_bytes(both)
    return dataclasses.replace(machine, initramfs=initramfs)


# --- several, and in the wrong order --------------------------------------------------------------


def test_two_guests_at_once_do_not_meet(shared_guest: Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Guest(shared_guest.machine, tmp_path, "second") as second:
        pid = pid_of(second)
        assert pid != shared_guest.pid
        shared_guest.put(b"first", "/tmp/who")
        second.put(b"second", "/tmp/who")
        assert (shared_guest.get("/tmp/who"), second.get("/tmp/who")) == (b"first", b"second")
        with pytest.raises(GuestError, match=r"^a guest that is ready cannot be booted$"):
            second.boot()
        assert second.run(["true"]).status == 0

        monkeypatch.setattr("orchestrator.guest.guest.DYING_LIMIT", 600.0)
        process = second._qemu.process
        assert process is not None
        second.power_off()
        assert process.poll() == 0  # it ended by itself, and was not killed at the limit
        assert not is_alive(pid)
        assert second.state is State.GONE
        for misuse in (second.boot, lambda: second.run(["true"]), lambda: second.read_memory(0, 1)):
            with pytest.raises(GuestError, match=r"^a guest that is gone "):
                misuse()
        second.kill()
    assert shared_guest.run(["true"]).status == 0


@pytest.mark.guest(timing="instructions")
def test_for_a_paused_guest_no_time_passes(shared_guest: Guest, guest_kernel: Kernel) -> None:
    clock = Symbols((guest_kernel.headers / "System.map").read_bytes()).anywhere("jiffies")
    assert clock is not None

    def await_tick(before: bytes) -> None:
        """The clock of a guest that is awake jumps from one timer to the next."""
        with shared_guest.awake():
            for _ in range(10_000):
                if shared_guest.read_memory(clock, 4) != before:
                    return
                time.sleep(0.01)
        pytest.fail("the guest's clock stands still")

    await_tick(shared_guest.read_memory(clock, 4))
    shared_guest.pause()
    assert shared_guest.state is State.PAUSED
    stopped, burnt = shared_guest.read_memory(clock, 4), cpu_seconds(pid_of(shared_guest))
    time.sleep(0.5)
    assert cpu_seconds(pid_of(shared_guest)) - burnt < 0.1
    assert shared_guest.read_memory(clock, 4) == stopped
    for misuse in (shared_guest.pause, shared_guest.boot, lambda: shared_guest.run(["true"])):
        with pytest.raises(GuestError, match=r"^a guest that is paused "):
            misuse()
    shared_guest.resume()
    await_tick(stopped)
    with pytest.raises(GuestError, match=r"^a guest that is ready cannot become ready$"):
        shared_guest.resume()


@pytest.mark.guest(timing="instructions")
def test_a_guest_of_which_nothing_is_asked_rests_until_something_is(shared_guest: Guest, guest_kernel: Kernel) -> None:
    clock = Symbols((guest_kernel.headers / "System.map").read_bytes()).anywhere("jiffies")
    assert clock is not None
    monitor = shared_guest._qemu.monitor
    assert monitor is not None
    shared_guest.succeed(["true"])
    for _ in range(10_000):
        if monitor.status() == "paused":
            break
        time.sleep(0.01)
    else:
        pytest.fail("the guest does not rest")
    before = shared_guest.read_memory(clock, 4)
    time.sleep(0.1)
    assert shared_guest.read_memory(clock, 4) == before
    assert shared_guest.succeed(["echo", "awake"]).text == "awake\n"
    with shared_guest.awake():
        time.sleep(0.1)
        assert monitor.status() == "running"
    assert shared_guest.read_memory(clock, 4) != before


def cpu_seconds(pid: int) -> float:
    """The CPU time a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_guest_that_was_never_booted(shared_guest: Guest, tmp_path: Path) -> None:
    off = Guest(shared_guest.machine, tmp_path)
    assert (off.state, off.pid, off.console.length()) == (State.OFF, None, 0)
    with pytest.raises(GuestError, match=r"^a guest that is off accepts no commands$"):
        off.run(["true"])


# --- the machine's memory -------------------------------------------------------------------------


@pytest.mark.guest(kernel="debian-686")
def test_memory_is_read_from_outside(shared_guest: Guest) -> None:
    entry = Symbols.of(shared_guest).address("__ia32_sys_gettimeofday")
    # The function tracer's nop, and what every function of this kernel begins with behind it.
    assert shared_guest.read_memory(entry, 8) == bytes.fromhex("3e8d742600 5589e5")


@pytest.mark.parametrize(("address", "size"), [(0x10, 16), (0xC1000000, 0), (0xC1000000, 1 << 30), (-1, 1)])
def test_memory_that_is_not_there(shared_guest: Guest, address: int, size: int) -> None:
    with pytest.raises(GuestError):
        shared_guest.read_memory(address, size)
    assert shared_guest.run(["true"]).status == 0
