# SPDX-License-Identifier: GPL-2.0-only
"""The life of a guest of a command or a program, in a ``with`` block."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import ready_kernel
from orchestrator.errors import GuestError
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.library.tested_guest import TestedGuest
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
