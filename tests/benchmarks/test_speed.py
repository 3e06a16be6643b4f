# SPDX-License-Identifier: GPL-2.0-only
"""How fast is the lab itself? Printed as ratios against a floor in the same run; nothing here asserts a time.

Opt-in: ./lab test tests/benchmarks
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.artifacts.initramfs import initramfs
from orchestrator.artifacts.kernels import ready_kernel
from orchestrator.artifacts.workshop import Workshop
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernels
from orchestrator.errors import GuestPanic
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine, Timing

ROUNDS = 5
MEGABYTES = 20


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@pytest.mark.qemu
@pytest.mark.parametrize("timing", ["tcg", "instructions"])
@pytest.mark.parametrize("kernel_name", ["lab-i386-up", "debian-686"])
def test_boot_to_first_command(
    kernel_name: str, timing: Timing, workshop: Workshop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against the floor: the same machine and kernel with a first program that ends at once."""
    kernel = ready_kernel(workshop, kernels()[kernel_name])
    image = initramfs(workshop, kernel)
    machine = Machine(cpu("pentium4"), kernel.image, image, timing=timing, drivers_built_in=kernel.drivers_built_in)
    bare = dataclasses.replace(machine, extra_parameters=("rdinit=/bin/true",))

    def floor() -> None:
        with pytest.raises(GuestPanic, match="panicked while booting"):
            Guest(bare, tmp_path).boot()

    def command() -> None:
        with Guest(machine, tmp_path) as guest:
            guest.succeed(["true"])

    # Interleaved, so that a busy moment of the host falls on both.
    pairs = [(seconds(floor), seconds(command)) for _ in range(ROUNDS)]
    low, full = (statistics.median(column) for column in zip(*pairs, strict=True))
    with capsys.disabled():
        print(f"\n{kernel_name}, {timing}: floor {low:.2f} s, to first command {full:.2f} s, ratio {full / low:.2f}")


@pytest.mark.guest(timing="tcg")
def test_the_channel(guest: Guest, capsys: pytest.CaptureFixture[str]) -> None:
    """Round trips of `true` against those of a frame alone, and megabytes both ways."""
    content = bytes(MEGABYTES << 20)
    runs = [seconds(lambda: guest.succeed(["true"])) for _ in range(50)]
    frames = [seconds(lambda: guest.get("/proc/sys/kernel/ostype")) for _ in range(50)]
    into = seconds(lambda: guest.put(content, "/tmp/content"))
    out = seconds(lambda: guest.get("/tmp/content"))
    run, frame = statistics.median(runs), statistics.median(frames)
    with capsys.disabled():
        print(f"\ntrue {run * 1e3:.1f} ms, a small file {frame * 1e3:.1f} ms, ratio {run / frame:.1f}")
        print(f"{MEGABYTES / into:.0f} MB/s in, {MEGABYTES / out:.0f} MB/s out")
