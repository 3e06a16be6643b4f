# SPDX-License-Identifier: GPL-2.0-only
"""A table of marked loops."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, ValidationInfo

from orchestrator.benchmarks.markers.rows import PREFIX
from orchestrator.catalog.profile_parts import ProfilePart
from orchestrator.experiment.file.fields import Entries, one_of, whole
from orchestrator.experiment.table import DEFAULT_REPEATS, BenchmarkChoice, RowsTable


class MarkersBenchmark(BenchmarkChoice):
    """Samples of loops."""

    repeats: Annotated[int, whole(1, 100)] | None = None
    """Samples of each loop."""


def _with_repeats(benchmark: MarkersBenchmark, info: ValidationInfo) -> MarkersBenchmark:
    clock = info.data.get("clock")  # None where the clock itself is invalid
    if benchmark.repeats is not None or clock is None:
        return benchmark
    return benchmark.model_copy(update={"repeats": DEFAULT_REPEATS[clock]})


class MarkersTable(RowsTable):
    """Machines, kernels and rows of the markers document, of which every combination is a cell."""

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ("symbols", "classes")

    benchmark: Annotated[MarkersBenchmark, AfterValidator(_with_repeats)]
    profile: Entries[Annotated[ProfilePart, one_of(lambda: MarkersTable.PROFILE_PARTS)]] | None = None
    """What each cell says of where its instructions went."""

    def row_prefix(self) -> str:
        """The prefix of the rows' names."""
        return PREFIX
