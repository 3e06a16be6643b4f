# SPDX-License-Identifier: GPL-2.0-only
"""The life of a guest of a command or a program, in a ``with`` block."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import repeat
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.opening_cores import opening_command
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.errors import GuestError, LabError
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.guest import Guest
from orchestrator.library.tested_guest import TestedGuest
from orchestrator.run.debugging import Debugging
from orchestrator.run.machines import machine_for
from orchestrator.steps import LOG_NAME, step_log


@contextmanager
def running_guest(context: BuildContext, spec: GuestSpec) -> Iterator[TestedGuest]:
    """The guest that is asked for, which ends with the block; paths of modules are relative to the current folder.

    Raises UsageError, HostError, GuestError, and GuestOops at the end of the block if the kernel has reported trouble.
    """
    kernel = ready_kernel(context, spec.kernel_spec)
    machine = machine_for(context, kernel, spec)
    with log_folder(None) as directory:
        guest = TestedGuest(context, kernel, machine, directory, repeat("guest"))
        try:
            guest.start(fresh=spec.fresh)
            guest.begin_test(Path.cwd(), spec.allow_oops)
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


@contextmanager
def wait_for_gdb(context: BuildContext, spec: GuestSpec, modules: Sequence[Module], guest: Guest) -> Iterator[None]:
    """Stop a guest with these modules loaded until gdb has attached, which stays until the end of the block.

    Raises GuestError, HostError.
    """
    kernel = ready_kernel(context, spec.kernel_spec)
    with closing(Debugging(context, kernel, modules, context.say).attach(guest)) as attachment:
        attachment.wait_until_attached()
        yield


def leave_core(context: BuildContext, spec: GuestSpec, guest: Guest) -> None:
    """Have a guest with a ``core_file`` leave its vmcore, if it has left none before, and say how to open it."""
    guest.keep_core()
    core = guest.core_file
    if core is not None and core.exists():
        context.say(f"vmcore: {core}")
        context.say(f"to open it: {opening_command(context, _unchanged_kernel(context, spec), core)}")


def _unchanged_kernel(context: BuildContext, spec: GuestSpec) -> Kernel | None:
    """The guest's kernel; None if its tree was edited or rebuilt while the guest ran."""
    try:
        return ready_kernel(context, spec.kernel_spec)
    except (LabError, OSError):
        return None
