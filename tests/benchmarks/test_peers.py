# SPDX-License-Identifier: GPL-2.0-only
"""How long does `true` take in a guest of the lab, of virtme-ng and of labgrid? docs/guest-start.md has the commands.

All boot the same Debian kernel in the same QEMU, without KVM. The peers come from PyPI, virtme-ng's root from Debian.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.initramfs import initramfs
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.catalog.kernels import kernels
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.guest import Guest
from orchestrator.run.guest_start import start_guest
from orchestrator.run.machines import machine_for

pytestmark = pytest.mark.qemu

KERNEL = "debian-amd64"
ROUNDS = 3
LIMIT = 900.0
"""Seconds for one command of a peer, or for one step of its installation; a busy host takes a tenth of it."""
LEAST_RATIO = 40.0
"""Of virtme-ng's time, as it comes, to that of a restored guest."""

_PEERS = Path(__file__).with_name("peers")
_LAB = (sys.executable, "-P", "-c", "from orchestrator.cli.main import main; main()")


@dataclass(frozen=True)
class Taken:
    """Seconds by the host's clock, and of its processors by this process and those it has waited for."""

    elapsed: float
    cpu: float


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(rusage.ru_utime + rusage.ru_stime for rusage in used)


def _taken(work: Callable[[], object]) -> Taken:
    began, spent = time.monotonic(), _cpu_seconds()
    work()
    return Taken(time.monotonic() - began, _cpu_seconds() - spent)


def _prepared(argv: Sequence[str | Path]) -> None:
    """Run a step of an installation; the test is skipped where it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        pytest.skip(f"{Path(argv[0]).name} ended with status {done.returncode}: {last}")


def _installed(name: str, folder: Path) -> Path:
    """A virtual environment with a package of PyPI; returns the folder of its programs."""
    venv.create(folder, with_pip=True)
    _prepared([folder / "bin/python", "-m", "pip", "install", "--quiet", "--retries", "1", name])
    return folder / "bin"


def _version(programs: Path, name: str) -> str:
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    return subprocess.check_output([programs / "python", "-c", code, name], text=True).strip()


def _root(kernel: Kernel, folder: Path) -> Path:
    """A small Debian with a kernel and its modules; virtme-ng needs busybox and udev there, and kmod on the host."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap makes virtme-ng's root; as root: apt-get install -y --no-install-recommends mmdebstrap")
    _prepared(["mmdebstrap", "--variant=minbase", "--include=busybox-static,kmod,udev", "bookworm", str(folder)])
    assert kernel.packaged is not None
    shutil.copy(kernel.packaged, folder / "boot")
    shutil.copy(kernel.image, folder / "boot" / f"vmlinux-{kernel.release}")
    modules = kernel.modules.parent
    shutil.copytree(modules, folder / "lib/modules" / kernel.release, ignore=shutil.ignore_patterns("build", "source"))
    programs = folder / "kmod"
    programs.mkdir()
    for name in ("depmod", "modprobe"):
        (programs / name).symlink_to(folder / "usr/bin/kmod")
    _prepared([programs / "depmod", "-b", str(folder), kernel.release])
    return folder


def _succeed(argv: Sequence[str | Path], environment: Mapping[str, str]) -> None:
    # Of what a busy guest prints nothing is read: a pipe that is full would hold it up.
    subprocess.run(
        argv,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=LIMIT,
        check=True,
    )


def test_a_restored_guest_against_virtme_ng_and_labgrid(
    workshop: BuildContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = ready_kernel(workshop, kernels()[KERNEL])
    image = initramfs(workshop, kernel)
    machine = machine_for(workshop, kernel, GuestSpec(cpu="xeon-e5410", timing="tcg"))
    virtme, labgrid = (_installed(name, tmp_path / name) for name in ("virtme-ng", "labgrid"))
    root = _root(kernel, tmp_path / "root")

    # With virtiofs, QEMU 7.2's own virtiofsd refuses virtme-ng's options, which costs five seconds before 9p is taken.
    common = ("--root", root, "--disable-kvm", "--force-9p", "--busybox", root / "bin/busybox", "--exec", "true")
    quickest = ("--cpus", "1", "--append", "cryptomgr.notests")
    for_virtme = {"HOME": str(tmp_path), "PATH": f"{virtme}:{root / 'kmod'}:/usr/sbin:/usr/bin:/sbin:/bin"}
    for_labgrid = {
        "LG_QEMU": shutil.which("qemu-system-x86_64") or "",
        "LG_KERNEL": str(kernel.image),
        "LG_INITRAMFS": str(image),
    }

    def in_process() -> None:
        with start_guest(workshop, Guest(machine, tmp_path)) as guest:
            guest.succeed(["true"])

    rows: dict[str, Callable[[], object]] = {
        "virtme-ng, bzImage": lambda: _succeed(
            [virtme / "vng", "--run", root / f"boot/vmlinuz-{kernel.release}", *common], for_virtme
        ),
        "virtme-ng, vmlinux, one CPU, no crypto tests": lambda: _succeed(
            [virtme / "vng", "--run", root / f"boot/vmlinux-{kernel.release}", *common, *quickest], for_virtme
        ),
        "labgrid, vmlinux, the lab's initramfs": lambda: _succeed(
            [labgrid / "python", _PEERS / "labgrid_true.py"], for_labgrid
        ),
        "lab exec --fresh": lambda: _succeed([*_LAB, "exec", "--kernel", KERNEL, "--fresh", "--", "true"], {}),
        "lab exec": lambda: _succeed([*_LAB, "exec", "--kernel", KERNEL, "--", "true"], {}),
        "a restored guest in a test": in_process,
    }
    in_process()  # it is saved now
    rows["lab exec"]()
    taken: dict[str, list[Taken]] = {name: [] for name in rows}
    for _ in range(ROUNDS):  # interleaved, so that a busy moment of the host falls on all
        for name, work in rows.items():
            taken[name].append(_taken(work))

    elapsed = {name: statistics.median(run.elapsed for run in runs) for name, runs in taken.items()}
    restored = elapsed["a restored guest in a test"]
    with capsys.disabled():
        peers = f"virtme-ng {_version(virtme, 'virtme-ng')}, labgrid {_version(labgrid, 'labgrid')}"
        print(f"\n{peers}, Linux {kernel.release}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
        for name, runs in taken.items():
            cpu_seconds = statistics.median(run.cpu for run in runs)
            print(f"{name:46} {elapsed[name]:7.2f} s {cpu_seconds:7.2f} s of CPU {elapsed[name] / restored:7.1f}")
    assert elapsed["virtme-ng, bzImage"] / restored >= LEAST_RATIO
