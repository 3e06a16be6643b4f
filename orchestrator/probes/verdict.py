# SPDX-License-Identifier: GPL-2.0-only
"""Whether something is possible, as far as a kernel's image says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """``is_possible`` is None where only the boot decides; ``reason`` is None where it is possible."""

    is_possible: bool | None
    reason: str | None = None


def no(reason: str) -> Verdict:
    """It is impossible."""
    return Verdict(is_possible=False, reason=reason)


YES = Verdict(is_possible=True)
PATCHED = Verdict(None, "the kernel may put other code there as it boots, for its CPU")
