# SPDX-License-Identifier: GPL-2.0-only
"""The microbenchmarks of the markers document of 2006, row by row, with the published figures."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from orchestrator.catalog.data import CatalogEntry, read

BENCHMARK = "markers"
PREFIX = "marker."
"""The prefix of the rows' names among the probes of an experiment."""

Place = Literal["loop", "immediate", "flag", "static_key", "tracepoint", "int3"]
Flavour = Literal["optimized", "generic"]


class RowDifference(CatalogEntry):
    """The difference between the costs of two rows, and its cause; ``published`` is in cycles a loop."""

    row: str
    what: str
    published: float | None = None


class MarkerRow(CatalogEntry):
    """A loop, the probe connected to its marker, and the place that is patched; ``published`` is in cycles a loop.

    ``copies``: the probe copies its arguments. ``int3``: breakpoint traps a hit.
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
    minus: RowDifference | None = None


class Conclusion(CatalogEntry):
    """A difference that the document's conclusion mentions."""

    row: str
    minus: str
    what: str
    published: float


class PublishedSize(CatalogEntry):
    """Bytes that a marker adds by the document."""

    likely: int
    unlikely: int
    flag: int
    sections: dict[str, int]


class MarkerBenchmarks(CatalogEntry):
    """All rows in the document's order; ``listed_as`` is the benchmark's title in a list."""

    title: str
    listed_as: str
    source: str
    unit: str
    groups: dict[str, str]
    rows: dict[str, MarkerRow]
    conclusions: list[Conclusion]
    sizes: dict[Flavour, PublishedSize]


@lru_cache(maxsize=1)
def marker_benchmarks() -> MarkerBenchmarks:
    """The document's microbenchmarks."""
    return MarkerBenchmarks.model_validate(read("rows.yaml", __package__))


def marker_row(probe: str) -> MarkerRow | None:
    """The row of a probe's name, the empty loop for the baseline; None for any other name."""
    if probe == "none":
        return marker_benchmarks().rows["empty"]
    return marker_benchmarks().rows.get(probe.removeprefix(PREFIX)) if probe.startswith(PREFIX) else None
