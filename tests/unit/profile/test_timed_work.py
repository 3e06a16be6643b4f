# SPDX-License-Identifier: GPL-2.0-only
"""Is work that is timed as a whole refused, unless the plugin counted what the clock did, but for faults and sleep?"""

from __future__ import annotations

import pytest

from orchestrator.errors import EvidenceError
from orchestrator.profile.counted.counts import Code, Counts, Region
from orchestrator.profile.counted.timed_work import CountedWork, counted_work

USER, FAULT, OTHER = Code(0, ""), Code(0xC1484DD0, "0f01ca"), Code(0xC1000000, "55")
HALT = Code(0xC1000001, "f4")


def work_of(ticks: int, **executed: int) -> CountedWork:
    codes = {"user": USER, "faults": FAULT, "other": OTHER, "halts": HALT}
    counts = {codes[name]: Counts(number) for name, number in executed.items()}
    return counted_work([Region(sum(executed.values()), counts)], [ticks], {FAULT.address})


def test_without_faults_both_are_equal() -> None:
    work = work_of(99, user=60, other=40)
    assert (work.ticks, work.together.total, work.faults, work.halts) == (100, 100, 0, 0)


@pytest.mark.parametrize("ticks", [98, 100])
def test_without_faults_one_instruction_is_too_many(ticks: int) -> None:
    with pytest.raises(EvidenceError, match=f"counted 99 instructions, and the clock {ticks}"):
        work_of(ticks, user=60, other=40)


@pytest.mark.parametrize("ticks", [97, 98, 99])
def test_an_instruction_that_faults_may_be_counted_twice(ticks: int) -> None:
    assert work_of(ticks, user=60, other=38, faults=2).faults == 2


@pytest.mark.parametrize("ticks", [96, 100])
def test_faults_explain_no_more_than_their_number(ticks: int) -> None:
    with pytest.raises(EvidenceError, match="with 2 faults and 0 halts"):
        work_of(ticks, user=60, other=38, faults=2)


def test_a_cpu_that_sleeps_executes_nothing_while_the_clock_goes_on() -> None:
    assert work_of(4_000_000, user=60, other=39, halts=1).halts == 1
    with pytest.raises(EvidenceError, match="with 0 faults and 1 halts"):
        work_of(98, user=60, other=39, halts=1)


def test_each_piece_was_timed() -> None:
    with pytest.raises(EvidenceError, match="counted in 1 pieces of work, and 2 were timed"):
        counted_work([Region(1, {USER: Counts(1)})], [0, 0], frozenset())


def test_pieces_are_compared_one_by_one() -> None:
    """A sum would hide that one has too many, and another too few."""
    regions = [Region(11, {USER: Counts(11)}), Region(9, {USER: Counts(9)})]
    with pytest.raises(EvidenceError, match="counted 10 instructions, and the clock 9"):
        counted_work(regions, [9, 9], frozenset())
