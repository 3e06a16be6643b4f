# SPDX-License-Identifier: GPL-2.0-only
"""Does a fit find the costs that published figures follow from, and refuse figures that give none?"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog.cost_table import CostTable
from orchestrator.errors import HostError, LabError
from orchestrator.model.modelled_run import Target, fitted

SHA = "0" * 64
LIST5 = "djprobe-2005/list5"
CONSTANT = {"source": "unverified", "where": "a test"}


def table(*fit: str, **constants: float) -> CostTable:
    content: dict[str, Any] = {
        "cpu": "pentium4",
        "mhz": {"value": 2000, "low": 2000, "high": 2000, **CONSTANT},
        "constants": {name: {"value": one, "low": one, "high": one, **CONSTANT} for name, one in constants.items()},
        "declared": {
            "date": "2026-01-01",
            "fit": list(fit),
            "calibration": {LIST5: ["kprobe", "jprobe", "djprobe"]},
            "kernels": {LIST5: "lab-i386-up"},
            "validation": {},
            "exclusions": [],
            "remarks": [],
        },
    }
    return CostTable.model_validate(content)


def targets(costs: dict[str, float], *counts: dict[str, float]) -> list[Target]:
    """Cells whose published figures are exactly what the costs give, at 2 GHz."""
    return [
        Target(LIST5, column, one, sum(costs[name] * number for name, number in one.items()) / 2)  # type: ignore[arg-type]
        for column, one in zip(("kprobe", "jprobe", "djprobe"), counts, strict=False)
    ]


@given(instruction=st.floats(0.2, 5), trap=st.floats(10, 5000), popf=st.floats(1, 100), more=st.integers(100, 2000))
def test_known_costs_are_found(instruction: float, trap: float, popf: float, more: int) -> None:
    costs = {"instruction": instruction, "trap": trap, "popf": popf}
    counts: list[dict[str, float]] = [
        {"instruction": 525, "trap": 2},
        {"instruction": 525 + more, "trap": 3},
        {"instruction": 37, "popf": 1},
    ]
    found = fitted(table("instruction", "trap", popf=popf), SHA, targets(costs, *counts))
    assert found.costs["instruction"].cycles == pytest.approx(instruction, rel=1e-6)
    assert found.costs["trap"].cycles == pytest.approx(trap, rel=1e-6)
    assert max(abs(cell.residual) for cell in found.cells) < 1e-6


def test_a_relative_error_counts_the_same_in_a_long_call_as_in_a_short_one() -> None:
    """One cost for two cells that want 1 and 2 cycles: neither call decides by its length."""
    wanted = [Target(LIST5, "kprobe", {"instruction": 1000}, 500), Target(LIST5, "djprobe", {"instruction": 10}, 10)]
    found = fitted(table("instruction"), SHA, wanted)
    # The least of (c - 1)^2 + (c/2 - 1)^2.
    assert found.costs["instruction"].cycles == pytest.approx(1.2)


def test_a_fit_is_the_same_each_time() -> None:
    wanted = targets({"instruction": 0.9, "trap": 1234}, {"instruction": 525, "trap": 2}, {"instruction": 37})
    first, second = (fitted(table("instruction", "trap"), SHA, wanted) for _ in range(2))
    assert first.model_dump_json() == second.model_dump_json()


@pytest.mark.parametrize(
    "counts",
    [
        ({"instruction": 525, "trap": 2},),
        ({"instruction": 300, "trap": 1}, {"instruction": 600, "trap": 2}),
        ({"instruction": 37}, {"instruction": 525}),
    ],
)
def test_cells_that_do_not_tell_the_costs_apart_are_refused(counts: tuple[dict[str, float], ...]) -> None:
    wanted = targets({"instruction": 1, "trap": 500}, *counts)
    with pytest.raises(LabError, match="do not determine the costs of instruction, trap"):
        fitted(table("instruction", "trap"), SHA, wanted)


def test_a_cost_that_is_not_positive_is_no_calibration() -> None:
    """As with the published kprobes of a Xeon E5410, if both costs are fitted to them."""
    wanted = targets(
        {"instruction": -0.5, "trap": 1000}, {"instruction": 636, "trap": 2}, {"instruction": 299, "trap": 1}
    )
    with pytest.raises(LabError, match=r"cannot be calibrated: the published cells give instruction -0\.5 cycles"):
        fitted(table("instruction", "trap"), SHA, wanted)


def test_an_overhead_below_zero_calibrates_nothing() -> None:
    wanted = [Target("djprobe-2005/list7", "djprobe", {"instruction": 37}, -115)]
    with pytest.raises(LabError, match="no cost fits djprobe-2005/list7 djprobe, which was published as -115 ns"):
        fitted(table("instruction"), SHA, wanted)


def test_without_numpy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(HostError, match=r"pip install 'probe-lab\[model\]'"):
        fitted(table("instruction"), SHA, targets({"instruction": 1}, {"instruction": 10}))
