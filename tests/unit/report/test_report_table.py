# SPDX-License-Identifier: GPL-2.0-only
"""The table, as it is read: golden files for what it looks like, and what holds of any run."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_builders import (
    COUNTS,
    abilities,
    cell,
    cells,
    evidence,
    failed,
    mail_table,
    many_probes,
    marked_build,
    marker_loops,
    mixed_marker_loops,
    noop_list,
    recorded_build,
    recording_list,
    reference,
    run,
    table_cell,
    wall_list,
)
from rich.console import Console

from orchestrator.benchmarks.reports import REPORTS
from orchestrator.report.figures import number
from orchestrator.report.table import print_table
from orchestrator.results.contract import CellRecord, RunRecord

GOLDEN = Path(__file__).with_name("golden")
RELEASE = {"kernel_release": "6.1.0-49-686"}
PANIC = (
    "the guest's kernel panicked while kprobe was measured; the console's last lines were\n"
    "[    1.204512] BUG: unable to handle page fault for address: cbbc0000 in the handler of this module\n"
    "[    1.204733] Kernel panic - not syncing: Fatal exception in interrupt"
)

KPCACHE_CELL = ("id", "table", "kernel", "probe", "benchmark", "metric", "parameters")

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
    "lists": run(*noop_list("list4"), *noop_list("list7"), *recording_list("list12")),
    "mail": run(*mail_table("x86-32"), *mail_table("x86-64")),
    "mail_with_failures": run(
        *(one for one in mail_table("x86-32") if one.probe in ("none", "kprobe", "kprobe-optimized")),
        failed(
            "djprobe",
            "this kernel always boosts a kretprobe",
            id="x86-32/kretprobe",
            status="unsupported",
            table="x86-32",
            cpu="xeon-e5410",
            kernel="lab-i386-smp",
            probe="kretprobe",
        ),
    ),
    "abilities": run(*abilities()),
    "abilities_that_deviate": run(
        *(one for one in abilities() if one.probe.startswith("djprobe") and one.probe != "djprobe.anywhere"),
        abilities("djprobe.anywhere", refused=False)[0],
        failed("kprobe", "1000 calls were made and the probe's handler ran 999 times", probe="kprobe.break"),
    ),
    "markers": run(
        *marker_loops(
            empty=2.0,
            empty_optimized=5.0,
            empty_generic=5.0,
            memcpy=1030.0,
            memcpy_optimized=1033.0,
            registers=None,
            varargs=16.0,
            varargs_preemptible=14.0,
            int3=2.0,
            int3_on=564.0,
        )
    ),
    "many_probes": run(*many_probes()),
    "many_probes_with_failures": run(
        *(one for one in many_probes() if one.table == "hash6"),
        *(
            failed("none", "the guest hangs", **{name: getattr(one, name) for name in KPCACHE_CELL})
            for one in many_probes()
            if one.kernel == "lab-i386-smp-kpcache"
        ),
    ),
    "markers_of_two_kernels": run(*mixed_marker_loops()),
    "whole_system_recorded": run(*recorded_build()),
    "whole_system_marked": run(*marked_build()),
    "wall": run(*wall_list()),
    "wall_by_kvm": run(*wall_list("kvm")),
}


def printed(record: RunRecord, width: int = 80, encoding: str = "utf-8") -> str:
    """Print as into a pipe."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_table(record, Console(file=file, width=width), REPORTS)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("name", RUNS)
def test_table_is_as_in_the_golden_file(name: str) -> None:
    text = printed(RUNS[name])
    assert text == (GOLDEN / f"table_{name}.txt").read_text("utf-8")
    assert max(map(len, text.splitlines())) <= 80


def test_a_wide_terminal_gets_both_halves_of_the_mail_in_one_table() -> None:
    text = printed(RUNS["mail"], width=130)
    row = next(line for line in text.splitlines() if line.startswith("kprobe+optimized"))
    assert row.split() == ["kprobe+optimized", "97", "0.05", "1.00", "1.00", "99", "0.07", "1.00", "1.00"]


def test_probes_on_a_kernel_of_their_own_stay_in_the_table() -> None:
    text = printed(run(*mail_table("x86-32")))
    assert text.count("kretprobe+booster  ") >= 1
    assert "x86-32 kretprobe: measured on lab-i386-smp-preempt, against that kernel's\n    own baseline of 371" in text


def test_kernels_that_share_probes_have_tables_of_their_own() -> None:
    two = [
        table_cell("djprobe-2005/list5", probe, COUNTS[probe], COUNTS["none"], kernel=kernel)
        for kernel in ("lab-i386-up", "lab-i386-smp")
        for probe in ("none", "djprobe")
    ]
    text = printed(run(*two))
    assert text.count("\noverhead(instructions)") == 2


def test_a_note_of_every_cell_is_printed_once_and_without_marks() -> None:
    note = "an SMP kernel on one virtual CPU"
    text = printed(run(*(cell(probe, notes=[note]) for probe in COUNTS)))
    assert text.count(note) == 1
    assert "[1]" not in text


def test_a_narrow_ascii_output_gets_the_table_in_parts() -> None:
    text = printed(RUNS["with_reference"], width=50, encoding="ascii")
    assert text == (GOLDEN / "table_narrow_ascii.txt").read_text("ascii")
    assert max(map(len, text.splitlines())) <= 50


def test_a_pipe_gets_no_escapes_and_a_terminal_the_same_words() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard", record=True)
    print_table(RUNS["with_failures"], console, REPORTS)
    plain = printed(RUNS["with_failures"])
    assert "\x1b" not in plain
    assert console.export_text(styles=False) == plain


def test_a_ratio_needs_a_djprobe_that_costs_something() -> None:
    free = run(cell("none"), cell("kprobe"), cell("djprobe", samples=[409.0], value=409.0, overhead=0.0, interval=None))
    ratios = next(line for line in printed(free).splitlines() if line.startswith("ratio"))
    assert ratios.split() == ["ratio", "to", "djprobe", "-", "-", "-"]


def test_no_ratio_where_drift_hides_an_effect() -> None:
    lines = printed(run(*wall_list())).splitlines()
    assert next(line for line in lines if line.startswith("ratio")).split()[3:] == ["-", "none", "none"]


def test_nanoseconds_have_one_decimal_at_most() -> None:
    samples = [line for line in printed(run(*wall_list())).splitlines() if line.startswith("gtodbench")]
    assert len(samples) == 6
    assert not re.search(r"\.\d\d", "".join(samples))


@pytest.mark.parametrize(("accelerator", "indication"), [("tcg", True), ("kvm", False)])
def test_nanoseconds_of_an_emulator_are_an_indication(accelerator: str, indication: bool) -> None:
    assert ("an indication only" in printed(run(*wall_list(accelerator)))) is indication


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
