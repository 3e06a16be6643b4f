# SPDX-License-Identifier: GPL-2.0-only
"""Is each change of a cell called what it is, and is nothing called a change that is none?"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from drawn_records import cells
from hypothesis import given
from hypothesis import strategies as st
from record_builders import cell, failed, whole_system

from orchestrator.comparison.comparison import (
    CHANGES,
    CellChange,
    CellPair,
    Comparison,
    compare,
    pairs_by_id,
    pairs_by_kernel,
)
from orchestrator.results.budgets import Budgets
from orchestrator.results.contract import CellRecord
from orchestrator.results.statistics import median

NONE = Budgets()


def exact(probe: str, value: float, base: float = 409.0, **changes: Any) -> CellRecord:
    numbers = {"samples": [value] * 2, "value": value, "overhead": value - base, "interval": [value - base] * 2}
    return cell(probe, **{**numbers, **changes})


def timed(probe: str, samples: Sequence[float], **changes: Any) -> CellRecord:
    numbers = {"samples": samples, "value": median(samples), "overhead": 9.0, "interval": [8.0, 10.0]}
    return cell(probe, **{"clock": "wall", "unit": "ns", **numbers, **changes})


def compared(before: Sequence[CellRecord], after: Sequence[CellRecord], budgets: Any = None) -> Comparison:
    return compare(pairs_by_id(before, after), Budgets.of(budgets or {}), before, after)


def only(before: CellRecord, after: CellRecord, budgets: Any = None) -> CellChange:
    (change,) = compared([before], [after], budgets).cells
    return change


def varying(overhead: float, *, apart: float = 0.0, mean: float = 6100.0) -> CellRecord:
    """Calls whose samples lie within 20 instructions, with an overhead that is known to ``apart``."""
    samples = [mean + overhead + by for by in (-10.0, 7.0, 2.0, -4.0, 10.0, -5.0)]
    interval = [overhead - apart / 2, overhead + apart / 2]
    return cell("kprobe", samples=samples, value=mean + overhead, overhead=overhead, interval=interval)


def test_the_overhead_of_calls_that_vary_decides_where_their_value_does_not() -> None:
    regressed, improved = only(varying(127.0), varying(133.0)), only(varying(133.0), varying(127.0))
    assert (regressed.change, improved.change) == ("regressed", "improved")
    assert regressed.reason.startswith("the overhead differs, between +6 and +6 instructions; ")
    assert regressed.exceeded == ("overhead +6 instructions, allowed +0",)
    assert not improved.exceeded
    unsure, same = only(varying(127.0, apart=8), varying(133.0, apart=8)), only(varying(127.0), varying(127.0))
    assert (unsure.change, same.change) == ("unchanged", "unchanged")
    assert not unsure.exceeded
    assert only(varying(127.0), varying(133.0), {"*": {"overhead": "+5%"}}).exceeded == ()
    assert only(varying(127.0), varying(133.0), {"*": {"overhead": "+1%"}}).exceeded


def test_the_value_of_calls_that_vary_decides_where_it_can() -> None:
    change = only(varying(127.0), varying(127.0, mean=6300.0))
    assert (change.change, change.reason) == ("regressed", "")


def test_the_value_of_calls_that_vary_scatters_from_guest_to_guest() -> None:
    """Between equal runs: samples of one guest hardly reach into those of the other, and their medians differ."""
    first, second = varying(127.0), varying(127.0, mean=6117.0)
    change = only(first, second)
    assert (change.change, change.exceeded) == ("unchanged", ())
    assert change.reason == "no significant difference: it is between -3 and +37 instructions"
    assert change.value is not None
    assert (change.value.interval, change.value.p) == ((-3.0, 37.0), None)


def test_what_a_runs_cells_differ_by_without_their_probes_is_no_change() -> None:
    """A baseline measured in another state of the guest than the cells with a probe says nothing of a change."""

    def run(of_baseline: float, of_others: float) -> Sequence[CellRecord]:
        samples = [of_baseline + by for by in (-10.0, 7.0, 2.0, -4.0, 10.0, -5.0)]
        interval = [-10.0, 10.0]
        return [cell("none", samples=samples, value=of_baseline, interval=interval), varying(127.0, mean=of_others)]

    comparison = compared(run(6175.0, 6100.0), run(6100.0, 6100.0))
    assert [(change.pair.first.probe, change.change) for change in comparison.cells] == [
        ("none", "unchanged"),
        ("kprobe", "unchanged"),
    ]
    comparison = compared(run(6175.0, 6175.0), run(6100.0, 6100.0))
    assert [change.change for change in comparison.cells] == ["improved", "improved"]


def test_calls_that_no_longer_vary_are_compared_with_all_samples_of_those_that_did() -> None:
    assert only(varying(127.0), exact("kprobe", 6230.0, base=6103.0)).change == "unchanged"
    change = only(varying(127.0), exact("kprobe", 6240.0, base=6113.0))
    assert (change.change, change.exceeded) == ("regressed", ("value +13 instructions, allowed +0",))


def test_one_instruction_more_regresses_and_exceeds_the_budget() -> None:
    change = only(exact("kprobe", 1048.0), exact("kprobe", 1049.0))
    assert (change.change, change.reason) == ("regressed", "")
    assert change.value is not None
    assert change.overhead is not None
    assert (change.value.value, change.overhead.value, change.value.interval) == (1.0, 1.0, (1.0, 1.0))
    assert change.exceeded == ("value +1 instructions, allowed +0",)


def test_one_instruction_less_is_cheaper_and_within() -> None:
    change = only(exact("kprobe", 1048.0), exact("kprobe", 1047.0))
    assert (change.change, change.exceeded) == ("improved", ())


@pytest.mark.parametrize(
    ("budget", "exceeded"),
    [
        ("+2", ()),
        ("+3", ()),
        ("+1", ("value +2 instructions, allowed +1",)),
        ("+0.2%", ()),
        ("+0.1%", ("value +2 instructions, allowed +0.1%",)),
        ({"overhead": "+1"}, ("overhead +2 instructions, allowed +1",)),
        ({"overhead": "+2"}, ()),
        ({"overhead": "+1%", "value": "+0"}, ("value +2 instructions, allowed +0",)),
        ("<=1050", ()),
        ("<=1049", ("value 1050 instructions, allowed <=1049",)),
        ({"overhead": "<=641", "value": "+2"}, ()),
        ({"overhead": "<=640.5", "value": "+2"}, ("overhead 641 instructions, allowed <=640.5",)),
    ],
)
def test_a_budget_is_for_what_it_names(budget: Any, exceeded: tuple[str, ...]) -> None:
    before, after = exact("kprobe", 1048.0), exact("kprobe", 1050.0)
    assert only(before, after, {"probe=kprobe": budget}).exceeded == exceeded
    assert only(before, after, {"probe=jprobe": budget}).exceeded == ("value +2 instructions, allowed +0",)


def test_an_overhead_within_budget_whatever_the_baseline_does() -> None:
    change = only(exact("kprobe", 1048.0), exact("kprobe", 1060.0, base=421.0), {"kprobe": {"overhead": "+0"}})
    assert (change.change, change.exceeded) == ("regressed", ())


@pytest.mark.parametrize("before", [exact("kprobe", 400.0), failed("kprobe", "no"), None])
def test_a_limit_holds_whatever_was_before(before: CellRecord | None) -> None:
    """A cell that is equal, fixed or new exceeds a limit; a step that is small enough each time ends there."""
    pairs, after = [CellPair(before, exact("kprobe", 400.0))], [exact("kprobe", 400.0)]
    for limit, exceeded in (("<=400", ()), ("<=399", ("value 400 instructions, allowed <=399",))):
        (change,) = compare(pairs, Budgets.of({"kprobe": limit}), [], after).cells
        assert change.exceeded == exceeded
        (budget,) = change.budgeted
        assert budget.is_own
    (change,) = compare(pairs, Budgets.of({"kprobe": "+5"}), [], after).cells
    assert change.exceeded == ()


@pytest.mark.parametrize(
    ("samples", "limit", "exceeded"),
    [
        ([400.0, 401.0] * 6, "<=300", True),
        ([400.0, 401.0] * 6, "<=401", False),
        ([200.0, 900.0] * 6, "<=300", False),  # its own interval reaches below
        ([400.0], "<=300", False),  # nothing is decided
    ],
)
def test_a_limit_of_times_is_held_by_their_own_interval(samples: list[float], limit: str, exceeded: bool) -> None:
    """Whether the difference to a run before is decided does not matter."""
    before = timed("kprobe", [400.0, 4000.0, 40.0, 500.0, 3.0, 900.0, 400.0])
    change = only(before, timed("kprobe", samples), {"kprobe": limit})
    assert bool(change.exceeded) is exceeded


@pytest.mark.parametrize(
    ("before", "after", "change", "reason", "exceeded"),
    [
        (cell("none"), None, "missing", "", True),
        (None, cell("none"), "new", "", False),
        (failed("none", "no"), None, "missing", "it was failed: no", False),
        (None, failed("none", "no", status="unsupported"), "new", "unsupported: no", False),
        (cell("none"), failed("none", "panic\nmore"), "failed", "failed: panic", True),
        (None, failed("none", "panic"), "failed", "failed: panic", True),
        (failed("none", "panic"), cell("none"), "fixed", "it was failed: panic", False),
        (failed("none", "a"), failed("none", "b"), "unchanged", "no number in both: failed: b", False),
        (cell("none"), failed("none", "no", status="unsupported"), "missing", "unsupported: no", True),
        (failed("none", "no", status="unsupported"), cell("none"), "new", "it was unsupported: no", False),
        (failed("none", "no", status="unsupported"), failed("none", "panic"), "failed", "failed: panic", True),
    ],
)
def test_cells_without_a_number(
    before: CellRecord | None, after: CellRecord | None, change: str, reason: str, exceeded: bool
) -> None:
    sides = [[] if one is None else [one] for one in (before, after)]
    (cell_change,) = compared(sides[0], sides[1]).cells
    assert (cell_change.change, cell_change.reason, bool(cell_change.exceeded)) == (change, reason, exceeded)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clock": "wall", "unit": "ns"}, "different clocks: instructions and wall"),
        ({"metric": "cost per loop"}, "different metrics"),
        ({"parameters": {"call": "getppid"}}, "different call: gettimeofday and getppid"),
        ({"parameters": {"call": "gettimeofday", "arguments": "[1]"}}, "different arguments: [] and [1]"),
    ],
)
def test_what_means_nothing_is_not_compared(changes: dict[str, Any], words: str) -> None:
    before = exact("kprobe", 1048.0, parameters={"call": "gettimeofday", "arguments": "[]"})
    comparison = compared([before], [exact("kprobe", 9.0, **changes)])
    assert not comparison.cells
    assert words in comparison.not_compared[0][1]
    assert comparison.is_empty


def test_an_earlier_version_recorded_no_calls() -> None:
    assert only(exact("kprobe", 1.0), exact("kprobe", 1.0, parameters={"call": "gettimeofday"})).change == "unchanged"


def test_other_results_of_the_calls_are_said() -> None:
    before = exact("kprobe", 1048.0, parameters={"outcome": "always 0"})
    change = only(before, exact("kprobe", 1000.0, parameters={"outcome": "always EBADF"}))
    assert (change.change, change.reason) == ("improved", "different results of the calls: always 0 and always EBADF")


def test_whole_systems_are_decided_by_their_a_a_boots() -> None:
    before = whole_system("up", "kprobe", real=1e9, base=1e9, recorded=10)
    for more, change in [(2e6, "unchanged"), (2.1e6, "unchanged"), (2.2e6, "regressed"), (-3e6, "improved")]:
        cell_change = only(before, whole_system("up", "kprobe", real=1e9 + more, base=1e9, recorded=10))
        assert cell_change.change == change
        assert bool(cell_change.exceeded) is (change == "regressed")
    assert (
        "no significant difference: it is between -100000 and +4100000 instructions"
        in only(before, whole_system("up", "kprobe", real=1e9 + 2e6, base=1e9, recorded=10)).reason
    )


def test_the_baseline_of_a_whole_system_has_the_scatter_of_its_a_a_boots() -> None:
    def run(real: float) -> list[CellRecord]:
        parameters = {"scope": "locking"}
        return [
            whole_system("up", real=real, base=real, parameters=parameters),
            whole_system("up", real=real + 5.0, base=real, again=1, parameters=parameters),
        ]

    by_id = {change.pair.title: change for change in compared(run(1000.0), run(1004.0)).cells}
    assert by_id["up/none"].change == "unchanged"
    by_id = {change.pair.title: change for change in compared(run(1000.0), run(1006.0)).cells}
    assert by_id["up/none"].change == by_id["up/none/again1"].change == "regressed"
    alone = only(run(1000.0)[0], run(1006.0)[0])
    assert alone.change == "undecided"
    assert "without an A/A boot" in alone.reason


def test_another_result_of_the_work_is_not_compared() -> None:
    before, after = (whole_system("up", real=1e9, base=1e9) for _ in range(2))
    assert after.work is not None
    other_cell = after.model_copy(update={"work": after.work.model_copy(update={"digest": "00"})})
    ((_, why),) = compared([before], [other_cell]).not_compared
    assert why == "different work: each run made 19 of digest 5e5e5e5e5e5e5e5e, and 19 of digest 00"


def test_times_far_apart_are_dearer_and_equal_ones_unchanged() -> None:
    source = random.Random(1)
    before = timed("kprobe", [1000 + source.random() for _ in range(12)])
    after = timed("kprobe", [1010 + source.random() for _ in range(12)])
    change = only(before, after)
    assert (change.change, len(change.exceeded)) == ("regressed", 1)
    assert change.value is not None
    assert change.value.interval is not None
    assert 9 < change.value.interval[0] < change.value.value < change.value.interval[1] < 11
    assert change.value.p is not None
    assert change.value.p < 0.001
    assert change.value.superiority == 1.0
    assert only(before, after, {"kprobe": "+12"}).exceeded == ()
    assert only(after, before).change == "improved"
    same = only(before, timed("kprobe", before.samples[::-1]))
    assert same.change == "unchanged"
    assert same.reason.startswith("no significant difference: it is between -")


def test_few_samples_and_drift_allow_no_verdict() -> None:
    before = timed("kprobe", [1000.0, 1001, 1002, 1003, 1004])
    change = only(before, timed("kprobe", [2000.0 + n for n in range(12)]))
    assert (change.change, change.exceeded) == ("undecided", ())
    assert change.reason == "no verdict: found 5 and 12 samples; a 95 % interval needs 6 of each"
    assert change.value is not None
    assert change.value.repeats == 12
    steady = timed("kprobe", [1000.0 + n for n in range(12)])
    note = "no verdict: the baseline drifted by 90 ns between samples, and the probe's effect is 9 ns"
    drifted = timed("kprobe", [2000.0 + n for n in range(12)], verdict="none", notes=["one", note])
    assert (only(steady, drifted).change, only(steady, drifted).reason) == ("undecided", note)
    single = only(timed("kprobe", [1.0]), timed("kprobe", [2.0]))
    assert (single.change, single.value and single.value.interval) == ("undecided", None)


def test_a_wide_interval_shows_neither_a_difference_nor_none() -> None:
    before, after = timed("kprobe", [380.0, 385, 389, 390, 392, 800]), timed("kprobe", [390.0, 395, 400, 410, 420, 790])
    change = only(before, after)
    assert change.change == "undecided"
    assert change.reason.endswith(", which is more than 5 % of the value")
    assert change.value is not None
    assert change.value.repeats is not None
    assert change.value.repeats > 12
    # Twice as wide an interval takes four times as many samples.
    wide = timed("kprobe", [380.0 + 40 * n for n in range(12)])
    same = only(wide, wide).value
    assert same is not None
    assert same.repeats is not None
    assert same.repeats >= 50


def test_many_cells_need_stronger_evidence() -> None:
    """Six samples of each that do not overlap have p = 2/924: enough for one cell, and not for forty."""
    before = [timed("kprobe", [1000.0 + n for n in range(6)], id=f"a/{n}") for n in range(40)]
    one = timed("kprobe", [2000.0 + n for n in range(6)], id="a/7")
    after = [*before[:7], one, *before[8:]]
    alone, among = only(before[7], one), compared(before, after)
    assert alone.change == "regressed"
    assert among.counts == {"undecided": 1, "unchanged": 39}
    (change,) = among.changed
    assert "among 40 compared cells such a difference may be chance (p = 0.087 after Holm)" in change.reason
    assert change.value is not None
    assert change.value.repeats is not None
    assert change.value.repeats >= 7


def test_an_overhead_of_times_is_as_wide_as_both() -> None:
    source = random.Random(2)
    samples = [1000 + source.random() for _ in range(12)]
    before, after = timed("kprobe", samples), timed("kprobe", samples, overhead=20.0, interval=[19.0, 21.0])
    assert only(before, after, {"kprobe": {"overhead": "+8"}}).exceeded == ("overhead +11 ns, allowed +8",)
    assert only(before, after, {"kprobe": {"overhead": "+9"}}).exceeded == ()


@pytest.mark.parametrize(("count", "exceeded"), [(1, ()), (5, ()), (6, ("overhead +11 ns, allowed +0",))])
def test_an_overhead_of_few_samples_does_not_exceed_its_budget(count: int, exceeded: tuple[str, ...]) -> None:
    """Equal overheads of two samples each are apart in one case of six, of one sample always."""
    samples = [100.0 + number % 2 for number in range(count)]
    before, after = timed("kprobe", samples), timed("kprobe", samples, overhead=20.0, interval=[19.0, 21.0])
    assert only(before, after, {"kprobe": {"overhead": "+0"}}).exceeded == exceeded


def test_the_largest_relative_difference_comes_first() -> None:
    values = {"a": (100.0, 101.0), "b": (10.0, 9.0), "c": (1000.0, 1001.0), "d": (5.0, 5.0), "e": (0.0, 1.0)}
    before = [exact("none", one, one, id=name) for name, (one, _) in values.items()]
    after = [exact("none", other, other, id=name) for name, (_, other) in values.items()]
    comparison = compared([*before, exact("none", 1, 1, id="gone")], [*after, exact("none", 1, 1, id="new")])
    assert [change.pair.title for change in comparison.cells] == ["gone", "e", "b", "a", "c", "new", "d"]
    assert comparison.counts == {"missing": 1, "regressed": 3, "improved": 1, "new": 1, "unchanged": 1}
    assert len(comparison.exceeded) == 4
    assert not comparison.is_empty


def test_two_kernels_of_one_run() -> None:
    run = [
        exact(probe, value, id=f"pentium4/{kernel}/{probe}/noop", kernel=kernel)
        for kernel, probe, value in [
            ("a", "none", 409.0), ("a", "kprobe", 1000.0), ("b", "none", 409.0), ("b", "kprobe", 1003.0),
            ("b", "jprobe", 2000.0),
        ]
    ]  # fmt: skip
    comparison = compare(pairs_by_kernel(run, "a", "b"), NONE, run, run)
    titles = [(change.pair.title, change.change) for change in comparison.cells]
    assert titles == [
        ("pentium4/a/kprobe/noop -> pentium4/b/kprobe/noop", "regressed"),
        ("pentium4/b/jprobe/noop", "new"),
        ("pentium4/a/none/noop -> pentium4/b/none/noop", "unchanged"),
    ]


def test_nothing_in_common_is_empty() -> None:
    assert compared([exact("none", 1, id="a")], [exact("none", 1, id="b")]).is_empty
    assert compared([], []).is_empty


@given(st.lists(cells(), max_size=4, unique_by=lambda one: one.id))
def test_a_run_does_not_differ_from_itself(run: list[CellRecord]) -> None:
    comparison = compared(run, run)
    assert not comparison.exceeded
    assert not comparison.not_compared
    assert {change.change for change in comparison.cells} <= {"unchanged", "undecided"}


@given(st.floats(1, 1e9), st.floats(1, 1e9))
def test_a_comparison_is_mirrored_with_its_runs(one: float, other: float) -> None:
    there, back = (only(exact("kprobe", *pair), exact("kprobe", *pair[::-1])).change for pair in [(one, 0), (0, one)])
    assert {there, back} == {"regressed", "improved"}
    changes = {only(exact("none", a, a), exact("none", b, b)).change for a, b in [(one, other), (other, one)]}
    assert changes in ({"regressed", "improved"}, {"unchanged"})


def test_every_change_has_its_place() -> None:
    assert len(set(CHANGES)) == 8


def test_exact_cells_are_compared_without_heavy_libraries() -> None:
    script = (
        "import orchestrator.comparison.comparison, sys; print([n for n in ('scipy', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
