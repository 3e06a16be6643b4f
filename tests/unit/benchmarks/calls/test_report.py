# SPDX-License-Identifier: GPL-2.0-only
"""Tables and charts of calls: the lists of 2005, the mail's tables of 2009, List 15."""

from __future__ import annotations

import re
from typing import Any

import pytest
from drawn_charts import bar_charts
from record_builders import COUNTS, cell, failed, mail_table, noop_list, reference, run, table_cell, wall_list
from report_examples import RUNS
from report_text import check_golden_table, printed

from orchestrator.benchmarks.registry import reports
from orchestrator.report.chart import BarChart
from orchestrator.report.markdown import render_markdown
from orchestrator.report.summary import summary
from orchestrator.report.table_report import cell_groups, charts
from orchestrator.results.contract import CellRecord


@pytest.mark.parametrize("name", RUNS)
def test_calls_table_is_as_in_the_golden_file(name: str) -> None:
    check_golden_table(name, RUNS[name])


def test_a_wide_terminal_gets_both_halves_of_the_mail_in_one_table() -> None:
    text = printed(RUNS["mail"], width=130)
    row = next(line for line in text.splitlines() if line.startswith("kprobe+optimized"))
    assert row.split() == ["kprobe+optimized", "97", "0.05", "1.00", "1.00", "99", "0.07", "1.00", "1.00"]


def test_probes_on_a_kernel_of_their_own_stay_in_the_table() -> None:
    text = printed(run(*mail_table("x86-32")))
    assert text.count("kretprobe+booster  ") >= 1
    assert "x86-32 kretprobe: measured on lab-i386-smp-preempt, with that kernel's\n    baseline of 371" in text


def test_kernels_that_share_probes_have_tables_of_their_own() -> None:
    two = [
        table_cell("djprobe-2005/list5", probe, COUNTS[probe], COUNTS["none"], kernel=kernel)
        for kernel in ("lab-i386-up", "lab-i386-smp")
        for probe in ("none", "djprobe")
    ]
    text = printed(run(*two))
    assert text.count("\noverhead(instructions)") == 2


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


def test_a_list_is_shown_beside_the_published_one() -> None:
    (panes,) = bar_charts(run(*noop_list("list7"))).values()
    assert panes.title == "Figure 4 Overheads of probes on Pentium M"
    assert list(panes.labels) == ["kprobes", "jprobe", "djprobe"]
    (left, (measured,)), (right, (published,)) = panes.panes
    assert (left, right) == ("measured, instructions", "published, nsec")
    assert [bar.value for bar in measured.bars] == [640.0, 1280.0, 53.0]
    assert [bar.text for bar in published.bars] == ["2191.5", "781.75", "-115"]
    assert published.bars[2].value == -115.0


def test_the_mails_tables_are_one_chart() -> None:
    drawn = bar_charts(run(*mail_table("x86-32"), *mail_table("x86-64")))
    assert list(drawn) == ["jump-optimization-2009"]
    panes = drawn["jump-optimization-2009"]
    assert [[one.name for one in series] for _, series in panes.panes] == [["x86-32", "x86-64"]] * 2
    assert [bar.text for bar in panes.panes[0][1][0].bars] == ["640", "333", "97", "889", "568", "342"]
    assert [bar.text for bar in panes.panes[1][1][1].bars] == ["1.05", "0.50", "0.07", "1.45", "0.90", "0.40"]


def test_the_subtitle_names_the_kernel_of_a_probe_on_another_one() -> None:
    (panes,) = bar_charts(run(*mail_table("x86-32"))).values()
    assert "1 CPU, lab-i386-smp (kretprobe: lab-i386-smp-preempt), handler noop" in panes.subtitle


def test_the_title_names_the_system_call() -> None:
    called = {"benchmark": "syscall", "parameters": {"call": "getppid"}}
    (chart,) = bar_charts(run(cell("none", **called), cell("kprobe", **called))).values()
    assert chart.title == "Overheads of probes on getppid, Intel Pentium 4 3.06 GHz (Northwood)"
    (published,) = bar_charts(run(*noop_list("list5"))).values()
    assert published.subtitle.startswith("overhead a call of gettimeofday; measured on pentium4, ")


def test_a_cell_without_a_number_shows_its_status() -> None:
    (panes,) = bar_charts(
        run(*noop_list("list5")[:2], failed("jprobe", "no", table="list5", kernel="lab-i386-up"))
    ).values()
    shown = panes.panes[0][1][0].bars
    assert [(bar.value, bar.text) for bar in shown] == [(640.0, "640"), (None, "failed")]


def test_wall_clock_bars_have_intervals_and_a_caveat() -> None:
    (panes,) = bar_charts(run(*wall_list())).values()
    axis, (measured,) = panes.panes[0]
    assert axis == "measured, nsec (an indication only)"
    assert measured.bars[0].bounds == (2499.5, 2571.0)
    assert measured.bars[1].text == "41.2\nno verdict"


def test_a_table_without_probes_has_no_chart() -> None:
    assert bar_charts(run(cell("none"))) == {}


def test_capabilities_have_no_chart() -> None:
    assert bar_charts(RUNS["capabilities"]) == {}


# Two kernels of one matrix side by side, with what the second takes more; and what stays apart.

SECOND = {"none": 12.0, "kprobe": 15.0, "jprobe": 0.0, "djprobe": -2.0}


def on(kernel: str, more: dict[str, float] | None = None, **changes: Any) -> list[CellRecord]:
    """The quickstart's cells on a kernel, each of which costs ``more``; no document's layout."""
    more = more or dict.fromkeys(COUNTS, 0.0)
    built = []
    for probe, count in COUNTS.items():
        value = count + more[probe]
        overhead = value - COUNTS["none"] - more["none"]
        numbers = {"samples": [value] * 2, "value": value, "overhead": overhead, "interval": [overhead, overhead]}
        identity = {"id": f"pentium4/{kernel}/{probe}/noop", "kernel": kernel}
        built.append(cell(probe, **identity, **numbers, **changes))
    return built


def test_two_kernels_are_side_by_side() -> None:
    check_golden_table("two_kernels", run(*on("lab-i386-up"), *on("debian-686", SECOND)))


def test_markdown_has_the_same_columns() -> None:
    text = render_markdown(run(*on("lab-i386-up"), *on("debian-686", SECOND)), reports())
    assert "|  | lab-i386-up | debian-686 | difference |  |" in text
    assert "| kprobes | 1036 | 1051 | +15 | +1.45 % |" in text
    assert text.count("## Overhead of probes") == 1


def test_the_summary_begins_with_the_largest_difference() -> None:
    found = summary(run(*on("lab-i386-up"), *on("debian-686", SECOND)), reports())
    assert found[0] == "Largest difference from lab-i386-up to debian-686: kprobes, +15 instructions a call (+1.45 %)."
    assert found[1] == "Largest overhead, lab-i386-up: jprobe, 1280 instructions a call (+313 %)."
    same = summary(run(*on("lab-i386-up"), *on("debian-686")), reports())
    assert same[0] == "Calls cost the same on lab-i386-up, debian-686."


def test_purposes_are_compared_too() -> None:
    spent = {"trap": 400.0, "other": 227.0}
    first, second = on("a")[1], on("b", {**SECOND, "none": 0.0})[1]
    record = run(
        on("a")[0],
        CellRecord.model_validate({**first.model_dump(), "purposes": spent}),
        on("b")[0],
        CellRecord.model_validate({**second.model_dump(), "purposes": {**spent, "trap": 415.0}}),
    )
    (row,) = (line.split() for line in printed(record).splitlines() if "trap entry and exit" in line)
    assert row[-5:] == ["400", "415", "+15", "+3.75", "%"]


def test_what_one_kernel_cannot_have_is_said() -> None:
    second = on("debian-686", SECOND)
    refusal = "no such probe on this kernel"
    second[2] = failed("jprobe", refusal, status="unsupported", id=second[2].id, kernel="debian-686")
    lines = printed(run(*on("lab-i386-up"), *second[:3])).splitlines()
    assert next(line.split() for line in lines if line.startswith("jprobe ")) == [
        *("jprobe", "1689", "unsupported", "[1]", "-", "-")
    ]
    assert next(line.split() for line in lines if line.startswith("djprobe ")) == ["djprobe", "462", "-", "-", "-"]
    assert any(line == f"[1] jprobe on debian-686 unsupported: {refusal}" for line in lines)


def test_three_kernels_are_compared_with_the_first() -> None:
    text = printed(run(*on("a"), *on("b", SECOND), *on("c", dict.fromkeys(COUNTS, 1.0))), width=120)
    assert next(line.split() for line in text.splitlines() if line.startswith("kprobes")) == [
        *("kprobes", "1036", "1051", "+15", "+1.45", "%", "1037", "+1", "+0.10", "%")
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"reference": reference("kprobe")},
        {"clock": "wall", "unit": "ns"},
        {"cpu": "athlon"},
        {"handler": "record"},
        {"parameters": {"at": "do_fork"}},
    ],
)
def test_what_differs_in_more_or_has_a_layout_stays_apart(changes: dict[str, Any]) -> None:
    text = printed(run(*on("lab-i386-up"), *on("debian-686", SECOND, **changes)))
    assert "on 2 kernels" not in text
    both = printed(run(*on("lab-i386-up", **changes), *on("debian-686", SECOND, **changes)))
    assert ("on 2 kernels" in both) == (not {"reference", "clock"} & set(changes))


ONE_LINER = "bpftrace: kprobe:vfs_rea* { @ = count(); }"


def one_liner_on(kernel: str, attached: str, **changes: Any) -> list[CellRecord]:
    """A baseline, a kprobe, and a one-liner with what the kernel says of it."""
    baseline, kprobe, other_cell, _ = on(kernel, **changes)
    said = {"one_liner": ONE_LINER, "bpftrace": "0.23.2", "attached": attached}
    return [baseline, kprobe, other_cell.model_copy(update={"probe": "bpftrace.1", "parameters": said})]


def test_what_bpftrace_attaches_is_beside_its_cost() -> None:
    cells = [*one_liner_on("a", "bpf-kprobe (2 places)"), *one_liner_on("b", "bpf-kprobe-multi")]
    lines = printed(run(*cells), width=140).splitlines()
    rows = {line.split("  ")[0]: line.split() for line in lines}
    assert rows["baseline"][1:] == ["409", "-", "409", "-"]
    assert rows["kprobes"][1:] == ["627", "-", "627", "-"]
    assert rows[ONE_LINER][-5:] == ["bpf-kprobe", "(2", "places)", "1280", "bpf-kprobe-multi"]
    assert sum(line.split() == ["a", *("bpftrace", "0.23.2"), "b", *("bpftrace", "0.23.2")] for line in lines) == 1


def test_times_of_a_one_liner_have_their_intervals_and_its_mechanism() -> None:
    lines = printed(run(*one_liner_on("a", "bpf-kprobe", clock="wall", unit="ns")), width=140).splitlines()
    (row,) = (line.split() for line in lines if line.startswith("attached by bpftrace 0.23.2"))
    assert row[-3:] == ["-", "-", "bpf-kprobe"]


def test_kernels_beside_each_other_share_a_chart() -> None:
    drawn = charts(run(*on("lab-i386-up", table="t"), *on("debian-686", SECOND, table="t")), reports())
    assert list(drawn) == ["t"]
    chart = drawn["t"]
    assert isinstance(chart, BarChart)
    ((_, series),) = chart.panes
    assert [bars.name for bars in series] == ["lab-i386-up", "debian-686"]
    assert all(len(bars.bars) == len(chart.labels) for bars in series)
    assert all(bar.value is not None for bars in series for bar in bars.bars)


@pytest.mark.parametrize(("metric", "is_said"), [("cost per call", True), ("cost per run", False)])
def test_only_of_calls_that_vary_the_table_says_what_their_overhead_is(metric: str, is_said: bool) -> None:
    """Runs of a program scatter, too, and have another overhead."""
    samples = {"metric": metric, "samples": [400.0, 410.0, 420.0], "value": 410.0, "reference": None}
    baseline, kprobe = cell("none", **samples, overhead=0.0), cell("kprobe", **samples, overhead=10.0)
    (group,) = cell_groups(run(baseline, kprobe), reports())
    said = [
        sentence
        for sentence in reports().kind_of(kprobe).sheet([group]).sentences
        if sentence.startswith("Where calls vary")
    ]
    assert bool(said) is is_said


def test_what_calls_that_vary_cost_without_the_probe_in_turn_is_beside_their_average() -> None:
    """So that the average less it is about the overhead, whatever state of the guest the baseline was measured in."""
    samples = {"samples": [22_850.0, 22_860.0], "value": 22_855.0, "reference": None}
    probed = {"samples": [16_620.0, 16_630.0], "value": 16_625.0, "reference": None}
    kprobe = cell("kprobe", **probed, overhead=127.0, interval=[127.0, 127.0], parameters={"without_probe": 16_498.0})
    lines = printed(run(cell("none", **samples, overhead=0.0), kprobe)).splitlines()
    (row,) = (line.split() for line in lines if "without the probe, in turn" in line)
    assert row[-2:] == ["-", "16498"]
