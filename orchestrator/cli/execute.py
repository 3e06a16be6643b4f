# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator exec``: boot a guest, run one command in it, exit with its status."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.failures import expected_failures

if TYPE_CHECKING:
    from orchestrator.guest.framed import Frame
    from orchestrator.guest.guest import Guest
    from orchestrator.guest.machine import Timing


class Accel(StrEnum):
    """How the guest's time passes."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"
    INSTRUCTIONS = "instructions"


@expected_failures
def execute(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run in the guest.")],
    kernel: options.Kernel = "debian-686",
    cpu: Annotated[str | None, typer.Option(help="CPU model; default: pentium4, or xeon-e5410 for 64 bit.")] = None,
    smp: Annotated[int, typer.Option(min=1, max=16, help="Virtual CPUs.")] = 1,
    memory: Annotated[int, typer.Option(min=64, max=4096, help="Memory in MiB.")] = 256,
    accel: Annotated[
        Accel, typer.Option(help="auto: KVM where it is really fast; instructions: exact clock.")
    ] = Accel.AUTO,
    module: Annotated[list[Path] | None, typer.Option(help="A .ko to load first; may be repeated.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds the command may take.")] = 600.0,
    console: Annotated[Path | None, typer.Option(help="Keep the guest's console log in this folder.")] = None,
    offline: options.Offline = False,
) -> None:
    """Boot a guest, run a command in it, print its output as it comes, and exit with its status."""
    from orchestrator.artifacts.kernels import ready_kernel
    from orchestrator.catalog.cpus import cpu as cpu_model
    from orchestrator.catalog.cpus import cpus
    from orchestrator.catalog.kernels import kernel as kernel_spec
    from orchestrator.catalog.spelling import unknown
    from orchestrator.cli.workshop import open_workshop
    from orchestrator.errors import UsageError
    from orchestrator.experiment.machines import machine_for
    from orchestrator.guest.emulator import qemu_cpu_names
    from orchestrator.guest.guest import Guest

    spec = kernel_spec(kernel)
    name = cpu or ("xeon-e5410" if spec.needs_long_mode else "pentium4")
    if name not in cpus() and name not in qemu_cpu_names():
        raise UsageError(unknown("CPU", name, cpus()))
    objection = spec.objection(cpu_model(name))
    if objection is not None:
        raise UsageError(objection)
    for path in module or []:
        if not path.is_file():
            raise UsageError("no such module file", where=str(path))
    timing = _timing(accel, smp)
    workshop = open_workshop(offline=offline)
    built = ready_kernel(workshop, spec)
    machine = machine_for(workshop, built, cpu_model(name), smp=smp, memory_mib=memory, timing=timing)
    with _logs(console) as directory, Guest(machine, directory) as guest:
        for path in module or []:
            _load(guest, path)
        result = guest.run(command, time_limit=timeout, listener=_print)
    raise typer.Exit(result.status)


@contextmanager
def _logs(wanted: Path | None) -> Iterator[Path]:
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


def _timing(accel: Accel, smp: int) -> Timing:
    from orchestrator.errors import UsageError
    from orchestrator.guest.accelerator import choose_accelerator

    if accel is Accel.INSTRUCTIONS:
        if smp != 1:
            raise UsageError("the exact clock needs one virtual CPU", hint="leave out --smp, or take --accel tcg")
        return "instructions"
    return choose_accelerator(accel.value).name


def _load(guest: Guest, path: Path) -> None:
    from orchestrator.errors import CommandFailed

    target = f"/tmp/{path.name}"  # noqa: S108 - in the guest
    guest.put(path, target)
    result = guest.run(["insmod", target])
    if result.status != 0:
        log = guest.run(["dmesg"]).text.splitlines()[-5:]
        said = result.stderr.decode("utf-8", errors="replace").strip()
        raise CommandFailed(f"the guest's kernel did not accept {path.name}: {said}", detail=log)


def _print(kind: Frame, data: bytes) -> None:
    from orchestrator.guest.framed import Frame

    stream = sys.stdout if kind is Frame.STDOUT else sys.stderr
    stream.buffer.write(data)
    stream.buffer.flush()
