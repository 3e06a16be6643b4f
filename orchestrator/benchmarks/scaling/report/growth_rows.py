# SPDX-License-Identifier: GPL-2.0-only
"""Growth exponents as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.report.figures import NOTHING
from orchestrator.report.grid import Row
from orchestrator.results.growth import Growth


def growth_rows(label: str, found: Sequence[Growth | None]) -> list[Row]:
    """Return the exponents of columns, and below them their intervals; no rows where no column has one."""
    if not any(found):
        return []
    exponents = [f"{one.exponent:.3f}" if one else NOTHING for one in found]
    intervals = [one.interval if one else None for one in found]
    rows = [Row(f"  {label}", exponents)]
    if any(intervals):
        rows.append(Row("    its interval", [f"{one[0]:.3f}-{one[1]:.3f}" if one else "" for one in intervals]))
    return rows
