# SPDX-License-Identifier: GPL-2.0-only
"""The choice of an accelerator: KVM is used if it was measured to be fast, not if it merely opens.

A ``/dev/kvm`` may open, create machines and still execute only a few million instructions a second (an emulated one,
inside another virtual machine): a Linux guest on it looks like a hang. So only a guest's progress counts.
"""

from __future__ import annotations

import contextlib
import grp
import os
import signal
import struct
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.arch import QEMU
from orchestrator.catalog.cpus import CpuModel
from orchestrator.catalog.data import nearest
from orchestrator.errors import HostError, UsageError
from orchestrator.files import write_whole
from orchestrator.guest.confinement import environment
from orchestrator.guest.machine import Timing
from orchestrator.guest.qemu_facts import qemu_cpu_names, qemu_version
from orchestrator.paths import cache_dir
from orchestrator.plain_text import plain_line
from orchestrator.process import exit_status, how_ended, spawn
from orchestrator.program import PROGRAM

DEVICE = Path("/dev/kvm")


class KvmSpeed(BaseModel):
    """Whether guests are fast on KVM, and the reason for this verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    usable: bool
    reason: str


def measure_kvm(device: Path = DEVICE) -> KvmSpeed:
    """Examine ``device``, run a short guest on it, and keep the result until the host's next boot.

    Takes about 0.2 s if KVM is fast, two seconds of processor time if it is slow, and never more than the time limit.
    """
    refusal = _refusal(device)
    if refusal is not None:
        return KvmSpeed(usable=False, reason=refusal)
    problem = count_down("kvm")
    reason = f"/dev/kvm executes more than {_FAST} million instructions a second"
    speed = KvmSpeed(usable=problem is None, reason=reason if problem is None else f"/dev/kvm opens, but {problem}")
    # If the cache cannot be written, the next guest measures again.
    with contextlib.suppress(OSError):
        _memory_file().parent.mkdir(parents=True, exist_ok=True)
        write_whole(_memory_file(), _Memory(boot=_boot(), speed=speed).model_dump_json())
    return speed


def known_kvm_speed(device: Path = DEVICE) -> KvmSpeed:
    """Like ``measure_kvm``, but returns a result measured since this host booted."""
    if _refusal(device) is None:
        with contextlib.suppress(OSError, ValidationError):
            memory = _Memory.model_validate_json(_memory_file().read_bytes())
            if memory.boot == _boot():
                return memory.speed
    return measure_kvm(device)


class _Memory(BaseModel):
    boot: str
    speed: KvmSpeed


def _memory_file() -> Path:
    return cache_dir() / "kvm-speed.json"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def choose_accelerator(requested: str, speed: KvmSpeed | None = None) -> Literal["kvm", "tcg"]:
    """Resolve ``auto``, ``kvm`` or ``tcg``; ``speed`` is looked up unless given.

    Raises ``HostError`` if KVM was requested by name and is not fast, ``UsageError`` for any other word.
    """
    if requested == "tcg":
        return "tcg"
    if requested not in ("auto", "kvm"):
        raise UsageError(f"unknown accelerator {requested!r}", hint="allowed are auto, kvm and tcg")
    speed = speed or known_kvm_speed()
    if requested == "kvm" and not speed.usable:
        raise HostError(f"KVM cannot be used: {speed.reason}", hint="use auto or tcg")
    return "kvm" if speed.usable else "tcg"


def _refusal(device: Path) -> str | None:
    try:
        status = device.stat()
    except FileNotFoundError:
        return f"this host has no {device}"
    except OSError as error:
        return f"{device}: {error.strerror}"
    if os.access(device, os.R_OK | os.W_OK):
        return None
    who = "its mode admits its owner only"
    if status.st_mode & 0o060 == 0o060:
        group = str(status.st_gid)
        with contextlib.suppress(KeyError):
            group = grp.getgrgid(status.st_gid).gr_name
        who = f"it is open to the group {group}, which this user is not in"
    return f"no permission to open {device}: {who}"


# A guest that counts down and ends its QEMU: the Multiboot specification's header, then 32-bit code.

TIME_LIMIT_SECONDS = 60.0
"""For a KVM that blocks. One that spins meets the limit of processor time, which a busy host does not use up."""

CPU_SECONDS = 2
_FAST = 20
"""Million instructions a second. Hardware executes a hundred times as many; emulated KVMs were seen at two to four."""

_ENTRY = 0x100020
_ENDED = 33
"""QEMU's status where the guest writes 0x10 to the port of isa-debug-exit (hw/misc/debugexit.c)."""

_MULTIBOOT = (0x1BADB002, 1 << 16)
"""The header's magic, and the flag for the address fields of a flat image."""

_PROGRAM = struct.pack("<8I", *_MULTIBOOT, -sum(_MULTIBOOT) & 0xFFFFFFFF, _ENTRY - 32, _ENTRY - 32, 0, 0, _ENTRY) + (
    b"\xb9" + (CPU_SECONDS * _FAST * 500_000).to_bytes(4, "little")  # mov ecx, half as many as instructions
    + b"\x49"  # again: dec ecx
    + b"\x75\xfd"  # jnz again
    + b"\xb0\x10\xe6\xf4"  # mov al, 0x10; out 0xf4, al
    + b"\xf4"  # hlt
)  # fmt: skip

_OPTIONS = ("-machine", "pc", "-m", "16", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")


def count_down(accelerator: str) -> str | None:
    """Run the guest to its end. Returns None, or why it did not finish, worded as the end of a sentence."""
    program = os.memfd_create("countdown")
    try:
        os.write(program, _PROGRAM)
        port = ("-device", "isa-debug-exit,iobase=0xf4,iosize=4")
        argv = (QEMU, "-accel", accelerator, *_OPTIONS, *port, "-kernel", f"/proc/self/fd/{program}")
        with tempfile.TemporaryFile() as messages:
            process = spawn(
                argv, limits={"cpu": CPU_SECONDS}, environment=environment(), stderr=messages, pass_fds=[program]
            )
            with contextlib.closing(process):
                status = exit_status(process, TIME_LIMIT_SECONDS)
            messages.seek(0)
            message = plain_line(messages.read(4096).decode(errors="replace").strip())
    except HostError as error:
        return f"QEMU does not start: {error.what}"
    finally:
        os.close(program)
    if status == _ENDED:
        return None
    if status is None:
        return f"a guest of {CPU_SECONDS * _FAST} million instructions did not end in {TIME_LIMIT_SECONDS:g} s"
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"executes fewer than {_FAST} million instructions a second: guests would seem to hang"
    return f"QEMU ends there with {how_ended(status)}: {message or 'it says nothing'}"


_ANOTHER = f"name another CPU: {PROGRAM} list cpus, or max for all that QEMU emulates"


def check_cpu(model: CpuModel, timing: Timing) -> None:
    """Raise HostError for a CPU that this host cannot provide, UsageError for one that the clock excludes."""
    name = model.qemu.partition(",")[0]
    if name not in qemu_cpu_names():
        guess = nearest(name, qemu_cpu_names())
        like = f"; the nearest is '{guess}'" if guess else ""
        raise HostError(f"CPU '{model.name}' needs QEMU's model '{name}', which {qemu_version()} lacks{like}")
    if name != "host" or timing == "kvm":
        return
    if timing == "instructions":
        raise UsageError(f"CPU '{name}' is this host's own, and the exact clock needs an emulated one", hint=_ANOTHER)
    speed = known_kvm_speed()
    why = "emulation was asked for" if speed.usable else speed.reason
    raise HostError(f"CPU '{name}' is this host's own, which needs KVM: {why}", hint=_ANOTHER)
