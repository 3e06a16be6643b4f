# SPDX-License-Identifier: GPL-2.0-only
"""Cells without a number, grouped by the reason that they share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from orchestrator.results.contract import CellRecord

_OF_ONE_BOOT = re.compile(r"\[ *\d+\.\d+\]|\b(?:0x)?[0-9a-f]{8,16}\b|\b[0-9a-f]{24}\b")
"""What differs between two guests whose kernels say the same: when it was said, addresses, and places in the cache."""


def shared_key(text: str) -> str:
    """What is the same in two texts that say the same of two guests."""
    return _OF_ONE_BOOT.sub("", text)


def by_reason(cells: Iterable[CellRecord]) -> list[Sequence[CellRecord]]:
    """Return the cells without a number, those of one status and reason together; the first one's words stand for all.

    In the order of each reason's first cell.
    """
    groups: dict[tuple[str, str], list[CellRecord]] = {}
    for cell in cells:
        if cell.reason is not None:
            groups.setdefault((cell.status, shared_key(cell.reason)), []).append(cell)
    return list(groups.values())
