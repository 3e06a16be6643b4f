# SPDX-License-Identifier: GPL-2.0-only
"""The microbenchmarks of the markers document of 2006, row by row, with what was published."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from orchestrator.catalog.data import Fact, read

PREFIX = "marker."
"""What the rows' names begin with where they stand among the probes of an experiment."""
BASELINE_ROW = "empty"

Place = Literal["loop", "immediate", "flag", "static_key", "tracepoint", "int3"]


class Difference(Fact):
    """What a row costs more than another one, and why; ``published`` in cycles a loop."""

    row: str
    what: str
    published: float | None = None


class MarkerRow(Fact):
    """One loop, what is connected to its marker, and where to look for that; ``published`` in cycles a loop.

    ``copies`` says that the probe keeps what it is told, ``int3`` how many breakpoint traps a hit takes.
    """

    title: str
    group: str
    loop: str
    rounds: int
    place: Place
    probe: str | None = None
    counting: str | None = None
    copies: bool = False
    guarded: bool = False
    on_stack: bool = False
    int3: int = 0
    published: float | None = None
    minus: Difference | None = None


class Conclusion(Fact):
    """A difference that the document's conclusion speaks of."""

    row: str
    minus: str
    what: str
    published: float


class PublishedSize(Fact):
    """Bytes that a marker adds by the document."""

    likely: int
    unlikely: int
    flag: int
    sections: dict[str, int]


class MarkerBenchmarks(Fact):
    """All of them, in the document's order; ``listed_as`` is the benchmark's title in a list."""

    title: str
    listed_as: str
    source: str
    unit: str
    groups: dict[str, str]
    rows: dict[str, MarkerRow]
    conclusions: list[Conclusion]
    sizes: dict[Literal["optimized", "generic"], PublishedSize]


@lru_cache(maxsize=1)
def marker_benchmarks() -> MarkerBenchmarks:
    """Return the document's microbenchmarks."""
    return MarkerBenchmarks.model_validate(read("rows.yaml", __package__))


def marker_row(probe: str) -> MarkerRow | None:
    """Return the row that a probe's name means, the empty loop for the baseline; None where it means none."""
    if probe == "none":
        return marker_benchmarks().rows[BASELINE_ROW]
    return marker_benchmarks().rows.get(probe.removeprefix(PREFIX)) if probe.startswith(PREFIX) else None
