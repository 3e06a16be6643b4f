# SPDX-License-Identifier: GPL-2.0-only
"""Tables and charts of calls: the lists of 2005, the mail's tables of 2009, List 15."""

from __future__ import annotations

import re

import pytest
from drawn_charts import bar_charts
from record_builders import COUNTS, cell, failed, mail_table, noop_list, run, table_cell, wall_list
from report_examples import RUNS
from report_text import check_golden, printed


@pytest.mark.parametrize("name", RUNS)
def test_calls_table_is_as_in_the_golden_file(name: str) -> None:
    check_golden(name, RUNS[name])


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
