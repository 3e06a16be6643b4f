# SPDX-License-Identifier: GPL-2.0-only
"""Does a djprobe come and go under load on two CPUs, cycle after cycle, without a lost hit or a complaint?

``--cycles N`` makes the test as long as wanted: ``./lab test tests/qemu/test_djprobe_stress.py --cycles 500``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from djprobe_trial import NAME, Trial, insert, trial_module
from module_maker import ModuleMaker

from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.kernels import kernels
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import check_taint
from orchestrator.probes.symbols import Symbols

CALLS = 200
"""Exact calls on each CPU in each cycle."""
RELOADED_EVERY = 3
"""Cycles after which the module is loaded anew with its probe."""

_SCRIPTS = Path(__file__).with_name("guest")
_PROBED = {"i386": "__ia32_sys_gettimeofday", "x86_64": "__x64_sys_gettimeofday"}


@dataclass(frozen=True)
class Place:
    """Where the probe goes, and what is there without it."""

    symbol: str
    offset: int
    address: int
    original: bytes


@pytest.mark.kernels("lab-i386-smp")
@pytest.mark.guest(kernel="lab-i386-smp", cpu="pentium4", smp=2, timing="tcg")
def test_a_kernel_that_is_not_preemptible_bears_it(
    guest: Guest, guest_kernel: Kernel, modules: ModuleMaker, pytestconfig: pytest.Config
) -> None:
    stress(guest, guest_kernel, modules, pytestconfig.getoption("cycles"))


@pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", smp=2, timing="tcg")
def test_a_preemptible_kernel_bears_it(
    guest: Guest, guest_kernel: Kernel, modules: ModuleMaker, pytestconfig: pytest.Config
) -> None:
    stress(guest, guest_kernel, modules, pytestconfig.getoption("cycles"))


def stress(guest: Guest, kernel: Kernel, modules: ModuleMaker, cycles: int) -> None:
    """Let the probe come and go ``cycles`` times."""
    module = trial_module(modules)
    place = place_in(guest, kernel)
    for script in ("exact_calls.sh", "busy_calls.sh"):
        guest.put(_SCRIPTS / script, f"/tmp/{script}", mode=0o755)
    guest.succeed(["cp", "/bin/gtodbench", "/tmp/exact"])
    guest.succeed(["/tmp/busy_calls.sh"])

    began = time.monotonic()
    hits = [0, 0]
    insert(guest, module)
    for cycle in range(cycles):
        reload = cycle % RELOADED_EVERY == RELOADED_EVERY - 1
        seen = by_module(guest, module, place) if reload else by_parameter(guest, place)
        hits = [before + now for before, now in zip(hits, seen, strict=True)]
        assert guest.read_memory(place.address, len(place.original)) == place.original, f"cycle {cycle}"
        guest.check_console()
    guest.succeed(["rmmod", NAME])
    guest.succeed(["killall", "gtodbench"])

    check_taint(int(guest.get("/proc/sys/kernel/tainted")))
    guest.check_console()
    print(f"{kernel.spec.name}: {cycles} cycles, {time.monotonic() - began:.0f} s, hits {hits[0]} + {hits[1]}")


def place_in(guest: Guest, kernel: Kernel) -> Place:
    """The first instruction of gettimeofday that can be probed."""
    spec = kernels()[kernel.spec.name]
    symbol, offset = _PROBED[spec.arch], spec.entry_offset
    address = Symbols.of(guest).address(symbol) + offset
    return Place(symbol, offset, address, guest.read_memory(address, 16))


def by_parameter(guest: Guest, place: Place) -> list[int]:
    """One cycle within a load of the module; hits on each CPU."""
    trial = Trial(guest)
    before = trial.counts()
    trial.put(0, place.symbol, place.offset)
    check_exact_calls(trial, place)
    trial.take(0)
    return gone(before, trial.counts())


def by_module(guest: Guest, module: Module, place: Place) -> list[int]:
    """One cycle with the module's own load; it stays loaded, without a probe, afterwards."""
    guest.succeed(["rmmod", NAME])
    insert(guest, module, [f"symbol={place.symbol}", f"offset={place.offset}"])
    trial = Trial(guest)
    check_exact_calls(trial, place)
    hits = trial.counts()
    guest.succeed(["rmmod", NAME])
    assert guest.read_memory(place.address, len(place.original)) == place.original
    insert(guest, module)
    return hits


def check_exact_calls(trial: Trial, place: Place) -> None:
    """Both CPUs make their calls at once, and each hit is counted, on the CPU where it was."""
    assert trial.guest.read_memory(place.address, 1) == b"\xe9"
    everybody, exact = trial.counts(), trial.counts("exact")
    trial.guest.succeed(["/tmp/exact_calls.sh", str(CALLS)])
    assert gone(exact, trial.counts("exact")) == [CALLS, CALLS]
    # Else there was no load.
    assert min(gone(everybody, trial.counts())) > CALLS


def gone(before: list[int], after: list[int]) -> list[int]:
    """How much more it has become on each CPU."""
    return [now - then for then, now in zip(before, after, strict=True)]
