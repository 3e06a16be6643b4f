# SPDX-License-Identifier: GPL-2.0-only
"""The table on any terminal and in any pipe: its words, its figures, its notes."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_builders import COUNTS, cell, cells, evidence, failed, run
from report_examples import RUNS
from report_text import GOLDEN, printed
from rich.console import Console

from orchestrator.benchmarks.registry import reports
from orchestrator.report.claims import all_claims
from orchestrator.report.sheet import number
from orchestrator.report.text import print_table
from orchestrator.results.contract import CellRecord


def test_a_note_of_every_cell_is_printed_once_and_without_marks() -> None:
    note = "an SMP kernel on one virtual CPU"
    text = printed(run(*(cell(probe, notes=[note]) for probe in COUNTS)))
    assert text.count(note) == 1
    assert "[1]" not in text


def test_a_reason_of_many_cells_is_one_note_with_the_first_words_of_the_kernel() -> None:
    words = "the kernel refuses it:\n[    {time}.200000] kprobes: no"
    refused = [failed("kprobe", words.format(time=index), id=f"{index}", probe=f"probe{index}") for index in range(40)]
    text = printed(run(cell("none"), *refused), width=100)
    assert "[1] probe0, probe1, probe2 and 37 others failed (40 cells): the kernel refuses it:\n" in text
    assert text.count("kprobes: no") == 1
    assert text.count("failed [1]") == 40


def test_traps_that_are_others_as_well_are_unknown_and_not_nothing() -> None:
    hit = evidence("kprobe", int3=None, others=3)
    text = printed(run(cell("none"), cell("kprobe", evidence=hit), cell("jprobe")))
    assert re.search(r"^int3 a hit +- +unknown +3$", text, re.MULTILINE), text
    sentence = "int3 a hit is unknown for kprobes: 3 hits by others came while the hits were counted, and QEMU"
    assert sentence in " ".join(text.split())
    by_kvm = printed(run(cell("none"), cell("kprobe", evidence=hit, parameters={"accelerator": "kvm"})))
    assert "unknown" not in by_kvm


def test_traps_of_a_module_that_does_not_count_others_are_unknown() -> None:
    hit = evidence("kprobe", int3=None, others=None)
    text = printed(run(cell("none"), cell("kprobe", evidence=hit), cell("jprobe")))
    assert re.search(r"^int3 a hit +- +unknown +3$", text, re.MULTILINE), text
    assert "int3 a hit is unknown for kprobes: hits by others came while" in " ".join(text.split())


def test_the_release_stands_in_the_heading_though_all_cells_failed() -> None:
    text = printed(run(failed("none", "no guest", parameters={"kernel_release": "6.1.0-50-686"})))
    assert "linux-6.1.0-50-686" in text


def test_a_narrow_ascii_output_gets_the_table_in_parts() -> None:
    text = printed(RUNS["with_reference"], width=50, encoding="ascii")
    assert text == (GOLDEN / "table_narrow_ascii.txt").read_text("ascii")
    assert max(map(len, text.splitlines())) <= 50


def test_every_claim_is_printed_with_its_figures_on_demand() -> None:
    text = printed(RUNS["with_reference"], claims=all_claims)
    assert text == (GOLDEN / "table_with_all_claims.txt").read_text("utf-8")


def test_a_pipe_gets_no_escapes_and_a_terminal_the_same_words() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard", record=True)
    print_table(RUNS["with_failures"], console, reports())
    plain = printed(RUNS["with_failures"])
    assert "\x1b" not in plain
    assert console.export_text(styles=False) == plain


def test_guest_text_cannot_style_the_terminal() -> None:
    assert "[bold]\\[1]\\x1b[2J" in printed(run(failed("kprobe", "[bold]\\[1]\x1b[2J")))


@given(st.lists(cells(), max_size=5, unique_by=lambda drawn: drawn.id), st.integers(min_value=1, max_value=200))
def test_any_run_prints_every_figure_at_any_width(drawn: list[CellRecord], width: int) -> None:
    text = printed(run(*drawn), width=width, encoding="ascii")
    for drawn_cell in drawn:
        assert all(number(sample) in text for sample in drawn_cell.samples)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (409.0, "409"),
        (-0.0, "0"),
        (1246.25, "1246.25"),
        (409.0034, "409.0034"),
        (409.00001, "409.0000"),
        (-3.5, "-3.5"),
    ],
)
def test_numbers_are_exact(value: float, shown: str) -> None:
    assert number(value) == shown
