# SPDX-License-Identifier: GPL-2.0-only
"""How much of its time a cell has left."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from orchestrator.errors import GuestHang


@dataclass(frozen=True)
class Deadline:
    """A cell's time limit in seconds of the host's, which begins when this is made."""

    limit: float
    _start: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds left. Raises GuestHang when there are none."""
        left = self._start + self.limit - time.monotonic()
        if left <= 0:
            raise GuestHang(f"the cell's time limit of {self.limit} s is over", hint="raise it: --set time_limit=...")
        return left
