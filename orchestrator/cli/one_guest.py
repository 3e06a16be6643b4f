# SPDX-License-Identifier: GPL-2.0-only
"""What ``exec`` and ``shell`` have in common: a guest chosen on the command line, its modules, its console's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion

if TYPE_CHECKING:
    from orchestrator.guest.guest import Guest
    from orchestrator.guest.machine import Machine, Timing


class Accel(StrEnum):
    """How the guest's time passes."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"
    INSTRUCTIONS = "instructions"


Kernel = Annotated[
    str,
    typer.Option(
        help="Kernel name (orchestrator list kernels), or the path of a build tree of your own.",
        autocompletion=completion.kernels,
    ),
]
Cpu = Annotated[
    str | None,
    typer.Option(help="CPU model; default: pentium4, or xeon-e5410 for 64 bit.", autocompletion=completion.cpus),
]
Smp = Annotated[int, typer.Option(min=1, max=16, help="Virtual CPUs.")]
Memory = Annotated[int, typer.Option(min=64, max=4096, help="Memory in MiB.")]
AccelOption = Annotated[Accel, typer.Option(help="auto: KVM where it is really fast; instructions: exact clock.")]
Modules = Annotated[list[Path] | None, typer.Option(help="A .ko to load first; may be repeated.")]
ConsoleLog = Annotated[Path | None, typer.Option(help="Keep the guest's console log in this folder.")]


@dataclass(frozen=True)
class Choice:
    """A guest as the command line asks for it."""

    kernel: str
    cpu: str | None
    smp: int
    memory: int
    accel: Accel
    modules: Sequence[Path]
    offline: bool

    def machine(self) -> Machine:
        """The machine, its parts fetched and built. Raises UsageError for a choice that cannot be, HostError."""
        from orchestrator.artifacts.kernels import ready_kernel
        from orchestrator.catalog.cpus import cpu as cpu_model
        from orchestrator.catalog.cpus import cpus
        from orchestrator.catalog.kernels import kernel as kernel_spec
        from orchestrator.catalog.spelling import unknown
        from orchestrator.cli.workshop import open_workshop
        from orchestrator.errors import UsageError
        from orchestrator.experiment.machines import machine_for
        from orchestrator.guest.emulator import qemu_cpu_names

        spec = kernel_spec(self.kernel)
        name = self.cpu or ("xeon-e5410" if spec.needs_long_mode else "pentium4")
        if name not in cpus() and name not in qemu_cpu_names():
            raise UsageError(unknown("CPU", name, cpus()))
        objection = spec.objection(cpu_model(name))
        if objection is not None:
            raise UsageError(objection)
        for path in self.modules:
            if not path.is_file():
                raise UsageError("no such module file", where=str(path))
        timing = self._timing()
        workshop = open_workshop(offline=self.offline)
        kernel = ready_kernel(workshop, spec)
        return machine_for(workshop, kernel, cpu_model(name), smp=self.smp, memory_mib=self.memory, timing=timing)

    def load_modules(self, guest: Guest) -> None:
        """Load the modules that were asked for. Raises RefusedError with the kernel's words."""
        from orchestrator.probes.loading import load

        for path in self.modules:
            load(guest, path.stem.replace("-", "_"), path)

    def _timing(self) -> Timing:
        from orchestrator.errors import UsageError
        from orchestrator.guest.accelerator import choose_accelerator

        if self.accel is Accel.INSTRUCTIONS:
            if self.smp != 1:
                raise UsageError("the exact clock needs one virtual CPU", hint="leave out --smp, or take --accel tcg")
            return "instructions"
        return choose_accelerator(self.accel.value).name


@contextmanager
def console_folder(wanted: Path | None) -> Iterator[Path]:
    """The folder for the console log; one that nobody asked for is kept only when an error names a file in it."""
    import shutil
    import tempfile

    from orchestrator.errors import GuestError

    directory = wanted or Path(tempfile.mkdtemp(prefix="orchestrator-"))
    directory.mkdir(parents=True, exist_ok=True)
    keep = wanted is not None
    try:
        yield directory
    except GuestError as error:
        keep = keep or error.where.startswith(str(directory))
        raise
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
