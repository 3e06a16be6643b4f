# SPDX-License-Identifier: GPL-2.0-only
"""Is what QEMU's plugin writes read whole or not at all, and a sample only what the clock has seen too?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import EvidenceError
from orchestrator.profile.counts import Code, Counts, Region, Timed, read_regions, sample_of, together

READING, CALL = Code(0x8049594, "0f31"), Code(0xC1000000, "55")
EMPTY = Region(2, {READING: Counts(2)})
BATCH = Region(7, {READING: Counts(2), CALL: Counts(5, 0, 5)})
TIMED = Timed(empty=1, samples=[(2, 12), (2, 12)])
KEPT = [EMPTY, EMPTY, BATCH, BATCH, BATCH, BATCH]

WRITTEN = "region 2 1\n8049594 0f31 2 0 0 0\nregion 7 2\n8049594 0f31 2 0 0 0\nc1000000 55 5 0 5 0\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "guest.counts"


def test_regions_are_read_in_their_order(file: Path) -> None:
    file.write_text(WRITTEN)
    assert read_regions(file, 0) == [EMPTY, BATCH]


def test_what_was_written_before_is_passed_over(file: Path) -> None:
    file.write_text("region 0 0\n" + WRITTEN)
    assert read_regions(file, len("region 0 0\n")) == [EMPTY, BATCH]


@pytest.mark.parametrize(
    "wrong",
    [
        WRITTEN.replace("region 7 2", "region 7 3"),
        WRITTEN.replace("region 7 2", "region 8 2"),
        WRITTEN.replace("c1000000 55 5", "c1000000 5 5"),
        WRITTEN.replace("c1000000 55 5", "c1000000 55 -5"),
        WRITTEN[:-20],
        "anything\n",
        "region 99999999999999999999999 1\n",
    ],
)
def test_a_file_that_is_not_what_the_plugin_writes_is_refused(file: Path, wrong: str) -> None:
    file.write_text(wrong)
    with pytest.raises(EvidenceError, match="not what its plugin writes"):
        read_regions(file, 0)


def test_user_space_that_is_counted_together_has_no_bytes(file: Path) -> None:
    file.write_text("region 7 2\n0  2 0 0 0\nc1000000 55 5 0 5 0\n")
    assert read_regions(file, 0) == [Region(7, {Code(0, ""): Counts(2), CALL: Counts(5, 0, 5)})]


def test_a_full_table_is_an_error(file: Path) -> None:
    file.write_text(WRITTEN + "error more instructions than there is room for\n")
    with pytest.raises(EvidenceError, match="more instructions than there is room for"):
        read_regions(file, 0)


def test_a_file_that_is_not_there_is_an_error(file: Path) -> None:
    with pytest.raises(EvidenceError, match="cannot be read"):
        read_regions(file, 0)


def test_what_every_batch_costs_is_taken_off() -> None:
    assert sample_of(KEPT, TIMED) == Region(10, {CALL: Counts(10, 0, 10)})


def test_the_sum_of_regions_has_all_their_instructions() -> None:
    assert together([EMPTY, BATCH]) == Region(9, {READING: Counts(4), CALL: Counts(5, 0, 5)})


@pytest.mark.parametrize(
    ("regions", "timed", "why"),
    [
        (KEPT[:-1], TIMED, "counted in 5 batches, and 6 were timed"),
        ([EMPTY, BATCH, *KEPT[2:]], TIMED, "two empty batches executed different instructions"),
        (KEPT, replace(TIMED, empty=2), "1 instructions in an empty batch, and the clock 2"),
        (KEPT, replace(TIMED, samples=[(2, 12), (2, 13)]), "12 instructions in a sample, and the clock 13"),
        (
            [*KEPT[:-1], Region(7, {READING: Counts(3), CALL: Counts(4, 0, 4)})],
            TIMED,
            "two samples of one guest executed different instructions",
        ),
    ],
)
def test_a_sample_that_the_clock_has_not_seen_is_refused(regions: list[Region], timed: Timed, why: str) -> None:
    with pytest.raises(EvidenceError, match=why):
        sample_of(regions, timed)


def test_stacks_follow_the_entries_of_their_region(file: Path) -> None:
    file.write_text(WRITTEN + "stack 4 c1000000 8049000 c1000100\nstack 2 8049000\n")
    empty, batch = read_regions(file, 0)
    assert not empty.stacks
    assert batch.stacks == {(0x8049000, 0xC1000100, 0xC1000000): 4, (0x8049000,): 2}


def test_a_stack_without_a_region_is_refused(file: Path) -> None:
    file.write_text("stack 4 c1000000\n")
    with pytest.raises(EvidenceError, match="not what its plugin writes"):
        read_regions(file, 0)


def test_stacks_that_lack_instructions_are_refused() -> None:
    """A region's stacks lack its first instruction, which is the clock's first reading."""
    empty, batch = replace(EMPTY, stacks={(1,): 1}), replace(BATCH, stacks={(1,): 1, (1, 2): 5})
    regions = [empty, empty, batch, batch, batch, batch]
    assert sample_of(regions, TIMED).stacks == {(1, 2): 10}
    lacking = [replace(one, stacks={(1,): 1, (1, 2): 4}) if one is batch else one for one in regions]
    with pytest.raises(EvidenceError, match="10 instructions in the stacks of a sample, and the clock 12"):
        sample_of(lacking, TIMED)
