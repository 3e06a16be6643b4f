# SPDX-License-Identifier: GPL-2.0-only
"""The result of a benchmark of many probes: samples for each of its rows, and one proof for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import EvidenceError
from orchestrator.results.profile import Unit


@dataclass(frozen=True)
class ScalingProof:
    """Observations: ``mechanism`` and bytes of the first target while armed and before, its address, hits and calls.

    ``others`` are unintended hits of probes while these were enabled or disabled.
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
    """The mechanism that live bytes (in hex) show. Raises EvidenceError for any but a breakpoint or ftrace."""
    for byte, mechanism in (("cc", "int3"), ("e8", "ftrace")):
        if live.startswith(byte):
            return mechanism
    raise EvidenceError(f"at an enabled kprobe there is neither a breakpoint nor a call of the function tracer: {live}")


@dataclass(frozen=True)
class MarkedSteps:
    """The steps of a row that a profile is of: ``numbers`` among all that are marked, the ``ticks`` that each took.

    Together they have done ``count`` of what ``unit`` says. ``again`` is a step that did the same once more.
    """

    numbers: Sequence[int]
    ticks: Sequence[int]
    count: int
    unit: Unit
    again: int | None = None


@dataclass(frozen=True)
class ScalingFigures:
    """Samples in TSC units by row, BASELINE included, and further facts: of each row, and of the whole work.

    The rows ``compared`` have an overhead over the baseline. ``marked`` are the steps of each row that has a profile.
    """

    samples: Mapping[str, tuple[float, ...]]
    proof: ScalingProof
    facts: Mapping[str, int]
    compared: frozenset[str]
    row_facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    marked: Mapping[str, MarkedSteps] = field(default_factory=dict)
