# SPDX-License-Identifier: GPL-2.0-only
"""How much of its time a cell has left."""

from __future__ import annotations

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestHang


class CellDeadline:
    """A cell's time limit in seconds, which begins when this is made; see ``Deadline`` for what counts."""

    def __init__(self, limit: float) -> None:
        self._deadline = Deadline(limit)

    def left(self) -> float:
        """Seconds left. Raises GuestHang when there are none."""
        left = self._deadline.left()
        if left <= 0:
            limit = self._deadline.limit
            raise GuestHang(f"the cell's time limit of {limit} s is over", hint="raise it: --set time_limit=...")
        return left
