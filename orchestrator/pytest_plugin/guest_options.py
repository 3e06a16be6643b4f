# SPDX-License-Identifier: GPL-2.0-only
"""Which machine does a test need? Its ``guest`` marks, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from orchestrator.artifacts import guest_disks
from orchestrator.catalog.cpus import CpuModel, cpu
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.spelling import unknown
from orchestrator.errors import UsageError
from orchestrator.experiment.file.fields import Surroundings
from orchestrator.experiment.file.problems import problems_of
from orchestrator.experiment.machine import Machine as DescribedMachine
from orchestrator.guest.accelerator import choose_accelerator
from orchestrator.guest.emulator import qemu_cpu_names
from orchestrator.guest.kernel_reports import report_patterns
from orchestrator.guest.machine import ChannelKind, Machine, Timing
from orchestrator.pytest_plugin.choices import NO_CHOICES, choose, merged
from orchestrator.run.machines import Hardware, machine_for

if TYPE_CHECKING:
    import pytest

    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.artifacts.kernels import Kernel

Expected = Sequence[re.Pattern[str]]
"""What the kernel of a test's guest may report."""

_TIMINGS = ("auto", *get_args(Timing))


@dataclass(frozen=True)
class GuestOptions:
    """The guest that a test needs. ``memory`` is in MiB here."""

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
    """A Debian on a disk: an image of ``./lab image list``, or the path of a recipe or a disk of your own."""
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

    def machine(self, context: BuildContext, kernel: Kernel) -> Machine:
        """The machine to boot, its parts fetched and built. Raises HostError where the host lacks something."""
        timing: Timing = "instructions" if self.timing == "instructions" else choose_accelerator(self.timing).name
        hardware = Hardware(self.cpu, self.smp, self.memory, timing)
        disks = guest_disks.GuestDisks(self.image, self.channel, self.data, self.kernel_modules)
        return machine_for(context, kernel, hardware, disks)


def read_marks(settings: Mapping[str, Any], marks: Sequence[pytest.Mark], chosen: Mapping[str, Any]) -> GuestOptions:
    """The options in a test's ``guest`` marks, the nearest first, over the session's ``settings``.

    ``chosen`` has the value that the test's parameters take of each list. Raises UsageError for anything unknown.
    """
    if any(mark.args for mark in marks):
        raise UsageError("arguments are given by name", hint="for example guest(cpu='pentium4')")
    for name, value in settings.items():
        try:
            checked({name: value})
        except UsageError as error:
            where = f"option --qemu-{name}, or setting qemu_{name}"
            raise UsageError(error.what, where=where, hint=error.hint) from None
    return checked({**settings, **choose(merged(marks), chosen)})


def read_expected_reports(marks: Sequence[pytest.Mark]) -> Expected:
    """What a test's ``allow_oops`` marks permit. Raises UsageError as ``report_patterns`` does."""
    for mark in marks:
        if not mark.args or mark.kwargs:
            raise UsageError("regular expressions are expected", hint="for example allow_oops('WARNING: .* my_init')")
    return report_patterns(regex for mark in marks for regex in mark.args)


def checked(arguments: Mapping[str, Any]) -> GuestOptions:
    """The options in the arguments of marks. Raises UsageError for anything unknown."""
    _check_names(arguments)
    image = arguments.get("image")
    if image is not None and not isinstance(image, str):
        raise UsageError(f"image: found {image!r}; expected an image's name, or a path")
    if not isinstance(arguments.get("kernel") or "", str | PurePath):
        raise UsageError(f"kernel: found {arguments['kernel']!r}; expected a kernel's name, or a path, as text")
    kernel, timing = str(arguments.get("kernel") or _kernel_of(image)), str(arguments.get("timing", "auto"))
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
    why_not = spec.unsupported_reason(cpu(machine.cpu)) or guest_disks.unsupported_reason(
        guest_disks.GuestDisks(image, channel), spec
    )
    if why_not is not None:
        raise UsageError(why_not)
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


def _check_names(arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for an argument that there is not, or one with no value."""
    allowed = [field.name for field in fields(GuestOptions)]
    for name, value in arguments.items():
        if name not in allowed:
            raise UsageError(unknown("argument", name, allowed))
        if name not in NO_CHOICES and isinstance(value, list | tuple) and not value:
            raise UsageError(f"{name}: found an empty list; expected a value, or a list with a value for each test")


def _folders(data: object) -> tuple[Path, ...]:
    """Folders of the host, which are there."""
    if not isinstance(data, list | tuple) or not all(isinstance(folder, str | Path) for folder in data):
        example = f", such as [{data!r}]" if isinstance(data, str) else ""
        raise UsageError(f"data: found {data!r}; expected a list of folders{example}")
    missing = next((str(folder) for folder in data if not Path(folder).is_dir()), None)
    if missing is not None:
        raise UsageError(f"data: found {missing!r}; there is no such folder", hint=f"paths are from {Path.cwd()}")
    return tuple(Path(folder) for folder in data)


def _switch(arguments: Mapping[str, Any], name: str) -> bool:
    """An argument that is on or off."""
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        raise UsageError(f"{name}: found {value!r}; expected True or False")
    return value


def _kernel_of(image: str | None) -> str:
    """The default kernel of a guest, by its image."""
    is_64_bit = image is not None and guest_disks.image_arch(image) == "x86_64"
    return "debian-amd64" if is_64_bit else "debian-686"


def _allowed(regexes: object) -> Expected:
    """The mark's own ``allow_oops``: a regular expression, or several."""
    several = [regexes] if isinstance(regexes, str) else regexes
    if not isinstance(several, list | tuple):
        raise UsageError(f"allow_oops: found {regexes!r}; expected a regular expression, or a list of them")
    try:
        return report_patterns(several)
    except UsageError as error:
        raise UsageError(error.what, where="allow_oops", hint=error.hint) from None


def _machine(arguments: Mapping[str, Any], kernel: KernelSpec) -> DescribedMachine:
    """CPU, number and memory, by the same rules as in an experiment file."""
    described = {key: arguments[key] for key in ("cpu", "smp", "memory") if arguments.get(key) is not None}
    described.setdefault("cpu", "xeon-e5410" if kernel.needs_long_mode else "pentium4")
    try:
        return DescribedMachine.model_validate(described, context=Surroundings(qemu_cpu_names))
    except ValidationError as error:
        problems = problems_of(error, lambda path: "unknown key")
        raise UsageError("; ".join(f"{problem.path[0]}: {problem.sentence}" for problem in problems)) from None
