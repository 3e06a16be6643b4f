# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of probe, how each is made, and what must prove it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from orchestrator.catalog.data import Fact, named, read

BASELINE = "none"
"""The probe kind that is no probe: what every overhead is measured against."""

Mechanism = Literal["none", "int3", "jump", "detour", "ftrace", "jmp", "pointer", "tracepoint"]
Site = Literal["function", "kprobe", "ftrace", "hook", "tracepoint"]
Handler = Literal["noop", "count", "record"]
"""What a hit does: nothing, count itself, or write a 64-byte event into a ring."""


class ProbeKind(Fact):
    """A kind of probe: a mechanism at a point.

    ``title`` heads its column in a report, ``column`` is its key in the published tables (None: not published),
    ``int3_per_hit`` its breakpoint traps, ``site`` what is looked at for evidence,
    ``template`` its module in ``kmods/modules.yaml`` (None: nothing is loaded), ``optimisation`` the value of
    ``debug.kprobes-optimization`` while it is loaded.
    """

    name: str
    title: str
    column: str | None
    template: str | None
    site: Site
    mechanism: Mechanism
    int3_per_hit: int
    at: Literal["entry", "after-ftrace-nop"]
    optimisation: bool


@lru_cache(maxsize=1)
def probes() -> Mapping[str, ProbeKind]:
    """Return the probe kinds by name, in the documents' order."""
    return named(ProbeKind, read("probes.yaml"))
