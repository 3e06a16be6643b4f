# SPDX-License-Identifier: GPL-2.0-only
"""Does a fit find the prices that published figures follow from, and refuse figures that give none?"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from modelled_cells import counted
from profiled_cells import list5, profiled
from record_builders import any_evidence, cell, failed, run

from orchestrator.catalog.price_list import INPUTS, Input, PriceList
from orchestrator.errors import ConfigError, HostError, LabError, UsageError
from orchestrator.model.fit import FitTarget, fitted
from orchestrator.model.modelled_run import catalogue_prices, modelled_run, user_prices
from orchestrator.model.modelled_time import modelled_time
from orchestrator.model.price_file import price_file
from orchestrator.model.priced_counts import difference, inputs
from orchestrator.profile.code.instruction_classes import executed_classes
from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, SymbolProfile
from orchestrator.report.modelled_sheets import modelled_sheets
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run

SHA = "0" * 64


LIST5 = "djprobe-2005/list5"


CONSTANT = {"source": "unverified", "where": "a test"}


def table(*fit: str, **constants: float) -> PriceList:
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
    return PriceList.model_validate(content)


def targets(prices: dict[str, float], *counts: dict[str, float]) -> list[FitTarget]:
    """Cells whose published figures are exactly what the prices give, at 2 GHz."""
    return [
        FitTarget(LIST5, column, one, sum(prices[name] * number for name, number in one.items()) / 2)  # type: ignore[arg-type]
        for column, one in zip(("kprobe", "jprobe", "djprobe"), counts, strict=False)
    ]


@given(instruction=st.floats(0.2, 5), trap=st.floats(10, 5000), popf=st.floats(1, 100), more=st.integers(100, 2000))
def test_known_prices_are_found(instruction: float, trap: float, popf: float, more: int) -> None:
    prices = {"instruction": instruction, "trap": trap, "popf": popf}
    counts: list[dict[str, float]] = [
        {"instruction": 525, "trap": 2},
        {"instruction": 525 + more, "trap": 3},
        {"instruction": 37, "popf": 1},
    ]
    found = fitted(table("instruction", "trap", popf=popf), SHA, targets(prices, *counts))
    assert found.costs["instruction"].cycles == pytest.approx(instruction, rel=1e-6)
    assert found.costs["trap"].cycles == pytest.approx(trap, rel=1e-6)
    assert max(abs(cell.residual) for cell in found.cells) < 1e-6


def test_a_relative_error_counts_the_same_in_a_long_call_as_in_a_short_one() -> None:
    """One price for two cells that want 1 and 2 cycles: neither call decides by its length."""
    wanted = [
        FitTarget(LIST5, "kprobe", {"instruction": 1000}, 500),
        FitTarget(LIST5, "djprobe", {"instruction": 10}, 10),
    ]
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
def test_cells_that_do_not_tell_the_prices_apart_are_refused(counts: tuple[dict[str, float], ...]) -> None:
    wanted = targets({"instruction": 1, "trap": 500}, *counts)
    with pytest.raises(LabError, match="do not determine the prices of instruction, trap"):
        fitted(table("instruction", "trap"), SHA, wanted)


def test_a_cost_that_is_not_positive_is_no_calibration() -> None:
    """As with the published kprobes of a Xeon E5410, if both prices are fitted to them."""
    wanted = targets(
        {"instruction": -0.5, "trap": 1000}, {"instruction": 636, "trap": 2}, {"instruction": 299, "trap": 1}
    )
    with pytest.raises(LabError, match=r"cannot be calibrated: the published cells give instruction -0\.5 cycles"):
        fitted(table("instruction", "trap"), SHA, wanted)


def test_an_overhead_below_zero_calibrates_nothing() -> None:
    wanted = [FitTarget("djprobe-2005/list7", "djprobe", {"instruction": 37}, -115)]
    with pytest.raises(LabError, match="no price fits djprobe-2005/list7 djprobe, published as -115 ns"):
        fitted(table("instruction"), SHA, wanted)


def test_without_numpy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(HostError, match=r"pip install 'probe-lab\[model\]'"):
        fitted(table("instruction"), SHA, targets({"instruction": 1}, {"instruction": 10}))


# What has a price among the instructions of a profile.

CODE = {"cc": 2, "cf": 2, "9d": 1, "9c": 1, "0f31": 1, "f00fb111": 5, "90": 26, "e800000000": 1, "c3": 3}


def executing(one: CellRecord, code: Mapping[str, int] = CODE) -> CellRecord:
    instructions = tuple(InstructionCount(at, one, 500 * times) for at, (one, times) in enumerate(code.items()))
    symbol = SymbolProfile(name="f", place="kernel", address=0, instructions=instructions)
    profile = CellProfile(cell="a/b", arch="i386", calls=500, has_details=False, symbols=(symbol,))
    return one.model_copy(update={"executed": executed_classes(profile), "value": profile.executed / profile.calls})


def counts(one: CellRecord, priced: Collection[Input]) -> Mapping[Input, Fraction]:
    found = inputs(one, priced)
    assert found is not None
    return found


def test_every_instruction_has_one_cost() -> None:
    recording = cell("djprobe", evidence=any_evidence("djprobe", recorded=1000))
    assert counts(executing(recording), INPUTS) == {
        "instruction": 30,
        "trap": 2,  # with its iret
        "popf": 1,
        "pushf": 1,
        "rdtsc": 1,
        "locked": 5,
        "single step": 0,
        "system call": 0,
        "mispredicted return": 2,  # instructions with a price of their own, too
        "recorded line": 1,
    }


@pytest.mark.parametrize(
    ("code", "traps", "steps", "system_calls"),
    [
        ({"cc": 1, "cf": 2}, 1, 1, 0),  # the exception of a single step is no instruction
        ({"0f05": 1, "0f07": 1}, 0, 0, 1),  # syscall, sysret
        ({"0f34": 1, "0f35": 1}, 0, 0, 1),  # sysenter, sysexit
        ({"0f05": 1, "cf": 1}, 0, 0, 1),  # a system call that ends in iret is no single step
        ({"0f05": 1, "cc": 1, "cf": 3}, 1, 1, 1),
        ({"cd80": 1, "cf": 1}, 1, 0, 0),
    ],
)
def test_single_steps_are_counted_by_their_returns(
    code: dict[str, int], traps: int, steps: int, system_calls: int
) -> None:
    wanted: list[Input] = ["instruction", "trap", "single step", "system call"]
    found = counts(executing(cell("djprobe"), {"90": 10, **code}), wanted)
    assert found == {"instruction": 10, "trap": traps, "single step": steps, "system call": system_calls}


@pytest.mark.parametrize(("calls", "returns", "wrong"), [(3, 3, 0), (3, 4, 1), (3, 2, 1)])
def test_a_return_without_a_call_is_mispredicted_and_a_call_without_a_return(
    calls: int, returns: int, wrong: int
) -> None:
    code = {"e800000000": calls, "c3": returns}
    found = counts(executing(cell("djprobe"), code), ["instruction", "mispredicted return"])
    assert found == {"instruction": calls + returns, "mispredicted return": wrong}


def test_what_has_no_cost_of_its_own_is_a_plain_instruction() -> None:
    assert counts(executing(cell("djprobe")), ["instruction"]) == {"instruction": 42}
    assert counts(executing(cell("djprobe")), ["instruction", "trap"]) == {"instruction": 38, "trap": 2}


def test_the_difference_of_two_has_what_changed() -> None:
    one: dict[Input, Fraction] = {"instruction": Fraction(5), "popf": Fraction(1), "trap": Fraction(2)}
    other: dict[Input, Fraction] = {"instruction": Fraction(3), "popf": Fraction(1), "locked": Fraction(1)}
    assert difference(one, other) == {"instruction": 2, "trap": 2, "locked": -1}


# Does a modelled time follow from the profiles of a cell and of its own baseline, and from nothing else?


def test_the_counts_are_those_of_the_two_cells(tmp_path: Path) -> None:
    (cell,) = modelled_run(run(*list5(tmp_path, "kprobe")), catalogue_prices()).cells
    assert cell.evidence is not None
    assert cell.evidence.counts == counted("list5")["kprobe"]
    assert cell.evidence.instructions == sum(cell.evidence.counts.values()) + 2
    assert cell.overhead == pytest.approx(986.2, abs=0.05)
    assert cell.role == "calibration"


def test_counts_that_do_not_add_up_give_no_time(tmp_path: Path) -> None:
    """As where two baselines could be meant."""
    baseline, kprobe = list5(tmp_path, "kprobe")
    other = baseline.model_dump() | {"samples": [359.0], "value": 359.0, "profile": None, "executed": None}
    wrong = profiled(CellRecord.model_validate(other), tmp_path, ("90", 359))
    (cell,) = modelled_run(run(wrong, kprobe), catalogue_prices()).cells
    assert cell.overhead is None
    assert "differ by 530 instructions, but its overhead is 529" in (cell.reason or "")


def test_a_baseline_of_another_kernel_is_no_baseline(tmp_path: Path) -> None:
    baseline, kprobe = list5(tmp_path, "kprobe")
    elsewhere = CellRecord.model_validate(baseline.model_dump() | {"kernel": "lab-i386-smp"})
    (cell,) = modelled_run(run(elsewhere, kprobe), catalogue_prices()).cells
    assert cell.reason == "the cell or its baseline has no counts"


def test_a_cpu_without_a_price_list_has_no_time(tmp_path: Path) -> None:
    cells = [CellRecord.model_validate(one.model_dump() | {"cpu": "athlon"}) for one in list5(tmp_path, "kprobe")]
    (cell,) = modelled_run(run(*cells), catalogue_prices()).cells
    assert cell.reason == "CPU athlon has no price list"


def test_a_run_without_counts_says_how_to_get_them(tmp_path: Path) -> None:
    cells = [CellRecord.model_validate(one.model_dump() | {"executed": None}) for one in list5(tmp_path, "kprobe")]
    with pytest.raises(UsageError, match="--profile symbols"):
        modelled_run(run(*cells), catalogue_prices())


def test_a_published_figure_is_calibration_on_the_declared_kernel_only(tmp_path: Path) -> None:
    cells = list5(tmp_path, "kprobe", "djprobe", kernel="debian-686")
    modelled = modelled_run(run(*cells), catalogue_prices())
    assert [cell.role for cell in modelled.cells] == ["predicted", "predicted"]
    assert {cell.calibration_kernel for cell in modelled.cells} == {"lab-i386-up"}
    (sentence,) = [one for sheet in modelled_sheets(modelled) for one in sheet.sentences if "debian-686" in one]
    assert sentence == (
        "list5, kprobe -3.0 %, djprobe -0.8 %: from the counts of kernel debian-686; the prices were fitted "
        "to these figures with the counts of lab-i386-up."
    )
    declared = modelled_run(run(*list5(tmp_path, "kprobe")), catalogue_prices()).cells[0]
    assert (declared.role, declared.calibration_kernel) == ("calibration", None)


def test_a_cell_that_failed_has_no_time_and_its_reason(tmp_path: Path) -> None:
    baseline, kprobe = list5(tmp_path, "kprobe")
    _, cell = modelled_run(run(baseline, kprobe, failed("jprobe", "the guest panicked")), catalogue_prices()).cells
    assert cell.probe == "jprobe"
    assert cell.reason == "jprobe failed: the guest panicked"


def test_a_run_whose_cells_failed_says_so(tmp_path: Path) -> None:
    (baseline,) = list5(tmp_path)
    with pytest.raises(LabError, match=r"its cells failed(.|\n)*orchestrator report") as raised:
        modelled_run(run(baseline, failed("kprobe", "the guest panicked")), catalogue_prices())
    assert raised.value.exit_status == 1


def test_two_price_lists_of_one_cpu_are_refused(tmp_path: Path) -> None:
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text(price_file("pentium4").text)
    paths = [str(tmp_path / name) for name in ("one.yaml", "two.yaml")]
    stored = Run(run(*list5(tmp_path, "kprobe")), tmp_path)
    assert list(user_prices(paths[:1], stored)) == ["pentium4"]
    with pytest.raises(UsageError, match=r"one\.yaml and .*two\.yaml both have the prices of pentium4"):
        user_prices(paths, stored)


def test_a_price_list_of_ones_own_that_gives_no_times_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(price_file("pentium4").declared)
    with pytest.raises(
        ConfigError, match=r"own\.yaml: .* is not fitted yet(.|\n)*model fit .*own\.yaml RUN --out FILE"
    ):
        user_prices([str(own)], Run(run(*list5(tmp_path, "kprobe")), tmp_path))


def test_a_price_list_that_the_run_has_no_use_for_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(price_file("pentium4").text.replace("cpu: pentium4", "cpu: pentium5"))
    with pytest.raises(
        UsageError, match=r"own\.yaml: this has the prices of pentium5, but the run has only cells of pentium4"
    ):
        user_prices([str(own)], Run(run(*list5(tmp_path, "kprobe")), tmp_path))


# Is the time of a CPU whose prices are within their ranges always within the band?

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


def declared() -> PriceList:
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
    return PriceList.model_validate(content)


def time(prices: dict[str, float], mhz: float, counts: dict[str, float]) -> float:
    return sum(prices[name] * number for name, number in counts.items()) * 1000 / mhz


def fit_to(prices: dict[str, float], mhz: float, off: dict[str, float]) -> PriceList:
    """The table as it is fitted to a CPU's times, each ``off`` by so many nanoseconds."""
    targets = [FitTarget(LIST5, name, one, time(prices, mhz, one) + off[name]) for name, one in CELLS.items()]  # type: ignore[arg-type]
    found = fitted(declared(), "0" * 64, targets)
    return PriceList.model_validate({**declared().model_dump(), "fitted": found.model_dump()})


@given(
    prices=st.fixed_dictionaries(
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
    prices: dict[str, float], mhz: float, off: dict[str, float], counts: dict[Any, float]
) -> None:
    try:
        table = fit_to(prices, mhz, off)
    except LabError:  # constants far from the truth may leave nothing for a price
        reject()
    band = modelled_time(table, counts)
    assert band.low <= band.value <= band.high
    assert band.low - 1e-4 <= time(prices, mhz, counts) <= band.high + 1e-4


def test_a_cell_that_the_prices_give_exactly_is_within_what_the_document_rounds_off() -> None:
    prices = {"instruction": 1.0, "popf": 50.0}
    cells: dict[str, dict[Input, float]] = {"djprobe": {"instruction": 37, "popf": 1}}
    target = FitTarget(LIST5, "djprobe", cells["djprobe"], time(prices, 2000, {"instruction": 37, "popf": 1}))
    content = declared().model_dump()
    content["declared"] |= {"fit": ["instruction"], "calibration": {LIST5: ["djprobe"]}}
    alone = PriceList.model_validate(content)
    content["fitted"] = fitted(alone, "0" * 64, [target]).model_dump()
    table = PriceList.model_validate(content)
    band = modelled_time(table, cells["djprobe"])
    assert band.value == pytest.approx(43.5)
    assert [band.low, band.high] == pytest.approx([43, 44])
    # Another popf more is anywhere from 20 cycles at 2.1 GHz to 90 at 1.9 GHz.
    band = modelled_time(table, {"instruction": 37, "popf": 2})
    assert [band.low, band.high] == pytest.approx([43 + 20 / 2.1, 44 + 90 / 1.9])


def test_nothing_takes_no_time() -> None:
    table = fit_to({"instruction": 1, "trap": 1000, "popf": 50, "rdtsc": 80}, 2000, dict.fromkeys(CELLS, 0.0))
    none = modelled_time(table, {})
    assert (none.value, none.low, none.high) == (0, 0, 0)
