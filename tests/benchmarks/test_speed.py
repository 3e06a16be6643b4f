# SPDX-License-Identifier: GPL-2.0-only
"""How fast is the lab itself? Printed as ratios against a floor in the same run; nothing here asserts a time.

Opt-in: ./lab test tests/benchmarks
"""

from __future__ import annotations

import dataclasses
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.initramfs import initramfs
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernels
from orchestrator.errors import GuestPanic
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import ChannelKind, Machine, Timing
from orchestrator.run.guest_start import start_guest
from orchestrator.run.machines import machine_for

ROUNDS = 5
MEGABYTES = {"framed": 20, "ssh": 20, "serial": 2}


def processor_seconds(pid: int) -> float:
    """What a process has used so far, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@pytest.mark.qemu
@pytest.mark.parametrize("timing", ["tcg", "instructions"])
@pytest.mark.parametrize("kernel_name", ["lab-i386-up", "debian-686"])
def test_boot_to_first_command(
    kernel_name: str, timing: Timing, workshop: BuildContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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


@pytest.mark.qemu
@pytest.mark.parametrize("kernel_name", ["lab-i386-up", "debian-686"])
def test_restored_to_first_command(
    kernel_name: str, workshop: BuildContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A guest that is restored and checked, to its first command, against one that is booted; the aim is 0.4 s."""
    kernel = ready_kernel(workshop, kernels()[kernel_name])
    machine = machine_for(workshop, kernel, GuestSpec(cpu="pentium4", timing="instructions"))
    start_guest(workshop, Guest(machine, tmp_path)).kill()  # it is saved now
    cpu_seconds: dict[bool, list[float]] = {False: [], True: []}

    def command(*, fresh: bool) -> None:
        with start_guest(workshop, Guest(machine, tmp_path), fresh=fresh) as guest:
            guest.succeed(["true"])
            assert guest.pid is not None
            cpu_seconds[fresh].append(processor_seconds(guest.pid))

    pairs = [(seconds(lambda: command(fresh=True)), seconds(lambda: command(fresh=False))) for _ in range(ROUNDS)]
    booted, restored = (statistics.median(column) for column in zip(*pairs, strict=True))
    of_boot, of_restore = (statistics.median(cpu_seconds[fresh]) for fresh in (True, False))
    with capsys.disabled():
        print(f"\n{kernel_name}: booted {booted:.2f} s, restored {restored:.2f} s, ratio {restored / booted:.3f}")
        print(f"QEMU's CPU: booted {of_boot:.2f} s, restored {of_restore:.2f} s, ratio {of_restore / of_boot:.3f}")


@pytest.mark.qemu
def test_boot_to_ssh(workshop: BuildContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A Debian guest with the small init, to its first command over SSH, against the agent's first command in it."""
    kernel = ready_kernel(workshop, kernels()["lab-i386-up"])

    def boot(channel: ChannelKind) -> None:
        spec = GuestSpec(cpu="pentium4", timing="tcg", image="debian-i386", channel=channel)
        machine = machine_for(workshop, kernel, spec)
        with Guest(machine, tmp_path) as guest:
            guest.succeed(["true"])

    pairs = [(seconds(lambda: boot("framed")), seconds(lambda: boot("ssh"))) for _ in range(ROUNDS)]
    low, full = (statistics.median(column) for column in zip(*pairs, strict=True))
    with capsys.disabled():
        print(f"\nimage: to the agent's command {low:.2f} s, to SSH's {full:.2f} s, ratio {full / low:.2f}")


@pytest.mark.parametrize(
    "channel",
    [
        pytest.param(channel, marks=pytest.mark.guest(kernel="lab-i386-up", image=image, channel=channel, timing="tcg"))
        for channel, image in (("framed", None), ("ssh", "debian-i386"), ("serial", "debian-i386"))
    ],
)
def test_the_channel(shared_guest: Guest, channel: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Round trips of `true` against those of a frame alone, and megabytes both ways."""
    megabytes = MEGABYTES[channel]
    content = random.Random(1).randbytes(megabytes << 20)
    runs = [seconds(lambda: shared_guest.succeed(["true"])) for _ in range(20)]
    frames = [seconds(lambda: shared_guest.get("/proc/sys/kernel/ostype")) for _ in range(20)]
    into = seconds(lambda: shared_guest.put(content, "/tmp/content", time_limit=600))
    out = seconds(lambda: shared_guest.get("/tmp/content", time_limit=600))
    run, frame = statistics.median(runs), statistics.median(frames)
    with capsys.disabled():
        print(f"\n{channel}: true {run * 1e3:.1f} ms, a small file {frame * 1e3:.1f} ms, ratio {run / frame:.1f}")
        print(f"{megabytes / into:.2f} MB/s in, {megabytes / out:.2f} MB/s out")


def test_the_plugin_in_a_session_without_guests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A session of one test with the plugin and without it; the aim is 30 ms."""
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nothing.py"]

    def session(*options: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*argv, *options], cwd=tmp_path, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(session("-p", "no:orchestrator"), session()) for _ in range(2 * ROUNDS)]
    without, with_it = (statistics.median(column) for column in zip(*pairs, strict=True))
    with capsys.disabled():
        print(f"\npytest: {without * 1e3:.0f} ms of CPU, with the plugin {(with_it - without) * 1e3:+.0f} ms")


@pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg", memory="128M")
@pytest.mark.parametrize("number", range(100))
def test_a_hundred_clean_guests(guest: Guest, number: int) -> None:
    """The aim is 40 s for all of them, with -n 2 on two idle cores: ./lab test tests/benchmarks -k hundred -n 2."""
    guest.succeed(["true"])
