# SPDX-License-Identifier: GPL-2.0-only
"""The table, as it is read: golden files for what it looks like, and what holds of any run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_builders import COUNTS, cell, cells, evidence, failed, reference, run
from rich.console import Console

from orchestrator.report.table import number, print_table
from orchestrator.results.contract import CellRecord, RunRecord

GOLDEN = Path(__file__).with_name("golden")
RELEASE = {"kernel_release": "6.1.0-49-686"}
PANIC = (
    "the guest's kernel panicked while kprobe was measured; the console's last lines were\n"
    "[    1.204512] BUG: unable to handle page fault for address: cbbc0000 in the handler of this module\n"
    "[    1.204733] Kernel panic - not syncing: Fatal exception in interrupt"
)

RUNS: dict[str, RunRecord] = {
    "with_reference": run(*(cell(probe, reference=reference(probe), parameters=RELEASE) for probe in COUNTS)),
    "without_reference": run(*(cell(probe) for probe in COUNTS)),
    "with_failures": run(
        cell("none", reference=reference("none")),
        failed("kprobe", PANIC, reference=reference("kprobe")),
        cell("jprobe", reference=reference("jprobe"), evidence=evidence("jprobe", disturbed=3)),
        failed("djprobe", "not run: interrupted", status="skipped", reference=reference("djprobe")),
    ),
    "all_failed": run(failed("none", "the guest did not boot")),
    "single_column": run(cell("djprobe", overhead=None, interval=None)),
    "two_tables_with_fractions": run(
        cell("none", samples=[409.0002, 409.25], value=409.1251),
        cell("kprobe", samples=[1036.0], value=1036.0, overhead=626.8749),
        cell("none", id="athlon", cpu="athlon", kernel="debian-amd64", smp=2),
        cell("kprobe", id="athlon/kprobe", cpu="athlon", kernel="debian-amd64", smp=2),
    ),
    "empty": run(),
}


def printed(record: RunRecord, width: int = 80, encoding: str = "utf-8") -> str:
    """Print as into a pipe."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_table(record, Console(file=file, width=width))
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("name", RUNS)
def test_table_is_as_in_the_golden_file(name: str) -> None:
    text = printed(RUNS[name])
    assert text == (GOLDEN / f"table_{name}.txt").read_text("utf-8")
    assert max(map(len, text.splitlines())) <= 80


def test_a_narrow_ascii_output_gets_the_table_in_parts() -> None:
    text = printed(RUNS["with_reference"], width=50, encoding="ascii")
    assert text == (GOLDEN / "table_narrow_ascii.txt").read_text("ascii")
    assert max(map(len, text.splitlines())) <= 50


def test_a_pipe_gets_no_escapes_and_a_terminal_the_same_words() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard", record=True)
    print_table(RUNS["with_failures"], console)
    plain = printed(RUNS["with_failures"])
    assert "\x1b" not in plain
    assert console.export_text(styles=False) == plain


def test_a_ratio_needs_a_djprobe_that_costs_something() -> None:
    free = run(cell("none"), cell("kprobe"), cell("djprobe", samples=[409.0], value=409.0, overhead=0.0, interval=None))
    ratios = next(line for line in printed(free).splitlines() if line.startswith("ratio"))
    assert ratios.split() == ["ratio", "to", "djprobe", "-", "-", "-"]


def test_a_reference_this_version_does_not_know_is_named() -> None:
    unknown = run(cell("none", reference={"table": "later/list1", "value": 5.0, "overhead": 0.0, "unit": "us"}))
    text = printed(unknown)
    assert "Published: later/list1." in text
    assert "published average(us)" in text


def test_guest_text_cannot_style_the_terminal() -> None:
    assert "[bold]\\[1]?[2J" in printed(run(failed("kprobe", "[bold]\\[1]\x1b[2J")))


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
