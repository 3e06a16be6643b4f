# SPDX-License-Identifier: GPL-2.0-only
"""The table on any terminal and in any pipe: its words, its figures, its notes."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Hashable, Mapping, Sequence

import pytest
from drawn_records import cells
from hypothesis import example, given
from hypothesis import strategies as st
from record_builders import COUNTS, cell, evidence, failed, noop_list, recorded_build, reference, run
from report_examples import RUNS
from report_text import check_golden, printed
from rich.console import Console

from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.registry import reports
from orchestrator.benchmarks.scaling.rows import kprobe_cache
from orchestrator.benchmarks.system.workloads import system_workloads
from orchestrator.plain_text import listed
from orchestrator.report.chart import Bar, BarChart, Chart, Series
from orchestrator.report.claims import all_claims, assess
from orchestrator.report.figures import figure, number
from orchestrator.report.grid import Grid, Row
from orchestrator.report.highlights import Highlight, Rank
from orchestrator.report.markdown import render_markdown
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import CellGroup, PlainReport, ReportRegistry, TableReport, charts
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
    sentence = "int3 a hit is unknown for kprobes: QEMU's count of traps includes 3 hits by other processes."
    assert sentence in " ".join(text.split())
    by_kvm = printed(run(cell("none"), cell("kprobe", evidence=hit, parameters={"accelerator": "kvm"})))
    assert "unknown" not in by_kvm


def test_traps_of_a_module_that_does_not_count_others_are_unknown() -> None:
    hit = evidence("kprobe", int3=None, others=None)
    text = printed(run(cell("none"), cell("kprobe", evidence=hit), cell("jprobe")))
    assert re.search(r"^int3 a hit +- +unknown +3$", text, re.MULTILINE), text
    assert "int3 a hit is unknown for kprobes: QEMU's count of traps includes hits by other processes." in " ".join(
        text.split()
    )


def test_the_release_stands_in_the_heading_though_all_cells_failed() -> None:
    text = printed(run(failed("none", "no guest", parameters={"kernel_release": "6.1.0-50-686"})))
    assert "linux-6.1.0-50-686" in text


def test_a_narrow_ascii_output_gets_the_table_in_parts() -> None:
    text = printed(RUNS["with_reference"], width=50, encoding="ascii")
    check_golden("table_narrow_ascii.txt", text)
    assert max(map(len, text.splitlines())) <= 50


def test_undecided_claims_of_a_document_of_rates_are_printed_on_demand() -> None:
    check_golden("claims_of_rates.txt", printed(RUNS["rates"], claims=all_claims).partition("Claims of ")[2])


def test_every_claim_is_printed_with_its_figures_on_demand() -> None:
    text = printed(RUNS["with_reference"], claims=all_claims)
    check_golden("table_with_all_claims.txt", text)


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


# Is a long reason printed once in a run's tables, and are the names before it a list that one can read?

LONG = f"the module does not build: {'x ' * 80}ended"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["a", "b", "a"], "a and b"),
        (["a", "b", "c", "d"], "a, b, c and d"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 others"),
        (["a", "b, optimised"], "a and b, optimised"),
        (["a", "b, optimised", "c"], "a; b, optimised and c"),
    ],
)
def test_names_in_a_sentence(names: list[str], text: str) -> None:
    assert listed(names) == text


@pytest.mark.parametrize(("reason", "times"), [(LONG, 1), ("too short", 2)])
def test_a_later_table_names_the_note_of_the_first(reason: str, times: int) -> None:
    cells = [
        one
        for handler in ("noop", "record")
        for one in (
            cell("none", id=f"{handler}/none", handler=handler),
            failed("kprobe", reason, id=f"{handler}/kprobe", handler=handler),
        )
    ]
    text = " ".join(printed(run(*cells)).split())
    assert text.count(f"[1] kprobes failed: {reason}") == times
    assert text.count("[1] kprobes failed: see [1] of table 1") == 2 - times


# Kinds of benchmark in a report: one that the core has never seen, one that nothing knows, and those there are.

GUEST_CODE = {"guest", "run", "probes", "artifacts", "experiment"}


class LatencyReport(TableReport):
    """A kind of its own: rows by probe, a group for each cache size, all sizes in one table."""

    def handles(self, benchmark: str) -> bool:
        return benchmark == "latency"

    def table_key(self, cell: CellRecord) -> Hashable:
        return cell.parameters["cache"]

    def groups(self, cells: Sequence[CellRecord]) -> list[CellGroup]:
        return [CellGroup(cells, cells[0].kernel)]

    def same_table(self, group: CellGroup, groups: Sequence[CellGroup]) -> bool:
        return group.first.cpu == groups[0].first.cpu

    def sheet(self, groups: Sequence[CellGroup]) -> Sheet:
        columns = [{one.probe: one for one in group.cells} for group in groups]
        rows = [Row(probe, [figure(column[probe].value, "instructions") for column in columns]) for probe in columns[0]]
        headings = [f"{group.first.parameters['cache']} KiB" for group in groups]
        return Sheet("Latencies", [groups[0].first.cpu], Grid(headings, [rows]), [], [], [])

    def findings(self, groups: Sequence[CellGroup]) -> list[Highlight]:
        return [Highlight(Rank.LARGEST, f"256 KiB on {groups[0].first.cpu} is slow.", len(groups))]

    def charts(self, groups: Sequence[CellGroup]) -> Mapping[str, Chart]:
        bars = [Bar(one.value, one.probe) for group in groups for one in group.cells]
        return {"latency": BarChart("Latencies", "", [bar.text for bar in bars], [("", [Series("", bars)])])}


WITH_LATENCY = ReportRegistry((LatencyReport(), *reports().kinds))


def latencies(cpu: str = "pentium4") -> list[CellRecord]:
    return [
        cell(probe, id=f"{cpu}/{cache}/{probe}", cpu=cpu, benchmark="latency", parameters={"cache": cache})
        for cache in (256, 512)
        for probe in ("none", "kprobe")
    ]


def test_a_kind_that_the_core_does_not_know_lays_its_cells_out() -> None:
    record = run(*latencies(), *latencies("athlon"))
    text = printed(record, registry=WITH_LATENCY)
    assert text.count("Latencies\n") == 2
    assert text.splitlines()[3].split() == ["256", "KiB", "512", "KiB"]
    assert next(line for line in text.splitlines() if line.startswith("kprobe")).split() == ["kprobe", "1036", "1036"]
    assert "## Latencies" in render_markdown(record, WITH_LATENCY)
    assert list(charts(record, WITH_LATENCY)) == ["latency", "latency-2"]


def test_kinds_are_reported_in_the_runs_order() -> None:
    text = printed(
        run(*noop_list("list7"), *latencies(), *recorded_build(), *noop_list("list5")), registry=WITH_LATENCY
    )
    titles = ["List 7 ", "Latencies", "A/A boot", "List 5 "]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)


def test_a_benchmark_of_another_version_has_a_plain_table() -> None:
    record = run(
        *(cell(probe, benchmark="later", table="t", reference=reference(probe)) for probe in ("none", "kprobe")),
        failed("jprobe", "the guest hangs", benchmark="later", table="t"),
        *(cell(probe, id=f"wall/{probe}", benchmark="later", clock="wall", unit="ns") for probe in ("none", "djprobe")),
    )
    lines = printed(record, width=140).splitlines()
    assert lines[:2] == ["later", "t: pentium4, 1 CPU, cost per call in instructions"]
    kprobe = next(line for line in lines if line.startswith("pentium4/debian-686/kprobe/noop"))
    assert kprobe.split()[1:] == ["1036", "627", "627", "627", "1016.25", "nsec"]
    assert next(line for line in lines if line.startswith("pentium4/debian-686/jprobe/noop")).split()[1:3] == [
        "failed",
        "[1]",
    ]
    assert "[1] pentium4/debian-686/jprobe/noop failed: the guest hangs" in lines
    assert any(line.startswith("wall/djprobe") and line.split()[1:3] == ["462", "53"] for line in lines)
    assert charts(record, reports()) == {}
    # What the documents claim can be judged all the same.
    assert assess(record, reports())


@given(st.lists(cells(), max_size=5, unique_by=lambda drawn: drawn.id), st.integers(min_value=1, max_value=200))
def test_the_plain_table_has_a_row_for_any_cell(drawn: list[CellRecord], width: int) -> None:
    text = io.StringIO()
    print_table(run(*drawn), Console(file=text, width=width), ReportRegistry(()))
    for one in drawn:
        assert one.id in text.getvalue()
        assert one.value is None or figure(one.value, one.unit) in text.getvalue()


@pytest.mark.parametrize("name", sorted({*benchmarks(), *kprobe_cache().benchmarks, *system_workloads().benchmarks}))
def test_every_benchmark_has_one_kind(name: str) -> None:
    assert [kind.handles(name) for kind in reports().kinds].count(True) == 1
    assert not isinstance(reports().kind_of(cell("none", benchmark=name)), PlainReport)


def test_a_report_is_printed_without_guest_code() -> None:
    program = (
        "import sys; import orchestrator.report.text, orchestrator.report.table_report; "
        "from orchestrator.benchmarks.registry import reports; reports(); "
        "print(*{name.split('.')[1] for name in sys.modules if name.startswith('orchestrator.')})"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not GUEST_CODE & set(answer.stdout.split())


NAMES = st.lists(st.text("abcxyz0189", min_size=1, max_size=14), min_size=1, max_size=6).flatmap(
    lambda words: st.lists(st.sampled_from("/_.+ -"), min_size=len(words), max_size=len(words)).map(
        lambda marks: "".join(word + mark for word, mark in zip(words, marks, strict=True)).rstrip("/_.+ -")
    )
)


@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=4), st.sampled_from([40, 72, 100]))
@example(["watch.bpf.c.program-on_read", "counted/none"], ["base"], 72)
@example(["instructions_per_call"], ["reads_by_processes_that_wait"], 40)
def test_no_word_of_a_heading_or_label_is_cut(headings: list[str], labels: list[str], width: int) -> None:
    rows = [Row(label, ["1"] * len(headings)) for label in labels]
    text = "\n".join(line.plain for line in Grid(headings, [rows], narrowest=16).lines(width))
    printed = re.split(r"[\s/_.+─-]+", text)
    for name in (*headings, *labels):
        for word in re.split(r"[/_.+ -]+", name):
            assert word in printed


def test_a_last_column_that_does_not_fit_takes_the_one_before_it_along() -> None:
    headings = ["first", "second", "third", "last"]
    row = Row("label", ["1" * 9, "2" * 9, "3" * 9, "4" * 9])
    lines = [line.plain.split() for line in Grid(headings, [[row]]).lines(40)]
    assert [line for line in lines if set(line) & set(headings)] == [["first", "second"], ["third", "last"]]
