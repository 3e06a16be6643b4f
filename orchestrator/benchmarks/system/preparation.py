# SPDX-License-Identifier: GPL-2.0-only
"""What a whole-system workload's cell needs before its guest starts: its programs, and the module to load."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.system import recording
from orchestrator.benchmarks.system.task import SystemCell
from orchestrator.benchmarks.system.work import Beside, SystemInputs, system_inputs
from orchestrator.catalog.probes import probe_kind
from orchestrator.errors import UnsupportedError
from orchestrator.run.preparation import (
    Prepared,
    Ready,
    Refused,
    compiler_note,
    module_outcomes,
    own_sources,
    parameters_note,
    smp_note,
    unsupported,
    with_parameters,
)


@dataclass(frozen=True)
class SystemSetup:
    """What a cell works with, and the module that is loaded beside its work, if any."""

    inputs: SystemInputs
    beside: Beside | None


def prepare_cell(context: BuildContext, kernel: Kernel, cell: SystemCell) -> Prepared[SystemSetup]:
    """Prepare a cell's module, if any, and its programs. Raises UsageError, HostError without its image or source."""
    reason = recording.unsupported_reason(kernel, cell)
    if reason is not None:
        return unsupported(reason)
    try:
        inputs = system_inputs(context, kernel, cell.task)
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
    setup = SystemSetup(inputs, recording.beside(cell, module))
    sources = own_sources(probe_kind(cell.task.probe), source, cell.task.image)
    return Ready(setup, () if module is None else (module,), notes, inputs.keys, sources)
