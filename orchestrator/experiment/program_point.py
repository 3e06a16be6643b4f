# SPDX-License-Identifier: GPL-2.0-only
"""A probe point in the program that makes the calls, as an experiment names it: ``program:SYMBOL+OFFSET``."""

from __future__ import annotations

_PREFIX = "program:"


def in_program(point: str | None) -> str | None:
    """The place in the program, ``SYMBOL`` or ``SYMBOL+OFFSET``; None for a place in the kernel, or for none."""
    return point.removeprefix(_PREFIX) if point is not None and point.startswith(_PREFIX) else None


def split_place(place: str) -> tuple[str, int]:
    """A place's symbol, and the bytes behind its beginning."""
    symbol, _, offset = place.partition("+")
    return symbol, int(offset or "0", 0)
