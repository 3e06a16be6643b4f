# SPDX-License-Identifier: GPL-2.0-only
"""Is each variant of the lab's kernels what its name promises, and does a user's build tree work as well?"""

from __future__ import annotations

import struct
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from command_line import CommandLine
from elftools.elf.elffile import ELFFile

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernel_config import features
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernel, kernels
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.guest import Guest
from orchestrator.run.machines import machine_for

pytestmark = pytest.mark.qemu

BUILT = [name for name, spec in kernels().items() if spec.source is not None]
IN_CACHE = [pytest.param(name, marks=pytest.mark.kernels(name)) for name in BUILT]


@pytest.mark.parametrize("name", IN_CACHE)
def test_a_variant_is_what_its_name_says(workshop: BuildContext, tmp_path: Path, name: str) -> None:
    spec, variant = kernels()[name], name.partition("@")[0]
    built = ready_kernel(workshop, spec)
    can = features(built.config)
    assert can == {
        "booster": "no" if "-preempt" in variant else "yes",
        "optprobes": "yes",
        "ftrace": "yes" if variant.endswith(("-ftrace", "-bpf")) else "no",
        "preemption": "full" if "-preempt" in variant else "none",
        "hook": "yes" if variant.endswith("-hook") else "no",
        "markers": "yes" if variant.endswith("-markers") else "no",
        "kprobe lists": "2^12" if "-kpcache" in variant or "-hash12" in variant else "2^6",
        "kprobe cache": "yes" if "-kpcache" in variant else "no",
        "HZ": "100",
        "SMP": "yes" if "-smp" in variant else "no",
    }
    model = cpu("xeon-e5410" if spec.needs_long_mode else "pentium-m")
    machine = machine_for(workshop, built, GuestSpec(kernel=spec.name, cpu=model.name, timing="instructions"))
    with Guest(machine, tmp_path) as guest:
        assert guest.succeed(["uname", "-r"]).text.strip() == built.release
        symbols = guest.get("/proc/kallsyms").decode()
        assert (" lab_syscall_hook\n" in symbols) == variant.endswith("-hook")
        assert (" kunit_run_tests\n" in symbols) == variant.endswith("-kunit")
        assert (" kernel_marker_connect\n" in symbols) == variant.endswith("-markers")
        assert (" get_kprobe_cached\n" in symbols) == ("-kpcache" in variant)
        before, after = (guest.succeed(["sh", "-c", f"sleep {s}; cat /proc/uptime"]).text.split()[0] for s in (0, 3))
        assert Decimal(after) - Decimal(before) >= 3  # a 32-bit program asks for time in 32 bits


@pytest.mark.kernels("lab-i386-smp")
@pytest.mark.parametrize(("smp_kernel", "prefix"), [(True, 0xF0), (False, 0x3E)])
def test_a_kernel_parameter_keeps_lock_prefixes(
    workshop: BuildContext, tmp_path: Path, smp_kernel: bool, prefix: int
) -> None:
    """Without the parameter the same kernel on one CPU overwrites them with another prefix that does nothing."""
    built = ready_kernel(workshop, kernels()["lab-i386-smp"])
    machine = machine_for(workshop, built, GuestSpec(cpu="pentium4", timing="instructions"))
    with Guest(replace(machine, smp_kernel=smp_kernel), tmp_path) as guest:
        prefixes = {guest.read_memory(address, 1)[0] for address in lock_prefixes(built.headers / "vmlinux")[:200:10]}
    freed = 0xCC  # what the kernel fills the text with that it needed for booting only
    assert prefixes - {freed} == {prefix}


def lock_prefixes(vmlinux: Path) -> list[int]:
    """The addresses of the kernel's lock prefixes: a table of distances, each from its own place."""
    with vmlinux.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".smp_locks")
        assert section is not None
        places = range(section["sh_addr"], section["sh_addr"] + section["sh_size"], 4)
        distances = [entry for (entry,) in struct.iter_unpack("<i", section.data())]
    return [place + distance for place, distance in zip(places, distances, strict=True)]


def test_a_build_tree_of_one_s_own_is_booted_and_probed(workshop: BuildContext, tmp_path: Path) -> None:
    tree = tmp_path / "my-linux"
    tree.symlink_to(ready_kernel(workshop, kernels()["lab-i386-up"]).headers)
    command = CommandLine(tmp_path / "lab")
    file = tmp_path / "own.yaml"
    file.write_text(
        "name: own\nkernels: [./my-linux]\nmachines: [{cpu: pentium4}]\nprobes: [none, kprobe, djprobe]\n"
        "benchmark: {name: gtodbench, calls: 500, repeats: 2}\n"
    )
    run = command.run("run", file)
    assert run.returncode == 0, run.stdout + run.stderr
    cells = command.cells()
    name = kernel(str(tree)).name
    assert {cell.kernel for cell in cells.values()} == {name}
    assert {probe: cell.evidence.hits for probe, cell in cells.items() if cell.evidence} == {
        "none": 0,
        "kprobe": 1000,
        "djprobe": 1000,
    }
    built = command.run("kmod", "build", "kprobe", "--kernel", tree, "--out", tmp_path)
    assert built.returncode == 0, built.stderr
    image = tree / "arch/x86/boot/bzImage"
    done = command.run("exec", "--kernel", image, "--module", tmp_path / "lab_kprobe.ko", "--", "cat", "/proc/modules")
    assert (done.returncode, done.stdout.split()[0]) == (0, "lab_kprobe")
    nowhere = command.run("exec", "--kernel", "./nowhere", "--", "true")
    assert (nowhere.returncode, "this kernel image or build tree does not exist" in nowhere.stderr) == (2, True)
