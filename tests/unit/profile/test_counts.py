# SPDX-License-Identifier: GPL-2.0-only
"""Is what QEMU's plugin writes read whole or not at all, and a sample only what the clock has seen too?"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from record_builders import cell, evidence, run

from orchestrator.benchmarks.calls.report import REPORT
from orchestrator.benchmarks.calls.samples import overhead_by_purpose
from orchestrator.benchmarks.calls.tables.layout import purpose_sentences
from orchestrator.catalog.probes import probes
from orchestrator.catalog.purposes import OTHER, in_order, purpose_of_function, purpose_of_generated, purposes
from orchestrator.errors import EvidenceError
from orchestrator.profile.counted.counts import Code, Counts, Region, read_regions, together
from orchestrator.profile.counted.timed_samples import Timed, sample_of
from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.profile.stored.instructions_by_purpose import by_purpose
from orchestrator.report.csv_export import render_csv
from orchestrator.results.contract import CellRecord, ProfileEvidence

READING, CALL = Code(0x8049594, "0f31"), Code(0xC1000000, "55")


EMPTY = Region(2, {READING: Counts(2)})


BATCH = Region(7, {READING: Counts(2), CALL: Counts(5, 0, 5)})


TIMED = Timed(empty=1, samples=[(2, 12), (2, 12)])


SAMPLE = together([BATCH, BATCH])


KEPT = [EMPTY, EMPTY, SAMPLE, SAMPLE]


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
    with pytest.raises(EvidenceError, match="counts are malformed"):
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
        (KEPT[:-1], TIMED, "counted 1 samples, and 2 were timed"),
        ([EMPTY, BATCH, SAMPLE, SAMPLE], TIMED, "two empty batches executed different instructions"),
        (KEPT, replace(TIMED, empty=2), "1 instructions in an empty batch, and the clock 2"),
        (KEPT, replace(TIMED, samples=[(2, 12), (2, 13)]), "12 instructions in a sample, and the clock 13"),
        (
            [*KEPT[:-1], Region(14, {READING: Counts(5), CALL: Counts(9, 0, 9)})],
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
    with pytest.raises(EvidenceError, match="counts are malformed"):
        read_regions(file, 0)


def test_stacks_that_lack_instructions_are_refused() -> None:
    """A region's stacks lack its first instruction, which is the clock's first reading."""
    empty, sample = replace(EMPTY, stacks={(1,): 1}), replace(SAMPLE, stacks={(1,): 2, (1, 2): 10})
    regions = [empty, empty, sample, sample]
    assert sample_of(regions, TIMED).stacks == {(1, 2): 10}
    lacking = [replace(region, stacks={(1,): 2, (1, 2): 8}) if region is sample else region for region in regions]
    with pytest.raises(EvidenceError, match="10 instructions in the stacks of a sample, and the clock 12"):
        sample_of(lacking, TIMED)


# Has each instruction one purpose, and do the purposes add up to what they are of?

SPENT = {"trap": 404.0, "lookup": 25.0, "other": 198.0}


def profile(*symbols: tuple[str, str, str | None, int]) -> CellProfile:
    """A profile of 2 calls: each symbol with its place, its module and its instructions in both."""
    described = [
        {"name": name, "place": place, "module": module, "address": number, "instructions": [(0, "90", executed)]}
        for number, (name, place, module, executed) in enumerate(symbols)
    ]
    return CellProfile.model_validate_json(
        CellProfile.model_validate(
            {"cell": "a", "arch": "i386", "calls": 2, "has_details": False, "symbols": described}
        ).model_dump_json()
    )


def counted(calls: int, **by_name: int) -> ProfileEvidence:
    total = sum(by_name.values())
    return ProfileEvidence(sha256="0" * 64, calls=calls, instructions=total, int3=0, purposes=by_name)


def spent(probe: str, **changes: object) -> CellRecord:
    return cell(probe, **{"purposes": SPENT, **changes})


@pytest.mark.parametrize(
    ("function", "module", "purpose"),
    [
        ("get_kprobe", None, "lookup"),
        ("handle_exception_return", None, "trap"),
        ("setup_singlestep", None, "single-step"),
        ("optimized_callback", None, "detour"),
        ("rethook_trampoline_handler", None, "return"),
        ("kprobe_int3_handler", None, "dispatch"),
        ("vfs_read", None, OTHER),
        ("kprobe_func", "lab_kprobe", "handler"),
        ("booster_go", "lab_kprobe", "single-step"),
        ("djprobe_stub", "lab_djprobe", "detour"),
        ("enter", "lab_kretprobe_rethook", "return"),
        ("enter", "mine", "handler"),
        ("get_kprobe", "mine", "handler"),  # a function of a module, whatever it is called
    ],
)
def test_the_purpose_of_a_function(function: str, module: str | None, purpose: str) -> None:
    assert purpose_of_function(function, module) == purpose


def test_every_mechanism_that_makes_code_has_a_purpose_for_it() -> None:
    mechanisms = {kind.mechanism for kind in probes().values()}
    assert {one for purpose in purposes().values() for one in purpose.generated} <= mechanisms
    assert [purpose_of_generated(one) for one in ("int3", "jump", "detour", "none")] == [
        "single-step",
        "detour",
        "detour",
        OTHER,
    ]


def test_no_purpose_is_called_other_and_each_names_its_source() -> None:
    assert OTHER not in purposes()
    assert all(purpose.source and purpose.title for purpose in purposes().values())
    assert in_order(["other", "lookup", "of a later version", "trap"]) == [
        "trap",
        "lookup",
        "of a later version",
        "other",
    ]


def test_the_purposes_of_a_profile_have_all_its_instructions() -> None:
    cell_profile = profile(
        ("callbench", "user", None, 26),
        ("get_kprobe", "kernel", None, 50),
        ("kprobe_func", "module", "lab_kprobe", 12),
        ("generated code", "generated", None, 4),
        ("vfs_read", "kernel", None, 8),
    )
    assert by_purpose(cell_profile, "int3") == {"other": 34, "lookup": 50, "handler": 12, "single-step": 4}
    assert by_purpose(cell_profile, "jump")["detour"] == 4
    assert sum(by_purpose(cell_profile, "jump").values()) == cell_profile.executed


def test_an_overhead_by_purpose_is_the_difference_of_two_cells() -> None:
    plain, probed = counted(500, other=500 * 422), counted(250, other=250 * 420, trap=250 * 404)
    assert overhead_by_purpose(probed, plain) == {"other": -2.0, "trap": 404.0}
    assert overhead_by_purpose(probed, None) == {}
    assert overhead_by_purpose(probed, plain.model_copy(update={"purposes": None})) == {}


def test_purposes_that_do_not_add_up_are_refused() -> None:
    assert spent("kprobe").overhead == sum(SPENT.values())
    with pytest.raises(ValidationError, match=r"the purposes add up to 628, but the overhead is 627\.0"):
        spent("kprobe", purposes={**SPENT, "lookup": 26.0})
    one = {"sha256": "0" * 64, "calls": 2, "instructions": 2 * 1036, "int3": 4, "purposes": {"trap": 2 * 1036 - 1}}
    with pytest.raises(ValidationError, match="the purposes have 2071 instructions, but the profile 2072"):
        cell("kprobe", profile=one, evidence=evidence("kprobe", calls=1000, hits=1000, int3=2000))


def test_a_table_has_a_row_for_each_purpose_and_csv_has_them() -> None:
    record = run(cell("none"), spent("kprobe"), cell("djprobe", purposes={"other": -2.0, "detour": 55.0}))
    sheet = REPORT.sheet(list(REPORT.groups(record.cells)))
    rows = {row.label: row.cells for block in sheet.grid.blocks for row in block}
    assert rows["  trap entry and exit"] == ["-", "404", "0"]
    assert rows["  detour"] == ["-", "0", "55"]
    assert rows["  other"] == ["-", "198", "-2"]
    assert any("purposes add up" in sentence for sentence in sheet.sentences)
    lines = list(csv.DictReader(io.StringIO(render_csv(record), newline="")))
    assert [json.loads(line["purposes"] or "{}").get("trap") for line in lines] == [None, 404.0, None]
    assert [json.loads(line["purposes"] or "{}").get("other") for line in lines] == [None, 198.0, -2.0]


def test_other_layouts_have_a_sentence_for_each_cell() -> None:
    first, meaning = purpose_sentences([cell("none"), spent("kprobe")], lambda one: one.probe)
    assert first == "kprobe: trap entry and exit 404, lookup 25, other 198."
    assert "add up" in meaning
    assert not list(purpose_sentences([cell("none"), cell("kprobe")], lambda one: one.probe))
