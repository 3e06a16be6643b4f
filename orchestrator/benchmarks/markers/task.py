# SPDX-License-Identifier: GPL-2.0-only
"""What one cell of markers measures."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.experiment.cell import Cell


@dataclass(frozen=True)
class MarkerTask:
    """One row of the document by its name, ``marker.ROW``; ``none`` is the empty loop."""

    row: str


MarkerCell = Cell[MarkerTask]
