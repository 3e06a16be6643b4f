# SPDX-License-Identifier: GPL-2.0-only
"""Charts: what they show, that equal results give equal files, and what is said without matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from record_builders import (
    COUNTS,
    cell,
    failed,
    mail_table,
    many_probes,
    marker_loops,
    noop_list,
    recording_list,
    run,
    wall_list,
)

from orchestrator.errors import HostError
from orchestrator.report.charts import charts, curves, draw_charts

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_list_is_shown_beside_the_published_one() -> None:
    (panes,) = charts(run(*noop_list("list7"))).values()
    assert panes.title == "Figure 4 Overheads of probes on Pentium M"
    assert list(panes.labels) == ["kprobes", "jprobe", "djprobe"]
    (left, (measured,)), (right, (published,)) = panes.panes
    assert (left, right) == ("measured, instructions", "published, nsec")
    assert [bar.value for bar in measured.bars] == [640.0, 1280.0, 53.0]
    assert [bar.text for bar in published.bars] == ["2191.5", "781.75", "-115"]
    assert published.bars[2].value == -115.0


def test_the_mails_tables_are_one_chart() -> None:
    drawn = charts(run(*mail_table("x86-32"), *mail_table("x86-64")))
    assert list(drawn) == ["jump-optimization-2009"]
    panes = drawn["jump-optimization-2009"]
    assert [[one.name for one in series] for _, series in panes.panes] == [["x86-32", "x86-64"]] * 2
    assert [bar.text for bar in panes.panes[0][1][0].bars] == ["640", "333", "97", "889", "568", "342"]
    assert [bar.text for bar in panes.panes[1][1][1].bars] == ["1.05", "0.50", "0.07", "1.45", "0.90", "0.40"]


def test_a_probe_on_a_kernel_of_its_own_is_told() -> None:
    (panes,) = charts(run(*mail_table("x86-32"))).values()
    assert "1 CPU, lab-i386-smp (kretprobe: lab-i386-smp-preempt), handler noop" in panes.subtitle


def test_what_has_no_number_is_named_in_its_place() -> None:
    (panes,) = charts(
        run(*noop_list("list5")[:2], failed("jprobe", "no", table="list5", kernel="lab-i386-up"))
    ).values()
    bars = panes.panes[0][1][0].bars
    assert [(bar.value, bar.text) for bar in bars] == [(640.0, "640"), (None, "failed")]


def test_wall_clock_bars_have_intervals_and_say_what_they_are() -> None:
    (panes,) = charts(run(*wall_list())).values()
    axis, (measured,) = panes.panes[0]
    assert axis == "measured, nsec (an indication only)"
    assert measured.bars[0].bounds == (2499.5, 2571.0)
    assert measured.bars[1].text == "41.2\nno verdict"


def test_thousands_of_kprobes_are_curves_over_their_number() -> None:
    drawn = curves(run(*many_probes()))
    assert {"kpcache-register", "kpcache-enable", "kpcache-hit", "kpcache-model"} <= set(drawn)
    totals, steps = drawn["kpcache-register"].panes
    assert (totals.logarithmic, steps.logarithmic) == (True, False)
    # One size is no curve.
    assert [curve.name for curve in totals.curves] == ["lab-i386-smp-hash12", "lab-i386-smp-kpcache"]
    assert [x for x, _ in totals.curves[0].points] == [1000, 5000]
    assert [x for x, _ in steps.curves[0].points] == list(range(500, 5001, 500))
    assert totals.curves[1].points[-1][1] == pytest.approx(6.0034, rel=1e-4)
    assert steps.curves[1].points[-1] == totals.curves[0].points[-1]
    later, first = drawn["kpcache-hit"].panes
    assert [later.curves[1].points[1][1], first.curves[1].points[1][1]] == [363.078125, 396.740625]
    assert len(drawn["kpcache-model"].panes[0].curves) == 4
    assert charts(run(*many_probes())) == {}


def test_each_group_of_marker_loops_has_a_chart() -> None:
    drawn = charts(run(*marker_loops(empty=2.0, empty_optimized=5.0, empty_generic=6.0, varargs=None, int3=2.0)))
    assert list(drawn) == ["markers-empty", "markers-enabled", "markers-int3"]
    (left, (measured,)), (right, (published,)) = drawn["markers-empty"].panes
    assert (left, right) == ("measured, instructions", "published, cycles")
    # What a marker adds, beside what it added.
    assert [bar.value for bar in measured.bars] == [3.0, 4.0]
    assert [bar.value for bar in published.bars] == [2.5, 1.17]
    assert drawn["markers-enabled"].panes[0][1][0].bars[0].text == "unsupported"
    assert len(drawn["markers-int3"].panes) == 1


def test_marker_loops_of_two_kernels_are_not_compared() -> None:
    empty, optimized = marker_loops(empty=2.0, empty_optimized=5.0)
    generic = marker_loops(empty=9.0, empty_generic=6.0)
    others = [one.model_copy(update={"kernel": "debian-686", "id": f"other/{one.id}"}) for one in generic]
    drawn = charts(run(empty, optimized, *others))
    (_, (measured,)), _ = drawn["markers-empty"].panes
    assert [(bar.value, bar.text) for bar in measured.bars] == [(3.0, "3"), (None, "nothing to compare")]


def test_charts_are_named_after_their_tables_and_never_overwrite_each_other() -> None:
    plain = [cell(probe) for probe in COUNTS]
    others = [cell(probe, id=f"smp/{probe}", smp=2) for probe in COUNTS]
    names = list(charts(run(*recording_list("list12"), *plain, *others)))
    assert names == ["list12", "pentium4-debian-686-noop", "pentium4-debian-686-noop-2"]


def test_a_table_without_probes_has_no_chart() -> None:
    assert charts(run(cell("none"))) == {}


def test_equal_results_give_equal_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    record = run(*noop_list("list7"), *mail_table("x86-32"), *mail_table("x86-64"))
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        drawn = draw_charts(record, tmp_path / name)
        assert [path.name for path in drawn] == [
            "list7.png",
            "list7.svg",
            "jump-optimization-2009.png",
            "jump-optimization-2009.svg",
        ]
        assert {path.parent for path in drawn} == {tmp_path / name / "charts"}
        files.append([path.read_bytes() for path in drawn])
    assert files[0] == files[1]
    assert files[0][0].startswith(PNG)
    assert b"<svg" in files[0][1]
    assert b"<dc:date>" not in files[0][1]


def test_without_matplotlib_the_way_to_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # what an import of a module that is not there meets
    with pytest.raises(HostError, match=r"pip install 'probe-lab\[plots\]'"):
        draw_charts(run(*noop_list("list5")), tmp_path)
    assert list(tmp_path.iterdir()) == []
