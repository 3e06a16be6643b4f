# SPDX-License-Identifier: GPL-2.0-only
"""What one process that makes timed calls does: how many calls, in which batches, after which other calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

WARMING_CALLS = 3
"""Calls directly before each batch of such samples. With LRU, whether a line is still in a cache depends on what was
accessed since its last use: one call makes that equal for level 1, two for level 2, three for a call that alternates
between two paths."""
WARM_UP_CALLS = 100
"""Calls of a process before its timed ones, as in ``bench.h``."""


@dataclass(frozen=True)
class Sampling:
    """What one process does: samples, with ``warming`` calls before each batch, then ``untimed`` calls one by one."""

    calls: int
    batch: int
    repeats: int
    untimed: int = 0
    is_marked: bool = False
    warming: int = 0
    is_single: bool = False

    @property
    def options(self) -> Sequence[str]:
        """The options of ``bench.c``."""
        numbers = {"-n": self.calls, "-b": self.batch, "-r": self.repeats, "-u": self.untimed}
        numbers |= {"-m": 1} if self.is_marked else {}
        numbers |= {"-w": self.warming} if self.warming else {}
        numbers |= {"-k": 1} if self.is_single else {}
        return [word for option, value in numbers.items() for word in (option, str(value))]

    def warmed(self) -> Sampling:
        """The same with warming calls, at most a quarter of a batch, which fills six tenths of a tick."""
        return replace(self, warming=min(WARMING_CALLS, self.batch // 4))


SOUNDING = Sampling(calls=50, batch=1, repeats=1)
"""Finds how large a batch may be."""


def calls_before_timed(argv: Sequence[str]) -> int | None:
    """Calls that a program with these arguments makes before its timed ones; None if it makes no samples of a cell."""
    given, sounding = dict(pairwise(argv)), [*SOUNDING.options]
    if "-b" not in given or [*argv[-len(sounding) :]] == sounding:
        return None
    return WARM_UP_CALLS + int(given.get("-w", "0"))
