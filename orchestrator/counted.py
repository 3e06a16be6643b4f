# SPDX-License-Identifier: GPL-2.0-only
"""A number of things in words."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 cell``, ``2 cells``: a noun whose plural ends in s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
