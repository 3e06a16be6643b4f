# SPDX-License-Identifier: GPL-2.0-only
"""What one cell of readings does."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.experiment.cell import Cell


@dataclass(frozen=True)
class ReadingTask:
    """The guest's ``file``, by its absolute path, is read once a run."""

    file: str


ReadingCell = Cell[ReadingTask]
