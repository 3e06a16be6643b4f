# SPDX-License-Identifier: GPL-2.0-only
"""What one cell of many probes measures."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.experiment.cell import Cell


@dataclass(frozen=True)
class ScalingTask:
    """One row of the benchmark (``none`` is its baseline) with ``size`` probes, whose places are chosen by ``seed``."""

    row: str
    size: int
    seed: int


ScalingCell = Cell[ScalingTask]
