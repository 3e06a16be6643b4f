# SPDX-License-Identifier: GPL-2.0-only
"""Which accelerator runs a guest? The one that was measured to be fast, not the one that can be opened.

A ``/dev/kvm`` may open, create machines and still execute a few million instructions a second (an emulated one,
inside another virtual machine): a Linux guest on it looks like a hang. So KVM is judged by its speed alone.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import platform
import signal
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.catalog.cpus import CpuModel
from orchestrator.catalog.data import nearest
from orchestrator.errors import HostError, UsageError
from orchestrator.files import write_whole
from orchestrator.guest import kvm_probe
from orchestrator.guest.machine import Timing, qemu_cpu_names, qemu_version
from orchestrator.paths import cache_dir
from orchestrator.program import PROGRAM

DEVICE = Path("/dev/kvm")
TIME_LIMIT_SECONDS = 60.0
"""For a KVM that blocks. One that spins ends at the probe's own limit of processor time."""
# Real hardware needs well under 1 ms for the probe's 200 000 instructions; emulated KVMs were seen at 50-120 ms.
FAST_MS = 10.0


class KvmState(StrEnum):
    """What was found about /dev/kvm."""

    ABSENT = "absent"
    DENIED = "denied"
    BROKEN = "broken"
    SLOW = "slow"
    FAST = "fast"


class KvmSpeed(BaseModel):
    """What was found about /dev/kvm; times are those of the probe's ``instructions``, 0 where nothing ran."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: KvmState
    reason: str
    cpu_ms: float = 0.0
    wall_ms: float = 0.0
    instructions: int = 0

    @property
    def usable(self) -> bool:
        return self.state is KvmState.FAST


class Accelerator(BaseModel):
    """The accelerator a guest is to run on, and why."""

    model_config = ConfigDict(frozen=True)

    name: Literal["kvm", "tcg"]
    reason: str


def measure_kvm(device: Path = DEVICE) -> KvmSpeed:
    """Examine ``device``, run the probe in a process of its own, and keep its result until the host's next boot.

    Takes about 0.1 s where KVM is fast, under a second where it is slow, and never more than the time limit.
    """
    refusal = _refusal(device)
    if refusal is not None:
        return refusal
    speed = _run_probe()
    _remember(speed)
    return speed


def known_kvm_speed(device: Path = DEVICE) -> KvmSpeed:
    """As ``measure_kvm``, or the result that was measured since this host booted."""
    return _refusal(device) or _recall() or measure_kvm(device)


def choose_accelerator(requested: str, speed: KvmSpeed | None = None) -> Accelerator:
    """Resolve ``auto``, ``kvm`` or ``tcg``; ``speed`` is looked up unless given.

    Raises ``HostError`` if KVM was requested by name and is not fast, ``UsageError`` for any other word.
    """
    if requested == "tcg":
        return Accelerator(name="tcg", reason="asked for")
    if requested not in ("auto", "kvm"):
        raise UsageError(f"unknown accelerator {requested!r}", hint="allowed are auto, kvm and tcg")
    speed = speed or known_kvm_speed()
    if speed.usable:
        return Accelerator(name="kvm", reason=speed.reason)
    if requested == "kvm":
        raise HostError(f"KVM cannot be used: {speed.reason}", hint="use auto or tcg")
    return Accelerator(name="tcg", reason=speed.reason)


def _refusal(device: Path) -> KvmSpeed | None:
    """Why ``device`` cannot be opened, or None if it can."""
    try:
        status = device.stat()
    except FileNotFoundError:
        return KvmSpeed(state=KvmState.ABSENT, reason=f"this host has no {device}")
    except OSError as error:
        return KvmSpeed(state=KvmState.BROKEN, reason=f"{device}: {error.strerror}")
    if os.access(device, os.R_OK | os.W_OK):
        return None
    if status.st_mode & 0o060 != 0o060:
        who = "its mode lets in its owner alone"
    else:
        who = f"it is open to the group {_group_name(status.st_gid)}, which this user is not in"
    return KvmSpeed(state=KvmState.DENIED, reason=f"no permission to open {device}: {who}")


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


class _ProbeTimes(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cpu_ms: float = Field(ge=0, allow_inf_nan=False)
    wall_ms: float = Field(ge=0, allow_inf_nan=False)
    instructions: int = Field(gt=0)


def _run_probe() -> KvmSpeed:
    command = [sys.executable, "-I", "-S", kvm_probe.__file__]
    try:
        probe = subprocess.run(command, capture_output=True, timeout=TIME_LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        reason = f"/dev/kvm opens, but {kvm_probe.INSTRUCTIONS} instructions did not end in {TIME_LIMIT_SECONDS:g} s"
        return KvmSpeed(state=KvmState.BROKEN, reason=reason)
    if probe.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        taken = f"{kvm_probe.INSTRUCTIONS} instructions did not end in {kvm_probe.CPU_SECONDS} s of processor time"
        return KvmSpeed(state=KvmState.BROKEN, reason=f"/dev/kvm opens, but {taken}")
    return read_probe_answer(probe.stdout, probe.returncode)


def read_probe_answer(answer: bytes, status: int) -> KvmSpeed:
    """Judge what the probe printed before it ended with ``status``."""
    try:
        found = json.loads(answer)
    except ValueError:
        return KvmSpeed(state=KvmState.BROKEN, reason=f"the KVM probe ended with status {status} and no answer")
    if isinstance(found, dict) and "error" in found:
        return KvmSpeed(state=KvmState.BROKEN, reason=f"/dev/kvm does not work: {found['error']}")
    try:
        times = _ProbeTimes.model_validate(found)
    except ValidationError:
        return KvmSpeed(state=KvmState.BROKEN, reason="the KVM probe gave an answer that makes no sense")
    speed = f"{times.instructions / max(times.cpu_ms, 1e-3) / 1e3:.3g} million instructions a second"
    if times.cpu_ms < FAST_MS:
        state, reason = KvmState.FAST, f"/dev/kvm executes {speed}"
    else:
        state, reason = KvmState.SLOW, f"/dev/kvm opens, but executes only {speed}: guests would seem to hang"
    return KvmSpeed(state=state, reason=reason, **times.model_dump())


# --- remembered until the next boot ---------------------------------------------------------------


class _Memory(BaseModel):
    boot: str
    kernel: str
    speed: KvmSpeed


def _memory_file() -> Path:
    return cache_dir() / "kvm-speed.json"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _recall() -> KvmSpeed | None:
    try:
        memory = _Memory.model_validate_json(_memory_file().read_bytes())
    except (OSError, ValidationError):
        return None
    return memory.speed if (memory.boot, memory.kernel) == (_boot(), platform.release()) else None


def _remember(speed: KvmSpeed) -> None:
    memory = _Memory(boot=_boot(), kernel=platform.release(), speed=speed)
    target = _memory_file()
    # Where the cache cannot be written, the next guest measures again.
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, memory.model_dump_json())


# Which CPUs can QEMU and the host give a guest.

_HOSTS_OWN = "host"
_ANOTHER = f"name another CPU: {PROGRAM} list cpus, or max for all that QEMU emulates"


def check_cpu(model: CpuModel, timing: Timing) -> None:
    """Raise HostError for a CPU that this host cannot give, and UsageError for one that the clock excludes."""
    name = model.qemu.partition(",")[0]
    if name not in qemu_cpu_names():
        guess = nearest(name, qemu_cpu_names())
        like = f"; the nearest is '{guess}'" if guess else ""
        raise HostError(f"CPU '{model.name}' needs QEMU's model '{name}', which {qemu_version()} has not{like}")
    if name != _HOSTS_OWN or timing == "kvm":
        return
    if timing == "instructions":
        raise UsageError(f"CPU '{name}' is this host's own, and the exact clock needs an emulated one", hint=_ANOTHER)
    speed = known_kvm_speed()
    why = "emulation was asked for" if speed.usable else speed.reason
    raise HostError(f"CPU '{name}' is this host's own, which takes KVM: {why}", hint=_ANOTHER)
