# SPDX-License-Identifier: GPL-2.0-only
"""The guest that somebody asks for: an experiment's machine, a test's mark, a command's options, a program's arguments.

Each argument is described once, here: its name, type, default, unit, and what it means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, ValidationError, model_validator
from pydantic.fields import FieldInfo

from orchestrator.artifacts.guest_disks import image_arch, unsupported_reason
from orchestrator.attribute_docs import attribute_docs
from orchestrator.catalog.cpus import CpuModel
from orchestrator.catalog.cpus import cpu as cpu_model
from orchestrator.catalog.data import unknown
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import UsageError
from orchestrator.experiment import fields
from orchestrator.experiment.fields import Strict, ValidationContext, one_of, whole
from orchestrator.experiment.problems import Problem, conflict, mismatch, problems_of
from orchestrator.guest.kernel_reports import report_patterns
from orchestrator.guest.machine import ChannelKind
from orchestrator.guest.qemu_facts import qemu_cpu_names

DEFAULT_MEMORY = "256M"

GuestTiming = Literal["auto", "instructions", "tcg", "kvm"]
"""How a guest's time may be asked to pass."""


class MachineSpec(Strict):
    """A guest's hardware."""

    cpu: Annotated[str, BeforeValidator(fields.cpu)]
    """The CPU model. A kernel that cannot boot on it is an error; ``host`` needs KVM and the clock ``wall``."""
    smp: Annotated[int, whole(1, 16)] = 1
    """Virtual CPUs, at most 16. Counted instructions need 1."""
    memory: Annotated[str, BeforeValidator(fields.memory)] = DEFAULT_MEMORY
    """Memory, ``64M`` to ``4G``; a number alone is in MiB.

    Whole systems have by default what their work needs.
    """

    @property
    def memory_mib(self) -> int:
        return int(self.memory.removesuffix("M"))


def _kernel(value: object) -> str:
    if not isinstance(value, str | PurePath):
        raise mismatch(value, "expected a kernel's name, or a path, as text")
    return kernel_spec(str(value)).argument


def _image(value: object) -> str:
    if not isinstance(value, str):
        raise mismatch(value, "expected an image's name, or a path")
    image_arch(value)
    return value


def _folders(value: object) -> tuple[Path, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(folder, str | Path) for folder in value):
        example = f", such as [{value!r}]" if isinstance(value, str) else ""
        raise mismatch(value, f"expected a list of folders{example}")
    missing = next((str(folder) for folder in value if not Path(folder).is_dir()), None)
    if missing is not None:
        raise UsageError(f"data: found {missing!r}; there is no such folder", hint=f"paths are from {Path.cwd()}")
    return tuple(Path(folder) for folder in value)


def _switch(value: object) -> object:
    if not isinstance(value, bool):
        raise mismatch(value, "expected True or False")
    return value


def _patterns(value: object) -> tuple[re.Pattern[str], ...]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple):
        raise mismatch(value, "expected a regular expression, or a list of them")
    try:
        return tuple(report_patterns(several))
    except UsageError as error:
        raise UsageError(error.what, where="allow_oops", hint=error.hint) from None


class GuestSpec(MachineSpec):
    """A guest that is asked for: its machine, and what is in it."""

    kernel: Annotated[str, BeforeValidator(_kernel)] = ""
    """A kernel of ``./lab list kernels``, or the path of your own build tree; by default ``debian-686``, and
    ``debian-amd64`` for a 64-bit image."""
    cpu: Annotated[str, BeforeValidator(fields.cpu)] = ""
    """The CPU model; by default ``pentium4``, and ``xeon-e5410`` for a 64-bit kernel."""
    timing: Annotated[GuestTiming, one_of(lambda: get_args(GuestTiming))] = "auto"
    """``instructions``: the exact clock; ``kvm``, ``tcg``: a plain one; ``auto``: KVM if it is fast."""
    image: Annotated[str, BeforeValidator(_image)] | None = None
    """Root file system: an image of ``./lab build images``, or the path of your own recipe or disk. The guest's
    changes are discarded."""
    channel: Annotated[ChannelKind, one_of(lambda: get_args(ChannelKind))] = "framed"
    """``framed``: the lab's agent; ``ssh``: the image's sshd; ``serial``: a login on its console."""
    data: Annotated[tuple[Path, ...], BeforeValidator(_folders)] = ()
    """Folders of the host, read-only at ``/data/NAME`` in the guest."""
    kernel_modules: Annotated[bool, BeforeValidator(_switch)] = False
    """Add the kernel's own modules to the guest, for ``modprobe``."""
    fresh: Annotated[bool, BeforeValidator(_switch)] = False
    """Boot the guest, even if a saved one could be restored."""
    allow_oops: Annotated[tuple[re.Pattern[str], ...], BeforeValidator(_patterns)] = ()
    """Regular expressions of kernel reports (oopses, warnings, stalls) that are allowed; any other is a failure."""

    @cached_property
    def kernel_spec(self) -> KernelSpec:
        return kernel_spec(self.kernel or usual_kernel(self.image))

    @cached_property
    def cpu_model(self) -> CpuModel:
        return cpu_model(self.cpu or usual_cpu(self.kernel_spec))

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.timing == "instructions" and self.smp != 1:
            sentence = f"found {self.smp}; timing 'instructions' needs 1: QEMU counts on one CPU only"
            raise conflict([Problem(("smp",), sentence)])
        spec = self.kernel_spec
        why_not = spec.unsupported_reason(self.cpu_model) or unsupported_reason(spec, self.image, self.channel)
        if why_not is not None:
            raise UsageError(why_not)
        return self


def usual_kernel(image: str | None) -> str:
    """The default kernel: one that suits the image."""
    return "debian-amd64" if image is not None and image_arch(image) == "x86_64" else "debian-686"


def usual_cpu(kernel: KernelSpec) -> str:
    """The default CPU: one that the kernel boots on."""
    return "xeon-e5410" if kernel.needs_long_mode else "pentium4"


def guest_arguments() -> Mapping[str, FieldInfo]:
    """The arguments of a guest by their names: first what it boots, then its hardware, and the rest."""
    return {"kernel": GuestSpec.model_fields["kernel"], **GuestSpec.model_fields}


def guest_argument_summaries() -> Mapping[str, str]:
    """What each argument of a guest means, in a sentence or two."""
    return {name: " ".join(text.partition("\n\n")[0].split()) for name, text in attribute_docs(GuestSpec).items()}


def guest_spec(arguments: Mapping[str, Any], option: str = "") -> GuestSpec:
    """The guest of these arguments, of which None is as good as none; ``option`` is before their names in errors.

    Raises UsageError for unknown names or values, and for what does not go together.
    """
    for name in arguments:
        if name not in GuestSpec.model_fields:
            raise UsageError(unknown("argument", name, guest_arguments()))
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return GuestSpec.model_validate(given, context=ValidationContext(qemu_cpu_names))
    except ValidationError as error:
        problems = problems_of(error, lambda path: "unknown key")
        sentences = [f"{option}{problem.path[0]}: {problem.sentence}" for problem in problems]
        raise UsageError("; ".join(sentences)) from None
