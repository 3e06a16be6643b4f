# SPDX-License-Identifier: GPL-2.0-only
"""What one cell of a whole-system workload runs, and what is beside it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.benchmarks.system.workloads import WorkloadName
from orchestrator.experiment.cell import Cell


@dataclass(frozen=True)
class SystemTask:
    """Whole programs to run: what the workload is to do, and around it.

    ``scope`` is of kernel-build, ``packets`` of ping-flood, ``command`` (a program and its arguments) of command. An
    ``image`` is named as elsewhere; None is the workload's own. ``warm`` is the number of runs after the cold one.
    Boots that differ in ``seed`` and ``phase_us`` (below a second) have other random numbers, and begin at another
    moment between two timer ticks: ``aa_boot`` numbers those of the baseline, 0 is the usual one.

    ``probe`` is beside it: a catalogue's name, which records the ``events``, or the path of a user's module.
    """

    name: WorkloadName
    probe: str = "none"
    scope: str = ""
    packets: int = 0
    command: tuple[str, ...] = ()
    image: str | None = None
    warm: int = 3
    seed: int = 1
    phase_us: int = 0
    aa_boot: int = 0
    events: tuple[str, ...] = ()


SystemCell = Cell[SystemTask]
