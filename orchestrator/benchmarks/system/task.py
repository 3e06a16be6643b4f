# SPDX-License-Identifier: GPL-2.0-only
"""What one cell of a whole-system workload runs, and the probe or module beside it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.benchmarks.system.workloads import WorkloadName
from orchestrator.experiment.cell import Cell


@dataclass(frozen=True)
class SystemTask:
    """Whole programs to run: the workload with its amount, and the conditions.

    ``scope`` is of kernel-build, ``packets`` of ping-flood, ``command`` (a program and its arguments) of command.
    ``image`` is a recipe's name or path; None is the workload's own. ``warm`` is the number of runs after the cold one.
    ``seed`` decides the random numbers, ``phase_us`` (microseconds, below a second) when the work begins between two
    timer ticks: A/A boots of the baseline differ in both. ``aa_boot`` numbers them, 0 is the baseline itself.

    ``probe`` is a catalogue's name, which records the ``events``, or the path of a user's module.
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
