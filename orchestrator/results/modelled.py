# SPDX-License-Identifier: GPL-2.0-only
"""Modelled times: ``report --clock modelled --format json`` prints these models.

They follow from the exact cells of a run and from cost tables. None is measured, and none is kept in the store.
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
    """What a modelled time follows from."""

    cost_table: Phrase
    """The CPU of the cost table."""
    cost_table_sha256: Digest
    profile_sha256: Digest
    baseline: CellId
    """The cell without a probe."""
    baseline_profile_sha256: Digest
    instructions: Number
    """What a call executes more than one without a probe: the sum of both profiles, and the exact overhead."""
    counts: dict[Phrase, Number]
    """The same by what has a cost."""


class ModelledCell(Record):
    """The modelled overhead of a probe in nanoseconds, with the band that it is in; or the reason why there is none."""

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
    """What the published figure is for; None where nothing is published."""
    calibration_kernel: Name | None = None
    """The kernel with whose counts the costs are fitted to the published figure, where this cell is of another one."""
    exclusion: Reason | None = None
    """Why the published figure is excluded, as declared before fitting."""
    reference: ReferenceValue | None = None
    published: Number | None = None
    """The published overhead in nanoseconds."""
    evidence: ModelEvidence | None = None

    @property
    def error(self) -> float | None:
        """What the model misses of the published figure, as a part of it; None for one that is not above zero."""
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
            raise ValueError("a modelled time comes with its band and its evidence, or there is a reason")
        if not self.interval[0] <= self.overhead <= self.interval[1]:
            raise ValueError("a modelled time is in its band")
        if (self.role is None) != (self.published is None):
            raise ValueError("a published figure has a role")
        if (self.role == "excluded") != (self.exclusion is not None):
            raise ValueError("a published figure is excluded for a reason")
        if self.calibration_kernel is not None and (self.role != "predicted" or self.calibration_kernel == self.kernel):
            raise ValueError("a published figure is fitted to with another kernel's counts where it is predicted")
        return self


class Cost(Record):
    """What one of a kind takes, in cycles, the range that it is in, and where the figure is from."""

    name: Phrase
    value: Number
    low: Number
    high: Number
    source: Literal["published", "fitted", "unverified"]
    where: Reason


class Costs(Record):
    """The costs of a CPU, its frequency in MHz among them, and its caches and TLBs."""

    cpu: Name
    sha256: Digest
    """Of the cost table's file."""
    declared: Phrase | None = None
    """The day on which it was decided what is fitted, and to what; None for a CPU that cannot be calibrated."""
    reason: Reason | None = None
    """Why no time follows from them."""
    costs: tuple[Cost, ...]
    remarks: tuple[Reason, ...]
    caches: CpuCaches | None = None
    """As the catalogue has them. Misses are not priced."""


class ModelledRun(Record):
    """The modelled times of a run's probed cells, in its order, and the costs that they follow from."""

    run: Name
    experiment: Name
    costs: tuple[Costs, ...]
    cells: Annotated[tuple[ModelledCell, ...], Field(max_length=100_000)]


def json_text(modelled: ModelledRun | Costs) -> str:
    """As text: stable order, ASCII only, one newline at the end."""
    return json.dumps(modelled.model_dump(mode="json", exclude_none=True), indent=2) + "\n"
