# SPDX-License-Identifier: GPL-2.0-only
"""Price lists of CPUs: constants with their sources, and prices fitted to published figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from orchestrator.catalog.data import CatalogEntry

Input = Literal[
    "instruction",
    "trap",
    "single step",
    "system call",
    "popf",
    "pushf",
    "rdtsc",
    "locked",
    "mispredicted return",
    "recorded line",
]
"""What may have a price. ``trap`` is an int3 and its return with iret and loads of segment registers; ``single step``
the same of the exception after one; ``system call`` one with its return by sysret; ``mispredicted return`` a return
without a call, or a call without one; ``recorded line`` 64 bytes of a recorded event; ``instruction`` an instruction
without a price of its own."""

INPUTS: tuple[Input, ...] = get_args(Input)


@cache
def priced_cpus() -> Mapping[str, Path]:
    """The files of the catalogue's price lists by CPU."""
    return {path.stem: path for path in sorted(Path(str(files("orchestrator.catalog") / "prices")).glob("*.yaml"))}


Role = Literal["calibration", "predicted", "excluded"]
"""The use of a published cell, as declared before fitting; a cell that is not declared is predicted."""


def _wrong(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("wrong", "{sentence}", {"sentence": sentence})


def _number(value: object) -> object:
    # A file's decimal fractions arrive as text: see orchestrator/experiment/source.py.
    text = value if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    try:
        number = float(text)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _wrong(f"found {repr(value)[:80]}; expected a number without a unit, such as 52.5")
    return number


def _like(pattern: str, expected: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise _wrong(f"found {repr(value)[:80]}; expected {expected}")
        return value

    return AfterValidator(check)


Figure = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False, ge=-1e12, le=1e12)]
Sentence = Annotated[str, Field(max_length=1000), _like(r"[ -~]+", "some text, in ASCII, on one line")]
TableId = Annotated[str, _like(r"[a-z0-9-]{1,50}/[a-z0-9-]{1,49}", "a published table, such as djprobe-2005/list5")]
Column = Annotated[str, _like(r"[a-z0-9+-]{1,100}", "a table's column, such as kprobe")]
Columns = dict[TableId, Annotated[list[Column], Field(min_length=1)]]
CpuName = Annotated[str, _like(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "a CPU's name, such as pentium4")]
KernelName = Annotated[str, _like(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,199}", "a kernel's name, such as lab-i386-up")]


class Constant(CatalogEntry):
    """A figure that was not fitted: its value, its range, and its source."""

    value: Figure
    """``mhz`` in MHz, prices in cycles."""
    low: Figure
    """The lowest plausible value, above 0."""
    high: Figure
    """The highest plausible value."""
    source: Literal["published", "unverified"]
    """``unverified`` if the document was not available, or the figure is assumed."""
    where: Sentence
    """The document and the place in it, or how the figure was derived."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not 0 < self.low <= self.value <= self.high:
            range_ = f"found low {self.low}, value {self.value}, high {self.high}"
            raise _wrong(f"{range_}; expected 0 < low <= value <= high")
        return self


class Exclusion(CatalogEntry):
    """Published cells that are used neither for calibration nor for validation, and why."""

    table: TableId
    """The published table, such as ``djprobe-2005/list4``."""
    columns: Annotated[list[Column], Field(min_length=1)]
    """Columns of the table, by their probes."""
    reason: Sentence
    """Why the cells are left out."""


class Declaration(CatalogEntry):
    """Decisions made before fitting: the prices to fit, the published cells to fit to, and their kernels.

    Kernels are declared because each executes a different number of instructions for the same probe.
    """

    date: Annotated[str, _like(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date as in 2026-01-31")]
    """The day of the decision, ``YYYY-MM-DD``."""
    fit: Annotated[list[Input], Field(min_length=1)]
    """The prices to fit to the calibration cells."""
    calibration: Annotated[Columns, Field(min_length=1)]
    """The cells to fit to: columns by published table."""
    kernels: dict[TableId, KernelName]
    """The kernel whose counts are used for the fit, by published table."""
    validation: Columns
    """The cells that show the quality of the fit and are not fitted to: columns by published table."""
    exclusions: list[Exclusion]
    """Cells that are used for neither."""
    remarks: list[Sentence]
    """Remarks for the reader."""

    def role(self, table: str, column: str, kernel: str) -> Role:
        if self.kernel(table, column) == kernel:
            return "calibration"
        return "predicted" if self.reason(table, column) is None else "excluded"

    def kernel(self, table: str, column: str) -> str | None:
        return self.kernels[table] if column in self.calibration.get(table, ()) else None

    def reason(self, table: str, column: str) -> str | None:
        return next(
            (
                exclusion.reason
                for exclusion in self.exclusions
                if exclusion.table == table and column in exclusion.columns
            ),
            None,
        )

    @property
    def cells(self) -> Iterator[tuple[str, str]]:
        return ((table, column) for table, columns in self.calibration.items() for column in columns)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        cells = list(self.cells)
        cells += [(table, column) for table, columns in self.validation.items() for column in columns]
        cells += [(exclusion.table, column) for exclusion in self.exclusions for column in exclusion.columns]
        once: dict[str, list[str]] = {"declared": [" ".join(cell) for cell in cells], "to be fitted": [*self.fit]}
        for words, names in once.items():
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise _wrong(f"{twice} is {words} twice: leave one of them out")
        return self


class CalibrationCell(CatalogEntry):
    """A cell of the fit: what the probe adds to a call, and nanoseconds."""

    table: TableId
    """The published table."""
    column: Column
    """Its column."""
    counts: dict[Input, Figure]
    """What the probe adds to a call, by price."""
    published: Annotated[Figure, Field(gt=0)]
    """The published overhead in nanoseconds."""
    modelled: Figure
    """The overhead by the fitted prices, in nanoseconds."""

    @property
    def residual(self) -> float:
        return (self.modelled - self.published) / self.published


class FittedPrice(CatalogEntry):
    """A fitted price in cycles, and the weight of each calibration cell in it.

    The price in nanoseconds is the sum over the cells of weight times published figure less the constant prices.
    """

    cycles: Annotated[Figure, Field(gt=0)]
    """The price."""
    weights: list[Figure]
    """One weight per calibration cell, in their order."""


class Fitted(CatalogEntry):
    """The result of a fit, as ``./lab model fit`` writes it."""

    declaration: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """The SHA-256 of the file above ``fitted`` at the time of the fit; a table edited later gives no times."""
    cells: Annotated[list[CalibrationCell], Field(min_length=1)]
    """The calibration cells, in the order of the declaration."""
    costs: dict[Input, FittedPrice]
    """The fitted prices."""

    @model_validator(mode="after")
    def _a_weight_for_each_cell(self) -> Self:
        for name, price in self.costs.items():
            if len(price.weights) != len(self.cells):
                raise _wrong(f"{name} has {len(price.weights)} weights for {len(self.cells)} cells")
        return self


class PriceList(CatalogEntry):
    """The prices of one CPU, or in ``uncalibrated`` why it has none."""

    cpu: CpuName
    """A CPU model of ``./lab list cpus``."""
    mhz: Constant
    """Its frequency, which converts cycles to nanoseconds."""
    caches: CpuName | None = None
    """The catalogue entry with its caches and TLBs, for information: misses have no price."""
    uncalibrated: Sentence | None = None
    """Why the CPU has no prices; ``declared`` is then absent."""
    constants: dict[Input, Constant] = Field(default={})
    """Prices that are not fitted, in cycles."""
    declared: Declaration | None = None
    """The decisions made before fitting."""
    fitted: Fitted | None = None
    """The result of the fit."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.uncalibrated is None) == (self.declared is None):
            raise _wrong("expected either 'declared', or 'uncalibrated' with the reason")
        if self.declared is None:
            return self
        both = [name for name in self.declared.fit if name in self.constants]
        if both:
            raise _wrong(f"{both[0]} is both in 'constants' and in 'declared.fit': leave one of them out")
        if "instruction" not in (*self.constants, *self.declared.fit):
            raise _wrong("'instruction' has no price: name it in 'declared.fit', or in 'constants'")
        if self.fitted is not None and set(self.fitted.costs) != set(self.declared.fit):
            raise _wrong("the fitted prices are not those that 'fit' declares")
        cells = () if self.fitted is None else self.fitted.cells
        unpriced = next((name for cell in cells for name in cell.counts if name not in self.priced), None)
        if unpriced is not None:
            raise _wrong(f"a fitted cell counts '{unpriced}', which has no price")
        return self

    @property
    def priced(self) -> frozenset[Input]:
        fitted: Mapping[Input, FittedPrice] = {} if self.fitted is None else self.fitted.costs
        declared = () if self.declared is None else self.declared.fit
        return frozenset({*self.constants, *fitted, *declared})
