# SPDX-License-Identifier: GPL-2.0-only
"""A profile's stacks, folded: a line for each, as flame graph programs read them."""

from __future__ import annotations

from orchestrator.errors import UsageError
from orchestrator.results.profile import CellProfile


def folded_text(profile: CellProfile) -> str:
    """Names with semicolons between, and the instructions of the last one in all calls.

    Raises UsageError where there are none.
    """
    if not profile.stacks:
        hint = "measure with them: orchestrator run CONFIG --profile stacks"
        raise UsageError(f"the profile of cell {profile.cell} has no stacks", hint=hint)
    return "".join(f"{folded} {count}\n" for folded, count in profile.stacks)
