# SPDX-License-Identifier: GPL-2.0-only
"""One combination of an experiment's table: everything that a number depends on."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.benchmarks.calls.call_programs import Argument
from orchestrator.benchmarks.system.table import MacroMatrix
from orchestrator.benchmarks.system.workloads import MacroName
from orchestrator.catalog.benchmarks import Entry
from orchestrator.catalog.probes import BASELINE, Handler
from orchestrator.experiment.table import DEFAULT_MEMORY, Machine, Matrix
from orchestrator.guest.machine import ChannelKind
from orchestrator.results.contract import Clock


@dataclass(frozen=True)
class MacroTask:
    """What a whole-system workload's cell runs, and the cells it is compared with.

    ``baseline`` is the id of the first kernel's cell without a probe, ``others`` those of the same in ``again`` other
    circumstances; ``again`` is the number of these, 0 for the usual ones. ``events`` are the groups that probes record.
    """

    name: MacroName
    scope: str | None
    packets: int | None
    command: tuple[str, ...]
    image: str | None
    again: int
    events: tuple[str, ...]
    baseline: str
    others: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One combination to measure: everything that a number depends on, and the table to print beside it.

    ``kernel`` and ``image`` are a catalogue's names or absolute paths, ``memory_mib`` in MiB, ``time_limit`` in seconds
    of the host's time, ``reference`` a published table's id, ``table`` the experiment's own (None where it has but
    one). ``probe`` is such a name or path too, ``point`` None where the benchmark's own function is probed.
    ``call``, ``arguments``, ``file`` and ``hits`` are the benchmark's, and so are ``size``, a number of probes, and
    ``seed``: None and unused where it is not one of many probes. A whole-system workload has a ``macro``.
    """

    id: str
    table: str | None
    cpu: str
    smp: int
    memory_mib: int
    kernel: str
    point: str | None
    probe: str
    handler: Handler
    benchmark: str
    calls: int
    repeats: int
    entry: Entry
    call: str | None
    arguments: tuple[Argument, ...]
    file: str | None
    hits: int
    size: int | None
    seed: int
    clock: Clock
    image: str | None
    channel: ChannelKind
    reference: str | None
    time_limit: int
    macro: MacroTask | None = None


def probes_on(matrix: Matrix | MacroMatrix) -> dict[str, list[str]]:
    """Each kernel's probes, the baseline first: the table's kernels, then those that single probes have instead."""
    everywhere = [probe for probe in matrix.probes if probe not in (BASELINE, *matrix.kernel_for)]
    probes_on = {kernel: [BASELINE, *everywhere] for kernel in matrix.kernels}
    for probe in matrix.probes:
        if probe in matrix.kernel_for:
            probes_on.setdefault(matrix.kernel_for[probe], [BASELINE]).append(probe)
    return probes_on


def machine_id(machine: Machine) -> str:
    """The part of a cell's id that tells its machine."""
    # No CPU's name has a plus in it, so no two machines share an id.
    count = f"+x{machine.smp}" if machine.smp > 1 else ""
    memory = f"+{machine.memory}" if machine.memory != DEFAULT_MEMORY else ""
    return f"{machine.cpu}{count}{memory}"
