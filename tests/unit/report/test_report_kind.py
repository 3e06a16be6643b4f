# SPDX-License-Identifier: GPL-2.0-only
"""Kinds of benchmark in a report: one that the core has never seen, one that nothing knows, and those there are."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Hashable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_builders import cell, cells, failed, noop_list, recorded_build, reference, run
from report_text import printed
from rich.console import Console

from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.registry import reports
from orchestrator.benchmarks.scaling.rows import kprobe_cache
from orchestrator.benchmarks.system.workloads import system_workloads
from orchestrator.report.chart import Bar, BarChart, Chart, Series
from orchestrator.report.claims import assess
from orchestrator.report.kind import Group, Panel, PlainReport, ReportRegistry, TableReport, charts
from orchestrator.report.sheet import Finding, Grid, Rank, Row, Sheet, figure
from orchestrator.report.text import print_table, render_markdown
from orchestrator.results.contract import CellRecord

GUEST_CODE = {"guest", "run", "probes", "artifacts", "experiment"}


class LatencyReport(TableReport):
    """A kind of its own: rows by probe, a panel for each cache size, all sizes in one table."""

    def owns(self, benchmark: str) -> bool:
        return benchmark == "latency"

    def apart(self, cell: CellRecord) -> Hashable:
        return cell.parameters["cache"]

    def panels(self, cells: Sequence[CellRecord]) -> list[Panel]:
        return [Panel(cells, cells[0].kernel)]

    def joins(self, panel: Panel, group: Group) -> bool:
        return panel.first.cpu == group[0].first.cpu

    def sheet(self, group: Group) -> Sheet:
        columns = [{one.probe: one for one in panel.cells} for panel in group]
        rows = [Row(probe, [figure(column[probe].value, "instructions") for column in columns]) for probe in columns[0]]
        headings = [f"{panel.first.parameters['cache']} KiB" for panel in group]
        return Sheet("Latencies", [group[0].first.cpu], Grid(headings, [rows]), [], [], [])

    def findings(self, group: Group) -> list[Finding]:
        return [Finding(Rank.LARGEST, f"256 KiB on {group[0].first.cpu} is slow.", len(group))]

    def charts(self, group: Group) -> Mapping[str, Chart]:
        bars = [Bar(one.value, one.probe) for panel in group for one in panel.cells]
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
    lines = printed(record, width=120).splitlines()
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
    assert [kind.owns(name) for kind in reports().kinds].count(True) == 1
    assert not isinstance(reports().kind_of(cell("none", benchmark=name)), PlainReport)


def test_a_report_is_printed_without_guest_code() -> None:
    program = (
        "import sys; import orchestrator.report.text, orchestrator.report.kind; "
        "from orchestrator.benchmarks.registry import reports; reports(); "
        "print(*{name.split('.')[1] for name in sys.modules if name.startswith('orchestrator.')})"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not GUEST_CODE & set(answer.stdout.split())
