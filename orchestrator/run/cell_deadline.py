# SPDX-License-Identifier: GPL-2.0-only
"""A cell's time limit."""

from __future__ import annotations

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestHang


class CellDeadline(Deadline):
    """A cell's time limit in seconds, starting now."""

    def left(self) -> float:
        """Seconds left. Raises GuestHang if none."""
        left = super().left()
        if left <= 0:
            raise GuestHang(f"the cell's time limit of {self.limit} s is over", hint="raise it: --set time_limit=...")
        return left
