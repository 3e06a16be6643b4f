# SPDX-License-Identifier: GPL-2.0-only
"""Which counts are told apart, and by which records can a worker be checked?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from record_builders import cell, cells, failed, whole_system

from orchestrator.fleet.trust import checkable, counts, difference
from orchestrator.results.contract import CellRecord

KPROBE = cell("kprobe")


def test_one_instruction_is_a_difference() -> None:
    other = KPROBE.model_copy(update={"samples": (1036.0, 1036.0, 1037.0, 1036.0)})
    told = difference(counts([KPROBE]), counts([other]))
    assert told == f"{KPROBE.id} is 1036, 1036, 1037, 1036 there and 1036, 1036, 1036, 1036 here"


def test_another_number_of_samples_is_a_difference() -> None:
    other = KPROBE.model_copy(update={"samples": (1036.0,)})
    assert difference(counts([KPROBE]), counts([other])) is not None


def test_a_failure_is_told_as_such() -> None:
    told = difference(counts([KPROBE]), counts([failed("kprobe", "an oops")]))
    assert told == f"{KPROBE.id} is failed there and 1036, 1036, 1036, 1036 here"


def test_a_cell_without_an_outcome_is_a_difference() -> None:
    told = difference(counts([KPROBE, cell("djprobe")]), counts([KPROBE]))
    assert told == f"{cell('djprobe').id} is no outcome there and 462, 462, 462, 462 here"


def test_how_a_number_was_compared_is_none() -> None:
    other = KPROBE.model_copy(update={"overhead": 1.0, "notes": ("a note",), "worker": "left"})
    assert difference(counts([KPROBE]), counts([other])) is None


@given(st.lists(cells(), max_size=4, unique_by=lambda record: record.id))
def test_equal_counts_are_no_difference(records: list[CellRecord]) -> None:
    assert difference(counts(records), counts(reversed(records))) is None


def test_a_worker_is_checked_by_exact_cells_failures_first() -> None:
    timed = cell("djprobe", id="timed", clock="wall", unit="ns")
    system = whole_system("lab-i386-up", real=1.0, base=1.0)
    found = checkable([failed("jprobe", "an oops"), KPROBE, timed, system, cell("djprobe"), cell("none")])
    assert [record.probe for record in found] == ["jprobe", "kprobe", "djprobe", "none"]
    assert checkable([timed]) == []
