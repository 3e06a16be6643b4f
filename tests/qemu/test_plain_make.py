# SPDX-License-Identifier: GPL-2.0-only
"""Can a kernel engineer build and use the modules with make alone, against a kernel's build tree?"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from elsewhere import ELSEWHERE
from gettimeofday import gettimeofday

from orchestrator.artifacts.compiler import build_environment
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.guest.guest import Guest
from orchestrator.paths import data_dir
from orchestrator.probes.evidence import check_taint

CALLS = 500
MODULES = ["djprobe", "djprobe_example", "jprobe", "marker", "marker_example"]
MACHINES = {"lab-i386-up": "pentium4", "lab-x86_64-smp": "xeon-e5410"}
EVERY_NIGHT = {"debian-686": "pentium4", "debian-amd64": "xeon-e5410"}


def on(machines: dict[str, str], *marks: pytest.MarkDecorator) -> list[object]:
    """Parameters: these kernels, each in a guest that other tests use too."""
    return [
        pytest.param(
            name, marks=[*marks, pytest.mark.kernels(name), pytest.mark.guest(kernel=name, cpu=cpu, timing="tcg")]
        )
        for name, cpu in machines.items()
    ]


KERNELS = [*on(MACHINES), *on(EVERY_NIGHT, ELSEWHERE)]


def build_tree(kernel: Kernel, folder: Path) -> Path:
    """A build tree as an installed package has it: that of an unpacked one names a makefile below /usr/src."""
    if kernel.headers_makefile.parent == kernel.headers:
        return kernel.headers
    folder.mkdir()
    for file in kernel.headers.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "Makefile").unlink()
    (folder / "Makefile").write_text(f"include {kernel.headers_makefile}\n")
    return folder


def copied(folder: Path) -> Path:
    """The modules' sources, without what make may have left beside them."""
    made = shutil.ignore_patterns(".*", "*.o", "*.ko", "*.mod", "*.mod.c", "modules.order", "Module.symvers")
    return Path(shutil.copytree(data_dir("kmods"), folder, ignore=made))


def make(sources: Path, tree: Path, tools: Sequence[str], *targets: str) -> str:
    """Call make, as the README says; what the compiler complains of."""
    environment = {name: value for name, value in build_environment().items() if value is not None}
    argv = ["make", "-C", str(sources), f"KDIR={tree}", *tools, *targets]
    finished = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stderr


def passed(guest: Guest, connected: str) -> int:
    """What the example's probe has added up after three more passes of its marker."""
    folder = "/sys/module/marker_example/parameters"
    guest.put(connected.encode(), f"{folder}/connected")
    guest.put(b"3", f"{folder}/pass")
    (line,) = guest.get(f"{folder}/markers").decode("ascii").splitlines()
    assert re.fullmatch(rf"example_passed optimized {'connected' if connected == '1' else '-'} \w+ \w+ %u %s", line)
    return int(guest.get(f"{folder}/sum"))


@pytest.mark.nightly("builds all modules by make alone: ten seconds")
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_djprobe_built_by_make_alone_is_hit(
    kernel: str, shared_guest: Guest, guest_kernel: Kernel, tmp_path: Path
) -> None:
    sources = copied(tmp_path / "kmods")
    files = set(sources.rglob("*"))
    tree, tools = build_tree(guest_kernel, tmp_path / "tree"), guest_kernel.toolchain.for_make()
    complaints = make(sources, tree, tools)
    assert not re.search(r"warning|error", complaints, re.IGNORECASE), complaints
    assert sorted(file.stem for file in sources.glob("*.ko")) == MODULES

    mark = shared_guest.console.length()
    for file in sources.glob("*.ko"):
        shared_guest.put(file, f"/tmp/{file.name}")
    symbol = benchmarks()["gtodbench"].symbols[guest_kernel.spec.arch]["auto"]
    shared_guest.fail(["insmod", "/tmp/djprobe_example.ko", f"symbol={symbol}"])  # its functions are djprobe's
    for name in ("djprobe", "jprobe", "marker"):
        shared_guest.succeed(["insmod", f"/tmp/{name}.ko"])
    shared_guest.succeed(["insmod", "/tmp/djprobe_example.ko", f"symbol={symbol}"])
    gettimeofday(guest_kernel.spec.arch).call(shared_guest, CALLS, caller=None, time_limit=60)
    assert int(shared_guest.get("/sys/module/djprobe_example/parameters/hits")) == CALLS
    shared_guest.fail(["rmmod", "djprobe"])  # in use
    shared_guest.succeed(["insmod", "/tmp/marker_example.ko"])
    assert [passed(shared_guest, connected) for connected in "0110"] == [0, 6, 12, 12]
    for name in ("marker_example", "djprobe_example", "djprobe", "jprobe", "marker"):
        shared_guest.succeed(["rmmod", name])
    shared_guest.check_console(mark)
    check_taint(int(shared_guest.get("/proc/sys/kernel/tainted")))

    make(sources, tree, tools, "clean")
    assert set(sources.rglob("*")) == files
