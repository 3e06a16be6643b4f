# SPDX-License-Identifier: GPL-2.0-only
"""Does a kernel with markers boot with none of them connected, and pass its arguments to a module's probe?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from module_maker import ModuleMaker

from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import GuestError
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import check_taint
from orchestrator.probes.loading import load

NAME = "kernel_marker_trial"
LIST = "/sys/module/kernel_markers/parameters/list"
KERNELS = {
    "lab-i386-smp-markers": ("pentium4", 2),
    "lab-i386-smp-preempt-markers": ("pentium4", 2),
    "lab-i386-up-markers": ("pentium4", 1),
    "lab-x86_64-smp-markers": ("xeon-e5410", 2),
}
PLACED = {
    "fs_close",
    "fs_open",
    "fs_read",
    "fs_write",
    "kernel_irq_entry",
    "kernel_irq_exit",
    "kernel_process_exec",
    "kernel_process_exit",
    "kernel_process_fork",
    "kernel_sched_switch",
    "kernel_syscall_entry",
    "kernel_syscall_exit",
    "kernel_trap_entry",
    "mm_handle_fault",
}
GETPPID = {"i386": 64, "x86_64": 110}
CALLS = 3000
CYCLES_FOR_ONE = 2
"""A cycle takes a second and a half on two busy CPUs."""


@dataclass(frozen=True)
class Place:
    """Where a marker's immediate value is loaded."""

    name: str
    connected: bool
    load: int


def places(listing: bytes) -> list[Place]:
    lines = listing.decode("ascii").splitlines()
    matches = [re.fullmatch(r"(\S+) optimized (-|connected) ([0-9a-f]+) [0-9a-f]+ %ld %p", line) for line in lines]
    assert all(matches), lines
    return [Place(match[1], match[2] == "connected", int(match[3], 16)) for match in matches if match is not None]


@dataclass(frozen=True)
class Trial:
    """The loaded trial module. What the kernel refuses is a GuestError."""

    guest: Guest
    getppid: int

    def write(self, parameter: str, value: str) -> None:
        self.guest.put(value.encode(), f"/sys/module/{NAME}/parameters/{parameter}")

    def hits(self) -> tuple[int, int]:
        """All, and those with ``number``."""
        every, matching = self.guest.get(f"/sys/module/{NAME}/parameters/hits").split()
        return int(every), int(matching)

    def loads(self, name: str) -> set[bytes]:
        """The live bytes of the instructions that load the immediate value of markers of that name."""
        return {self.guest.read_memory(place.load, 2) for place in places(self.guest.get(LIST)) if place.name == name}

    def call(self, calls: int = CALLS) -> None:
        """Call getppid exactly so often."""
        self.guest.succeed(["callbench", "-N", str(self.getppid), "-c", str(calls)])


@pytest.fixture(
    params=[
        pytest.param(name, marks=(pytest.mark.kernels(name), pytest.mark.guest(kernel=name, cpu=cpu, smp=smp)))
        for name, (cpu, smp) in KERNELS.items()
    ]
)
def marked(request: pytest.FixtureRequest, shared_guest: Guest) -> Guest:
    """A guest whose kernel has markers, before anything was connected by the test."""
    assert isinstance(request.param, str)
    return shared_guest


@pytest.fixture
def trial(marked: Guest, guest_kernel: Kernel, modules: ModuleMaker) -> Iterator[Trial]:
    mark = marked.console.length()
    load(marked, NAME, modules.rogue(NAME).file)
    yield Trial(marked, GETPPID[guest_kernel.spec.arch])
    marked.succeed(["rmmod", NAME])
    marked.check_console(mark)
    check_taint(int(marked.get("/proc/sys/kernel/tainted")))
    assert {marked.read_memory(place.load, 2) for place in places(marked.get(LIST))} == {b"\xb0\x00"}


def test_no_marker_is_connected_when_it_has_booted(marked: Guest) -> None:
    listed = places(marked.get(LIST))
    assert {place.name for place in listed} == PLACED
    assert not any(place.connected for place in listed)
    assert {marked.read_memory(place.load, 2) for place in listed} == {b"\xb0\x00"}
    assert len({place.load for place in listed}) == len(listed)


def test_a_known_program_s_calls_are_counted_one_by_one(trial: Trial) -> None:
    trial.write("number", str(trial.getppid))
    trial.write("connect", "kernel_syscall_entry %ld %p")
    assert trial.loads("kernel_syscall_entry") == {b"\xb0\x01"}
    assert trial.loads("kernel_syscall_exit") == {b"\xb0\x00"}
    trial.call()
    first = trial.hits()[1]
    trial.call(2 * CALLS)
    assert trial.hits()[1] - first == first + CALLS  # the same few others each time
    assert first - CALLS in (0, 1)
    trial.write("disconnect", "kernel_syscall_entry")
    assert trial.loads("kernel_syscall_entry") == {b"\xb0\x00"}
    every = trial.hits()
    trial.call()
    assert trial.hits() == every


@pytest.mark.parametrize("name", sorted(PLACED))
def test_every_marker_passes_its_arguments(trial: Trial, name: str) -> None:
    trial.write("connect", f"{name} %ld %p")
    assert trial.loads(name) == {b"\xb0\x01"}
    before = trial.hits()[0]
    trial.guest.succeed(["sh", "-c", "for i in 1 2 3; do cat /proc/interrupts >/tmp/o; sleep 0.1; done"])
    assert trial.hits()[0] > before
    trial.write("disconnect", name)
    assert trial.loads(name) == {b"\xb0\x00"}
    final = trial.hits()
    trial.guest.succeed(["cat", "/proc/interrupts"])
    assert trial.hits() == final


def test_what_does_not_fit_is_refused(trial: Trial) -> None:
    for wrong in ("kernel_lost %ld %p", "fs_read %d %p"):
        with pytest.raises(GuestError):
            trial.write("connect", wrong)
    trial.write("connect", "fs_read -")
    with pytest.raises(GuestError):
        trial.write("connect", "fs_read -")


def test_probes_come_and_go_while_the_markers_are_passed(trial: Trial, pytestconfig: pytest.Config) -> None:
    cycles = max(1, pytestconfig.getoption("cycles") // CYCLES_FOR_ONE)
    trial.guest.succeed(["sh", "-c", "(while :; do cat /proc/self/maps; done) >/dev/null 2>&1 & echo $! >/tmp/busy"])
    try:
        for _ in range(cycles):
            for name in sorted(PLACED):
                trial.write("connect", f"{name} -")
                trial.write("disconnect", name)
    finally:
        trial.guest.succeed(["sh", "-c", "kill $(cat /tmp/busy)"])
