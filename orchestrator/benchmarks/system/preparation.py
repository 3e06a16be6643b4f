# SPDX-License-Identifier: GPL-2.0-only
"""What a whole-system workload's cell needs before its guest starts: its programs, and the module to load."""

from __future__ import annotations

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.system import recording
from orchestrator.benchmarks.system.task import SystemCell
from orchestrator.benchmarks.system.work import Beside, fetch_work
from orchestrator.catalog.probes import probe_kind
from orchestrator.errors import UnsupportedError
from orchestrator.run.preparation import (
    Prepared,
    Ready,
    Refused,
    compiler_note,
    module_outcomes,
    parameters_note,
    smp_note,
    unsupported,
    with_parameters,
)


def prepare_cell(context: BuildContext, kernel: Kernel, cell: SystemCell) -> Prepared[Beside | None]:
    """Prepare a cell's module, if any, and its programs. Raises UsageError, HostError without its image or source."""
    reason = recording.unsupported_reason(kernel, cell)
    if reason is not None:
        return unsupported(reason)
    try:
        keys = fetch_work(context, kernel, cell.task)
    except UnsupportedError as error:
        return unsupported(str(error))
    source = recording.module_source(kernel, cell)
    wanted = {} if source is None else {cell.id: source}
    module = module_outcomes(context, kernel, wanted).get(cell.id)
    given = probe_kind(cell.task.probe).parameters
    if isinstance(module, Module) and given:
        module = with_parameters(module, given)
    if isinstance(module, Refused):
        return module
    notes = (
        *smp_note(kernel, cell.smp),
        *compiler_note(kernel, module),
        *parameters_note(given),
        *recording.passed_notes(kernel, cell),
    )
    return Ready(recording.beside(cell, module), () if module is None else (module,), notes, keys)
