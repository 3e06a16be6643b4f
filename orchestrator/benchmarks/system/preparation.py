# SPDX-License-Identifier: GPL-2.0-only
"""What a whole-system workload's cell needs before its guest starts: its programs, and the module beside them."""

from __future__ import annotations

from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.artifacts.prebuilt import prebuilt
from orchestrator.benchmarks.system import recording
from orchestrator.benchmarks.system.task import SystemCell
from orchestrator.benchmarks.system.work import Beside, fetch_work
from orchestrator.errors import BuildError, UnsupportedError
from orchestrator.run.preparation import Prepared, Ready, compiler_note, failed, smp_note, unsupported


def prepare_cell(context: BuildContext, kernel: Kernel, cell: SystemCell) -> Prepared[Beside | None]:
    """What became of the cell. Raises UsageError, HostError where its image or source cannot be had."""
    reason = recording.unsupported_reason(kernel, cell)
    if reason is not None:
        return unsupported(reason)
    try:
        fetch_work(context, kernel, cell.task)
    except UnsupportedError as error:
        return unsupported(str(error))
    module = _module(context, kernel, cell)
    if isinstance(module, str):
        return unsupported(module)
    if isinstance(module, BuildError):
        return failed(module)
    notes = (*smp_note(kernel, cell.smp), *compiler_note(kernel, module))
    return Ready(recording.beside(cell, module), () if module is None else (module,), notes)


def _module(context: BuildContext, kernel: Kernel, cell: SystemCell) -> Module | BuildError | str | None:
    """The module, or why it did not build; a text where the user's own cannot be on this kernel."""
    source = recording.module_source(kernel, cell)
    if source is None:
        return None
    return prebuilt(source, kernel) if isinstance(source, Path) else build_modules(context, kernel, [source])[0]
