# SPDX-License-Identifier: GPL-2.0-only
"""What a benchmark of many probes comes to: samples for each of its rows, and one proof for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.errors import EvidenceError


@dataclass(frozen=True)
class ScalingProof:
    """What was seen: ``mechanism`` and bytes of the first target while armed and before, its address, hits and calls.

    ``others`` are hits of probes that nobody meant to hit while they were enabled or disabled.
    """

    mechanism: str
    live: str
    original: str
    address: int
    symbol: str
    hits: int
    calls: int
    others: int | None = None


def mechanism_of(live: str) -> str:
    """How a place is hit whose live bytes (in hex) are these. Raises EvidenceError for any but the two ways."""
    for byte, mechanism in (("cc", "int3"), ("e8", "ftrace")):
        if live.startswith(byte):
            return mechanism
    raise EvidenceError(f"at an enabled kprobe there is neither a breakpoint nor a call of the function tracer: {live}")


@dataclass(frozen=True)
class ScalingFigures:
    """Samples in TSC units by row (BASELINE's too), and what else is known: of each row, and of the whole work.

    Of the rows ``compared`` there is an overhead over the baseline.
    """

    samples: Mapping[str, tuple[float, ...]]
    proof: ScalingProof
    facts: Mapping[str, int]
    compared: frozenset[str]
    row_facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
