# SPDX-License-Identifier: GPL-2.0-only
"""Is the time of a CPU whose costs are within their ranges always within the band?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from orchestrator.catalog.cost_table import CostTable, Input
from orchestrator.errors import LabError
from orchestrator.model.cost_file import Time, price
from orchestrator.model.modelled_run import Target, fitted

LIST5 = "djprobe-2005/list5"
SOURCE = {"source": "unverified", "where": "a test"}
MHZ = {"value": 2000, "low": 1900, "high": 2100}
RANGES = {"popf": {"value": 50, "low": 20, "high": 90}, "rdtsc": {"value": 80, "low": 60, "high": 100}}
CELLS: dict[str, dict[str, float]] = {
    "kprobe": {"instruction": 525, "trap": 2},
    "jprobe": {"instruction": 1295, "trap": 3, "rdtsc": 1},
    "djprobe": {"instruction": 37, "popf": 1},
}
COUNTS = st.fixed_dictionaries(
    {
        "instruction": st.integers(0, 3000),
        "trap": st.integers(0, 5),
        "popf": st.integers(-1, 4),
        "rdtsc": st.integers(0, 3),
    }
)


def declared() -> CostTable:
    content: dict[str, Any] = {
        "cpu": "pentium4",
        "mhz": {**MHZ, **SOURCE},
        "constants": {name: {**one, **SOURCE} for name, one in RANGES.items()},
        "declared": {
            "date": "2026-01-01",
            "fit": ["instruction", "trap"],
            "calibration": {LIST5: list(CELLS)},
            "kernels": {LIST5: "lab-i386-up"},
            "validation": {},
            "exclusions": [],
            "remarks": [],
        },
    }
    return CostTable.model_validate(content)


def time(costs: dict[str, float], mhz: float, counts: dict[str, float]) -> float:
    return sum(costs[name] * number for name, number in counts.items()) * 1000 / mhz


def fit_to(costs: dict[str, float], mhz: float, off: dict[str, float]) -> CostTable:
    """The table as it is fitted to a CPU's times, each ``off`` by so many nanoseconds."""
    targets = [Target(LIST5, name, one, time(costs, mhz, one) + off[name]) for name, one in CELLS.items()]  # type: ignore[arg-type]
    found = fitted(declared(), "0" * 64, targets)
    return CostTable.model_validate({**declared().model_dump(), "fitted": found.model_dump()})


@given(
    costs=st.fixed_dictionaries(
        {
            "instruction": st.floats(0.5, 3),
            "trap": st.floats(300, 3000),
            "popf": st.floats(20, 90),
            "rdtsc": st.floats(60, 100),
        }
    ),
    mhz=st.floats(1900, 2100),
    off=st.fixed_dictionaries({name: st.floats(-0.5, 0.5) for name in CELLS}),
    counts=COUNTS,
)
def test_the_band_has_the_time_of_every_cpu_within_the_ranges(
    costs: dict[str, float], mhz: float, off: dict[str, float], counts: dict[Any, float]
) -> None:
    try:
        table = fit_to(costs, mhz, off)
    except LabError:  # constants far from the truth may leave nothing for a cost
        reject()
    band = price(table, counts)
    assert band.low <= band.value <= band.high
    assert band.low - 1e-4 <= time(costs, mhz, counts) <= band.high + 1e-4


def test_a_cell_that_the_costs_give_exactly_is_within_what_the_document_rounds_off() -> None:
    costs = {"instruction": 1.0, "popf": 50.0}
    cells: dict[str, dict[Input, float]] = {"djprobe": {"instruction": 37, "popf": 1}}
    target = Target(LIST5, "djprobe", cells["djprobe"], time(costs, 2000, {"instruction": 37, "popf": 1}))
    content = declared().model_dump()
    content["declared"] |= {"fit": ["instruction"], "calibration": {LIST5: ["djprobe"]}}
    alone = CostTable.model_validate(content)
    content["fitted"] = fitted(alone, "0" * 64, [target]).model_dump()
    table = CostTable.model_validate(content)
    band = price(table, cells["djprobe"])
    assert band.value == pytest.approx(43.5)
    assert [band.low, band.high] == pytest.approx([43, 44])
    # Another popf more is anywhere from 20 cycles at 2.1 GHz to 90 at 1.9 GHz.
    band = price(table, {"instruction": 37, "popf": 2})
    assert [band.low, band.high] == pytest.approx([43 + 20 / 2.1, 44 + 90 / 1.9])


def test_nothing_takes_no_time() -> None:
    table = fit_to({"instruction": 1, "trap": 1000, "popf": 50, "rdtsc": 80}, 2000, dict.fromkeys(CELLS, 0.0))
    assert price(table, {}) == Time(0, 0, 0)
