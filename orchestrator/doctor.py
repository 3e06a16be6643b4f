# SPDX-License-Identifier: GPL-2.0-only
"""Check what the lab needs on this host, and say how to get what is missing. Changes and fetches nothing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rich.console import Console
from rich.text import Text

from orchestrator.arch import QEMU
from orchestrator.artifacts.debian_mirror import archive_keyring, debian_mirror
from orchestrator.catalog.debian_release import debian
from orchestrator.errors import HostError, LabError
from orchestrator.guest.accelerator import KvmSpeed, measure_kvm
from orchestrator.guest.machine import machine_facts
from orchestrator.guest.qemu_facts import OLDEST_QEMU
from orchestrator.host_packages import INSTALL_COMMAND, load_requirements
from orchestrator.paths import cache_dir, lab_dir


class Status(StrEnum):
    """Only ``missing`` keeps the lab from working."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.MISSING: "bold red"}


@dataclass(frozen=True)
class Finding:
    """One fact about the host; ``remedy`` says what to do, or is empty; ``packages`` of Debian's are missing."""

    name: str
    status: Status
    text: str
    remedy: str = ""
    packages: tuple[str, ...] = ()


def render(findings: Sequence[Finding], console: Console) -> None:
    """Print one line per finding and its remedy below, and last what installs all missing programs.

    No colour and no wrapping where ``console`` is a pipe.
    """
    width = max((len(finding.name) for finding in findings), default=0)
    for finding in findings:
        line = Text(f"{finding.status:<7}", style=STYLES[finding.status])
        line.append(f"  {finding.name:<{width}}  {finding.text}", style="default")
        console.print(line, soft_wrap=True)
        if finding.remedy:
            console.print(Text(" " * (width + 11) + f"→ {finding.remedy}"), soft_wrap=True)
    packages = dict.fromkeys(package for finding in findings for package in finding.packages)
    if packages:
        text = f"\nAll missing programs and files, as root: apt-get update && {INSTALL_COMMAND} {' '.join(packages)}"
        console.print(Text(text), soft_wrap=True)


def _without(name: str, text: str, *packages: str) -> Finding:
    """What is missing for want of packages."""
    return Finding(name, Status.MISSING, text, f"as root: {INSTALL_COMMAND} {' '.join(packages)}", packages)


def exit_status(findings: Sequence[Finding]) -> int:
    """0 if nothing is missing, else the status of a host that lacks something."""
    return HostError.exit_status if any(finding.status is Status.MISSING for finding in findings) else 0


TESTED_QEMU = ((7, 2), (10, 0), (11, 1))

# The BIOS and the option ROM that loads a kernel, each with its Debian package.
FIRMWARE = {"bios-256k.bin": "seabios", "linuxboot_dma.bin": "qemu-system-data"}

# Two Debian kernels with their headers, unpacked, take about 1 GB; the Python environment 0.1 GB.
DISK_NEEDED_GB = 0.5
DISK_COMFORTABLE_GB = 2.0
MEMORY_NEEDED_MB = 512
MEMORY_COMFORTABLE_MB = 1024


def examine() -> list[Finding]:
    """Examine the host, in the order in which one would repair it. Takes about a second."""
    return [
        processor(platform.machine(), len(os.sched_getaffinity(0))),
        *programs(),
        *(qemu() if shutil.which(QEMU) else ()),
        *([guest_packages()] if shutil.which("apt-get") else ()),
        kvm(measure_kvm()),
        memory(Path("/proc/meminfo").read_text(encoding="ascii")),
        folder("cache folder", cache_dir(), "ORCHESTRATOR_CACHE"),
        folder("results folder", lab_dir(), "ORCHESTRATOR_LAB"),
    ]


def _answer(command: Sequence[str]) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=True, env=environment)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


def processor(architecture: str, cores: int) -> Finding:
    """Check the host's CPUs: modules are built by an x86-64 compiler and build system."""
    text = f"{architecture}, {cores} usable core{'s' if cores != 1 else ''}"
    if architecture != "x86_64":
        return Finding("processor", Status.MISSING, text, "the lab builds its modules on x86-64 hosts only")
    return Finding("processor", Status.OK, text)


def programs() -> Iterator[Finding]:
    """Look for each program of the package list."""
    for requirement in load_requirements():
        if requirement.is_python:
            yield Finding("python", Status.OK, platform.python_version())
            continue
        name, location = Path(requirement.need).name, requirement.location()
        if location is None:
            yield _without(name, f"not found; {requirement.why}", requirement.package)
        elif requirement.need in ("gcc", "make"):
            yield Finding(name, Status.OK, _answer([str(location), "--version"]).partition("\n")[0] or str(location))
        else:
            yield Finding(name, Status.OK, str(location))


def qemu() -> Iterator[Finding]:
    """Check QEMU's version, machine type and firmware."""
    yield qemu_version(_answer([QEMU, "--version"]))
    machine = machine_facts().type.partition(",")[0]
    machines = [line.split(maxsplit=1)[:1] for line in _answer([QEMU, "-machine", "help"]).splitlines()]
    if [machine] in machines:
        yield Finding("machine type", Status.OK, machine)
    else:
        remedy = f"install a QEMU that has it, {OLDEST_QEMU[0]}.{OLDEST_QEMU[1]} or newer"
        yield Finding("machine type", Status.MISSING, f"this QEMU has no {machine}", remedy)
    folders = [Path(line) for line in _answer([QEMU, "-L", "help"]).splitlines()]
    missing = [name for name in FIRMWARE if not any((folder / name).exists() for folder in folders)]
    if not missing:
        yield Finding("firmware", Status.OK, ", ".join(FIRMWARE))
    else:
        text = f"no {' and no '.join(missing)} in QEMU's folders: {', '.join(map(str, folders)) or 'none'}"
        yield _without("firmware", text, *(FIRMWARE[name] for name in missing))


def qemu_version(answer: str) -> Finding:
    """Check the version that ``qemu-system-x86_64 --version`` prints."""
    match = re.search(r"version (\d+)\.(\d+)(?:\.\d+)?", answer)
    if match is None:
        return Finding("QEMU", Status.MISSING, "prints no version", "reinstall qemu-system-x86")
    version, oldest = (int(match[1]), int(match[2])), f"{OLDEST_QEMU[0]}.{OLDEST_QEMU[1]}"
    if version < OLDEST_QEMU:
        return Finding("QEMU", Status.MISSING, f"{match[0]} is too old", f"install {oldest} or newer")
    if version not in TESTED_QEMU:
        *older, newest = (f"{major}.{minor}" for major, minor in TESTED_QEMU)
        tested = f"{', '.join(older)} and {newest}"
        return Finding("QEMU", Status.WARNING, f"{match[0]}; the lab was tested with {tested}")
    return Finding("QEMU", Status.OK, match[0])


def guest_packages() -> Finding:
    """Check by apt's sources and keys, without a network, whether this host can fetch the guests' release."""
    name = "guests' packages"
    try:
        mirror, _ = debian_mirror(), archive_keyring()
    except LabError as error:
        return Finding(name, Status.MISSING, "; ".join([error.what, *error.detail[1:]]), error.hint)
    whose = "mmdebstrap's default, " if mirror.is_default else ""
    return Finding(name, Status.OK, f"{debian().title} from {mirror.shown} ({whose}not checked online)")


def kvm(speed: KvmSpeed) -> Finding:
    """Check KVM. The exact clock does not use it, so its absence is only a warning."""
    if speed.usable:
        return Finding("KVM", Status.OK, f"fast: {speed.reason}")
    remedy = "guests run under TCG; counted instructions are exact there too"
    return Finding("KVM", Status.WARNING, speed.reason, remedy)


def memory(meminfo: str) -> Finding:
    """Check the available memory in /proc/meminfo."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.MULTILINE)
    if match is None:
        return Finding("memory", Status.WARNING, "the kernel does not say how much is available")
    megabytes = int(match[1]) // 1024
    text = f"{megabytes} MB available"
    if megabytes < MEMORY_NEEDED_MB:
        return Finding("memory", Status.MISSING, text, f"a guest and a build need {MEMORY_NEEDED_MB} MB")
    if megabytes < MEMORY_COMFORTABLE_MB:
        return Finding("memory", Status.WARNING, text, f"better {MEMORY_COMFORTABLE_MB} MB")
    return Finding("memory", Status.OK, text)


def folder(name: str, path: Path, variable: str) -> Finding:
    """Check that ``path`` exists or can be made, is writable, and has room; ``variable`` names another folder."""
    # Not Path.exists: it raises where a folder on the way may not be searched.
    existing = next(parent for parent in (path, *path.parents) if os.access(parent, os.F_OK))
    remedy = f"name another folder: {variable}=/some/folder"
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding(name, Status.MISSING, f"{path} cannot be written to", remedy)
    free = shutil.disk_usage(existing).free / 1e9
    text = f"{path}, {free:.1f} GB free"
    if free < DISK_NEEDED_GB:
        return Finding(name, Status.MISSING, text, f"make room, or {remedy}")
    if free < DISK_COMFORTABLE_GB:
        return Finding(name, Status.WARNING, text, f"better {DISK_COMFORTABLE_GB:g} GB")
    return Finding(name, Status.OK, text)
