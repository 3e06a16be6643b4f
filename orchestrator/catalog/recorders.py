# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of probe that can record all of the standard kernel events at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from orchestrator.catalog.data import Fact, named, read
from orchestrator.catalog.probes import Mechanism

RecorderName = Literal["marker", "djprobe", "kprobe", "kprobe-boosted", "kprobe-optimized", "jprobe"]


class RecorderKind(Fact):
    """A kind of recorder: its name in the recording module, the mechanism of its hits, and the evidence of that.

    ``live`` is the first bytes (in hex) of each place while it records, ``optimisation`` the value of
    ``debug.kprobes-optimization``, ``missed`` the largest share of hits whose handler may be left out.
    """

    name: str
    module: RecorderName
    mechanism: Mechanism
    live: str
    optimisation: bool
    missed: float


@lru_cache(maxsize=1)
def recorder_kinds() -> Mapping[str, RecorderKind]:
    """Return them by the name of the kind of probe."""
    return named(RecorderKind, read("recorders.yaml"))
