# SPDX-License-Identifier: GPL-2.0-only
"""A probe point in the program that makes the calls, as an experiment names it: ``FILE:SYMBOL+OFFSET``.

``FILE`` is ``program``, or a library that the program is linked with: ``libc.so.6:malloc``. No point of the kernel
has a colon.
"""

from __future__ import annotations

from dataclasses import dataclass

PROGRAM = "program"


@dataclass(frozen=True)
class ProgramPoint:
    """A place in ``file``, ``offset`` bytes behind the beginning of ``symbol``, or the static point PROVIDER:NAME."""

    file: str
    symbol: str
    offset: int

    @property
    def library(self) -> str | None:
        """The name of the library that it is in; None for the program itself."""
        return None if self.file == PROGRAM else self.file


def in_program(point: str | None) -> ProgramPoint | None:
    """The place in the program or one of its libraries; None for a place in the kernel, or for none."""
    file, colon, place = (point or "").partition(":")
    if not colon:
        return None
    symbol, _, offset = place.partition("+")
    return ProgramPoint(file, symbol, int(offset or "0", 0))
