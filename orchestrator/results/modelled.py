# SPDX-License-Identifier: GPL-2.0-only
"""Modelled times: ``report --clock modelled --format json`` prints these models.

Modelled times are computed from exact cells and price lists. None is measured or stored.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from orchestrator.catalog.cpus import CpuCaches
from orchestrator.results.contract import (
    CellId,
    Interval,
    Name,
    Number,
    Phrase,
    Reason,
    Record,
    ReferenceValue,
)

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Role = Literal["calibration", "predicted", "excluded"]


class ModelEvidence(Record):
    """The inputs of a modelled time."""

    cost_table: Phrase
    """The CPU of the price list."""
    cost_table_sha256: Digest
    baseline: CellId
    """The cell without a probe."""
    instructions: Number
    """What the probe adds to a call, by the counts of both cells and by the exact overhead."""
    counts: dict[Phrase, Number]
    """The same by price."""
    ranges: dict[Phrase, tuple[Number, Number]]
    """How many nanoseconds more it is at both ends of the range of each constant and calibration cell, by their names.

    Within a range the time is linear, and all times of a price list vary together.
    """


class ModelledCell(Record):
    """The modelled overhead of a probe in nanoseconds with its band, or the reason why there is none."""

    id: CellId
    table: Name | None = None
    cpu: Name
    kernel: Name
    probe: Name
    handler: Name
    benchmark: Name
    clock: Literal["modelled"] = "modelled"
    unit: Literal["ns"] = "ns"
    overhead: Number | None = None
    interval: Interval | None = None
    cycles: Number | None = None
    reason: Reason | None = None
    role: Role | None = None
    """The use of the published figure; None if nothing is published."""
    calibration_kernel: Name | None = None
    """The kernel whose counts are used to fit the published figure, if it is not this cell's."""
    exclusion: Reason | None = None
    """Why the published figure is excluded, as declared before fitting."""
    reference: ReferenceValue | None = None
    published: Number | None = None
    """The published overhead in nanoseconds."""
    evidence: ModelEvidence | None = None

    @property
    def is_fit(self) -> bool:
        """Whether the prices were fitted to the published figure, be it with the counts of another kernel."""
        return self.role == "calibration" or self.calibration_kernel is not None

    @property
    def is_prediction(self) -> bool:
        """Whether the published figure is a test of the model."""
        return self.role == "predicted" and not self.is_fit

    @property
    def error(self) -> float | None:
        """The relative error of the model; None without a positive published figure."""
        if self.overhead is None or self.published is None or self.published <= 0:
            return None
        return (self.overhead - self.published) / self.published

    @model_validator(mode="after")
    def _a_time_or_a_reason(self) -> Self:
        figures = (self.overhead, self.interval, self.cycles, self.evidence)
        if self.reason is not None:
            if figures != (None, None, None, None):
                raise ValueError("a cell with a reason has no modelled time")
            return self
        if None in figures or self.overhead is None or self.interval is None:
            raise ValueError("a cell needs a modelled time with band and evidence, or a reason")
        if not self.interval[0] <= self.overhead <= self.interval[1]:
            raise ValueError("a modelled time must be in its band")
        if (self.role is None) != (self.published is None):
            raise ValueError("a published figure needs a role")
        if (self.role == "excluded") != (self.exclusion is not None):
            raise ValueError("an excluded figure needs a reason")
        if self.calibration_kernel is not None and (self.role != "predicted" or self.calibration_kernel == self.kernel):
            raise ValueError("only a predicted figure can have another kernel for calibration")
        return self


class Price(Record):
    """A price in cycles with its range and source."""

    name: Phrase
    value: Number
    low: Number
    high: Number
    source: Literal["published", "fitted", "unverified"]
    where: Reason


class CpuPrices(Record):
    """The prices of a CPU, including its frequency in MHz, and its caches and TLBs."""

    cpu: Name
    sha256: Digest
    """The digest of the price list's file."""
    declared: Phrase | None = None
    """The day of the decision what to fit; None for a CPU that cannot be calibrated."""
    reason: Reason | None = None
    """Why the prices give no times."""
    costs: tuple[Price, ...]
    remarks: tuple[Reason, ...]
    caches: CpuCaches | None = None
    """The catalogue's caches and TLBs, for information: misses have no price."""


class ModelledRun(Record):
    """The modelled times of a run's probed cells, in its order, and the prices used."""

    run: Name
    experiment: Name
    costs: tuple[CpuPrices, ...]
    cells: Annotated[tuple[ModelledCell, ...], Field(max_length=100_000)]


def json_text(modelled: ModelledRun | CpuPrices) -> str:
    """JSON in stable order, ASCII only, with one newline at the end."""
    return json.dumps(modelled.model_dump(mode="json", exclude_none=True), indent=2) + "\n"
