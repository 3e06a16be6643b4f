# SPDX-License-Identifier: GPL-2.0-only
"""The guests of commands, tests and programs: what one may be asked for, and its life in a ``with`` block."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import repeat
from pathlib import Path, PurePath
from typing import Any, TypedDict, get_args

from pydantic import ValidationError

from orchestrator.artifacts.boot_files import GuestDisks
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.catalog.cpus import CpuModel, cpu
from orchestrator.catalog.data import unknown
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import GuestError, UsageError
from orchestrator.experiment.cell import MachineSpec
from orchestrator.experiment.fields import ValidationContext
from orchestrator.experiment.problems import problems_of
from orchestrator.guest.console import report_patterns
from orchestrator.guest.machine import ChannelKind, Login, Machine, Timing, qemu_cpu_names
from orchestrator.library.tested_guest import TestedGuest
from orchestrator.run.machines import Hardware, check_possible, machine_for, timing_named, usual_cpu, usual_kernel
from orchestrator.steps import LOG_NAME, step_log

Expected = Sequence[re.Pattern[str]]
"""Patterns of what a guest's kernel may report."""

_TIMINGS = ("auto", *get_args(Timing))
ROOT = Login()


@dataclass(frozen=True)
class GuestOptions:
    """The guest that a test or a program needs. ``memory`` is in MiB here."""

    kernel: KernelSpec
    """The kernel, by its name or the path of a build tree of your own; for a 64-bit image ``debian-amd64``."""
    cpu: CpuModel
    """The CPU model; by default ``pentium4``, and ``xeon-e5410`` for a 64-bit kernel."""
    smp: int
    """Virtual CPUs, 1 to 16. The timing ``instructions`` needs 1."""
    memory: int
    """The guest's memory, ``64M`` to ``4G``; a number alone is in MiB."""
    timing: str
    """``instructions`` for the exact clock; ``kvm`` or ``tcg`` for a plain one; ``auto``: KVM where it is fast."""
    image: str | None
    """A Debian on a disk: an image of ``./lab build images``, or the path of a recipe or a disk of your own."""
    channel: ChannelKind
    """How commands get in: ``framed``, the lab's own agent; ``ssh`` or ``serial``, which need an image."""
    data: tuple[Path, ...]
    """Folders of the host that are at ``/data/NAME`` in the guest, to be read. A list is one value."""
    kernel_modules: bool
    """Whether the kernel's own modules are in the guest, for ``modprobe``."""
    fresh: bool
    """Whether the guest is always booted, and never restored."""
    allow_oops: Expected
    """What the kernel may report: a regular expression or a list of them, as in the mark ``allow_oops``."""

    def machine(self, context: BuildContext, kernel: Kernel, login: Login = ROOT) -> Machine:
        """The machine to boot, its parts fetched and built. Raises HostError if the host lacks something."""
        hardware = Hardware(self.cpu, self.smp, self.memory, timing_named(self.timing))
        disks = GuestDisks(self.image, self.channel, self.data, self.kernel_modules, login)
        return machine_for(context, kernel, hardware, disks)


GUEST_ARGUMENTS = tuple(field.name for field in fields(GuestOptions))


class GuestArguments(TypedDict, total=False):
    """The arguments of a guest, as a program writes them; ``GuestOptions`` describes them."""

    kernel: str | Path
    cpu: str
    smp: int
    memory: str | int
    timing: str
    image: str
    channel: ChannelKind
    data: Sequence[str | Path]
    kernel_modules: bool
    fresh: bool
    allow_oops: str | Sequence[str]


def guest_options(arguments: Mapping[str, Any]) -> GuestOptions:
    """The options in a guest's arguments. Raises UsageError for unknown names or values."""
    for name in arguments:
        if name not in GUEST_ARGUMENTS:
            raise UsageError(unknown("argument", name, GUEST_ARGUMENTS))
    image = arguments.get("image")
    if image is not None and not isinstance(image, str):
        raise UsageError(f"image: found {image!r}; expected an image's name, or a path")
    if not isinstance(arguments.get("kernel") or "", str | PurePath):
        raise UsageError(f"kernel: found {arguments['kernel']!r}; expected a kernel's name, or a path, as text")
    kernel, timing = str(arguments.get("kernel") or usual_kernel(image)), str(arguments.get("timing", "auto"))
    channel = arguments.get("channel", "framed")
    fresh, kernel_modules = _switch(arguments, "fresh"), _switch(arguments, "kernel_modules")
    spec = kernel_spec(kernel)
    if timing not in _TIMINGS:
        raise UsageError(unknown("timing", timing, _TIMINGS))
    machine = _machine(arguments, spec)
    if timing == "instructions" and machine.smp != 1:
        raise UsageError(f"smp: found {machine.smp}; timing 'instructions' needs 1: QEMU counts on one CPU only")
    if channel not in get_args(ChannelKind):
        raise UsageError(unknown("channel", str(channel), get_args(ChannelKind)))
    data = _folders(arguments.get("data", ()))
    check_possible(spec, cpu(machine.cpu), GuestDisks(image, channel))
    return GuestOptions(
        spec,
        cpu(machine.cpu),
        machine.smp,
        machine.memory_mib,
        timing,
        image,
        channel,
        data,
        kernel_modules,
        fresh,
        _allowed(arguments.get("allow_oops", ())),
    )


def _folders(data: object) -> tuple[Path, ...]:
    if not isinstance(data, list | tuple) or not all(isinstance(folder, str | Path) for folder in data):
        example = f", such as [{data!r}]" if isinstance(data, str) else ""
        raise UsageError(f"data: found {data!r}; expected a list of folders{example}")
    missing = next((str(folder) for folder in data if not Path(folder).is_dir()), None)
    if missing is not None:
        raise UsageError(f"data: found {missing!r}; there is no such folder", hint=f"paths are from {Path.cwd()}")
    return tuple(Path(folder) for folder in data)


def _switch(arguments: Mapping[str, Any], name: str) -> bool:
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        raise UsageError(f"{name}: found {value!r}; expected True or False")
    return value


def _allowed(regexes: object) -> Expected:
    several = [regexes] if isinstance(regexes, str) else regexes
    if not isinstance(several, list | tuple):
        raise UsageError(f"allow_oops: found {regexes!r}; expected a regular expression, or a list of them")
    try:
        return report_patterns(several)
    except UsageError as error:
        raise UsageError(error.what, where="allow_oops", hint=error.hint) from None


def _machine(arguments: Mapping[str, Any], kernel: KernelSpec) -> MachineSpec:
    """CPU model, number and memory, by the rules of an experiment file."""
    described = {key: arguments[key] for key in ("cpu", "smp", "memory") if arguments.get(key) is not None}
    described.setdefault("cpu", usual_cpu(kernel))
    try:
        return MachineSpec.model_validate(described, context=ValidationContext(qemu_cpu_names))
    except ValidationError as error:
        problems = problems_of(error, lambda path: "unknown key")
        raise UsageError("; ".join(f"{problem.path[0]}: {problem.sentence}" for problem in problems)) from None


@contextmanager
def running_guest(context: BuildContext, arguments: Mapping[str, Any]) -> Iterator[TestedGuest]:
    """A guest of these arguments, which ends with the block; paths of modules are relative to the current folder.

    Raises UsageError, HostError, GuestError, and GuestOops at the end of the block if the kernel has reported trouble.
    """
    options = guest_options(arguments)
    kernel = ready_kernel(context, options.kernel)
    machine = options.machine(context, kernel)
    with log_folder(None) as directory:
        guest = TestedGuest(context, kernel, machine, directory, repeat("guest"))
        try:
            guest.start(fresh=options.fresh)
            guest.begin_test(Path.cwd(), options.allow_oops)
            yield guest
            guest.check_kernel()
        finally:
            guest.kill()


@contextmanager
def log_folder(path: Path | None) -> Iterator[Path]:
    """The folder for the console log and the step log, which is open in the context.

    If none is ``path`` it is a temporary folder, kept only if an error names a file in it.
    """
    directory = path or Path(tempfile.mkdtemp(prefix="orchestrator-"))
    directory.mkdir(parents=True, exist_ok=True)
    keep = path is not None
    try:
        with step_log(directory / LOG_NAME):
            yield directory
    except GuestError as error:
        keep = keep or error.where.startswith(str(directory))
        raise
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
