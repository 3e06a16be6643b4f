# SPDX-License-Identifier: GPL-2.0-only
"""The cells of a whole-system workload's table, in their order."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.benchmarks.system.table import Macro, MacroMatrix
from orchestrator.benchmarks.system.workloads import macro_benchmarks
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import BASELINE, Handler, probe_kind
from orchestrator.catalog.user_probe import is_path
from orchestrator.experiment.cell import Cell, MacroTask, machine_id, probes_on
from orchestrator.experiment.table import Machine

_SHORTEST_LIMIT = 600
_HOST_SECONDS = 20
"""Of the host's, for each of the guest's: an emulator takes four, a busy host and a first run more."""
_PACKETS_PER_SECOND = 10_000
"""Of the guest's time: a few times fewer than any kernel answers."""


def macro_cells(table: str | None, matrix: MacroMatrix) -> Iterator[Cell]:
    """The cells: of each machine the first kernel without a probe, the same again, and what is compared with it.

    Each has a boot of its own, whose work begins with the guest's.
    """
    first = matrix.kernels[0]
    for machine in matrix.machines:
        baseline = _id(table, machine, first, BASELINE)
        others = tuple(f"{baseline}/again{number}" for number in range(1, matrix.macro.again + 1))
        planned = [(first, BASELINE, id_, again) for again, id_ in enumerate((baseline, *others))]
        for kernel, probes in probes_on(matrix).items():
            # Of any other kernel it is to be seen what it takes by itself, and what the probe or the module does.
            alone = [] if kernel == first else [BASELINE]
            for probe in (*alone, *(probe for probe in probes if probe != BASELINE)):
                planned.append((kernel, probe, _id(table, machine, kernel, probe), 0))
        for kernel, probe, id_, again in planned:
            task = MacroTask(
                name=matrix.macro.name,
                scope=matrix.macro.scope,
                packets=matrix.macro.packets,
                command=matrix.macro.command or (),
                image=matrix.image,
                again=again,
                events=matrix.macro.events or (),
                baseline=baseline,
                others=others,
            )
            yield _cell(table, matrix, machine, kernel, probe, id_, task)


def _cell(
    table: str | None, matrix: MacroMatrix, machine: Machine, kernel: str, probe: str, id_: str, task: MacroTask
) -> Cell:
    macro = matrix.macro
    assert macro.repeats is not None
    handler: Handler = "noop" if probe == BASELINE or is_path(probe) else "record"
    return Cell(
        id=id_,
        table=table,
        cpu=machine.cpu,
        smp=machine.smp,
        memory_mib=machine.memory_mib,
        kernel=kernel,
        point=None,
        probe=probe,
        handler=handler,
        benchmark=macro.name,
        calls=1,
        repeats=macro.repeats,
        entry="auto",
        call=None,
        arguments=(),
        file=None,
        hits=1,
        size=None,
        seed=macro.seed,
        clock=matrix.clock,
        image=None,
        channel="framed",
        reference=matrix.reference,
        time_limit=matrix.time_limit or _time_limit(macro),
        macro=task,
    )


def _time_limit(macro: Macro) -> int:
    """Seconds of the host's time that a run may take: several times what an emulator needs on a busy host."""
    seconds = macro_benchmarks().scopes[macro.scope].seconds if macro.scope else 0
    return _SHORTEST_LIMIT + _HOST_SECONDS * (seconds + (macro.packets or 0) // _PACKETS_PER_SECOND)


def _id(table: str | None, machine: Machine, kernel: str, probe: str) -> str:
    parts = [machine_id(machine), kernel_spec(kernel).name, probe_kind(probe).name]
    return "/".join([table, *parts] if table is not None else parts)
