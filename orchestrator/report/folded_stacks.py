# SPDX-License-Identifier: GPL-2.0-only
"""A profile's stacks, folded: a line for each, as flame graph programs read them."""

from __future__ import annotations

from orchestrator.results.call_tree import check_stacks
from orchestrator.results.profile import CellProfile


def folded_text(profile: CellProfile) -> str:
    """Names with semicolons between, and the instructions of the last one in all calls.

    Raises UsageError where there are none.
    """
    check_stacks(profile)
    return "".join(f"{folded} {count}\n" for folded, count in profile.stacks)
