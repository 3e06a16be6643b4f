# SPDX-License-Identifier: GPL-2.0-only
"""Is what is wrong with points and CPUs said before anything boots, once for all cells, with its place in the file?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import CommandLine
from experiment_boot import artifacts_of, boot_of

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.guest.accelerator import known_kvm_speed
from orchestrator.run.benchmark_kind import Ready, Refused

pytestmark = pytest.mark.qemu

WRONG = """\
name: wrong
kernels: [lab-i386-up, debian-686]
machines: [{cpu: pentium4}]
probes: [kprobe, djprobe]
handlers: [noop, record]
points:
  - vfs_raed
  - vfs_read+0x2
  - vfs_read+0xfffff
  - vfs_read
benchmark: {name: gtodbench, calls: 100}
"""
WORKLOAD = Path(__file__).with_name("workloads") / "reading.c"
SOME = """\
name: some
kernels: [%s]
machines: [{cpu: pentium4}]
probes: [none]
points: [vfs_read+0x1, vfs_read]
benchmark: {name: gtodbench, calls: 100}
"""


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "lab")


@pytest.mark.parametrize("option", ["--dry-run", "--offline"])
def test_points_that_no_kernel_has(command: CommandLine, tmp_path: Path, option: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(WRONG)
    done = command.refused("run", file, option)
    assert (done.returncode, done.stdout) == (2, "")
    # Of what differs from one version of Debian's kernel to the next, only that it is there.
    lines = re.sub(r"has 0x[0-9a-f]+ bytes", "has SIZE bytes", done.stderr).splitlines()
    beyond = "vfs_read+0xfffff is beyond the end of vfs_read, which has SIZE bytes"
    assert lines == [
        f"error: {file}: 3 problems",
        f"    {file}:7: points.0: found 'vfs_raed'; lab-i386-up, debian-686: it has no function vfs_raed of its own; "
        "did you mean vfs_read or vfs_write or vfs_rmdir?",
        f"    {file}:8: points.1: found 'vfs_read+0x2'; lab-i386-up: vfs_read+0x2 is inside the instruction at +0x1 "
        "(2 bytes): instructions begin at +0x0, +0x1, +0x3; debian-686: vfs_read+0x2 is inside the instruction at +0x0 "
        "(5 bytes): instructions begin at +0x0, +0x5",
        f"    {file}:9: points.2: found 'vfs_read+0xfffff'; lab-i386-up: {beyond}; debian-686: {beyond}",
    ]
    assert not list(command.lab.glob("runs/*"))
    # Of cells that are selected, none is at a wrong point.
    assert command.run("run", file, "--dry-run", "--only", "point=vfs_read").returncode == 0


def test_a_point_that_one_kernel_lacks(command: CommandLine, workshop: BuildContext, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(SOME % "lab-i386-up, debian-686")
    reason = "vfs_read+0x1 is inside the instruction at +0x0 (5 bytes): instructions begin at +0x0, +0x5"
    done = command.run("run", file, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "unsupported" in line] == [
        f"  pentium4/debian-686/none/noop/vfs_read+0x1  gtodbench: 4 x 100 calls, entry auto; unsupported: {reason}"
    ]
    file.write_text(SOME % "debian-686")
    prepared = artifacts_of(workshop, boot_of(file)).cells
    assert prepared["pentium4/debian-686/none/noop/vfs_read+0x1"] == Refused("unsupported", reason)
    assert isinstance(prepared["pentium4/debian-686/none/noop/vfs_read"], Ready)


def test_instructions_that_a_kind_of_probe_cannot_have(command: CommandLine, tmp_path: Path) -> None:
    """A jump of vfs_read that kprobes emulate, on a kernel of the lab's own, whose compiler is pinned."""
    file = tmp_path / "x.yaml"
    workload = f"{{name: workload, file: {WORKLOAD}, calls: 100, repeats: 2}}"
    probes = "none, kprobe, kprobe-boosted, kprobe-fallback, kprobe-optimized, kretprobe-boosted, djprobe"
    some = SOME.replace("[none]", f"[{probes}]").replace("[vfs_read+0x1, vfs_read]", "[vfs_read+0x18]")
    file.write_text(some.replace("{name: gtodbench, calls: 100}", workload) % "lab-i386-up")
    known = {
        "kretprobe-boosted": "a kretprobe is at a function's entry",
        "djprobe": "a djprobe is at the function's entry, at +0x0",
    }
    emulated = "the probed instruction is emulated, and for {} it must be {}"
    asked = {
        "kprobe": emulated.format("kprobe", "single-stepped"),
        "kprobe-boosted": emulated.format("kprobe-boosted", "boosted"),
        "kprobe-fallback": emulated.format("kprobe-fallback", "single-stepped"),
        "kprobe-optimized": "this kernel puts no jump in place of a kprobe's int3 here",
    }
    planned = command.run("run", file, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    reasons = [line.partition("; unsupported: ")[2] for line in planned.stdout.splitlines() if "/vfs_read+" in line]
    assert set(known.values()) <= set(reasons)  # earlier guests may have answered, too
    assert "# points: vfs_read+0x18: which probes an instruction accepts shows only when it is tried" in planned.stdout
    # What a dry run does not know, the kernel answers.
    done = command.run("run", file)
    assert done.returncode == 0, done.stderr
    cells = command.cells()
    assert cells.pop("none").status == "ok"
    assert {cell.status for cell in cells.values()} == {"unsupported"}
    assert set(cells) == {*known, *asked}
    for probe, reason in {**known, **asked}.items():
        assert reason in (cells[probe].reason or "")
    # Once a guest has answered, a dry run knows it.
    planned = command.run("run", file, "--dry-run")
    for reason in (*known.values(), *asked.values()):
        assert f"; unsupported: {reason}" in planned.stdout


def test_a_kernel_that_is_not_in_the_cache(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(SOME % "lab-i386-up")
    command = CommandLine(tmp_path / "lab", {"ORCHESTRATOR_CACHE": str(tmp_path / "cache")})
    done = command.run("run", file, "--dry-run")
    assert done.returncode == 0, done.stderr
    unchecked = "# points not checked: kernel lab-i386-up is not in the cache, or its code is unreadable"
    assert done.stdout.splitlines()[-1] == unchecked


def test_a_module_for_a_wrong_place_is_not_built(command: CommandLine) -> None:
    build = ("kmod", "build", "kprobe", "--kernel", "lab-i386-up", "--offline", "--symbol")
    done = command.run(*build, "vfs_read", "--offset", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--symbol, --offset: kernel lab-i386-up: vfs_read+0x2 is inside the instruction at +0x1" in done.stderr
    # The module may be for a function of another module.
    done = command.run(*build, "of_another_module", "--offset", "0")
    assert (done.returncode, Path(done.stdout.strip()).suffix) == (0, ".ko")
    assert "note: kernel lab-i386-up: it has no function of_another_module of its own" in done.stderr


@pytest.mark.parametrize(("clock", "status"), [("instructions", 2), ("wall", 3)])
def test_the_hosts_own_cpu(command: CommandLine, tmp_path: Path, clock: str, status: int) -> None:
    if clock == "wall" and known_kvm_speed().usable:
        pytest.skip("this host has KVM, which gives guests its own CPU")
    file = tmp_path / "x.yaml"
    file.write_text(SOME.replace("pentium4", "host") % "lab-i386-up" + f"clock: {clock}\n")
    done = command.refused("run", file)
    assert (done.returncode, done.stdout) == (status, "")
    assert f"{file}:3: machines.0.cpu: CPU 'host' is this host's own, " in done.stderr
    assert "hint: name another CPU: orchestrator list cpus, or max" in done.stderr
    assert not list(command.lab.glob("runs/*"))
    accelerator = "instructions" if clock == "instructions" else "tcg"
    process = command.refused("exec", "--kernel", "lab-i386-up", "--cpu", "host", "--accel", accelerator, "--", "true")
    assert (process.returncode, process.stderr.count("CPU 'host' is this host's own, ")) == (status, 1)
