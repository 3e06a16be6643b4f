# SPDX-License-Identifier: GPL-2.0-only
"""Do the chart and the sparkline of a history show its course, its steps, and its runs without a number?"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from drawn_charts import bar_charts
from html_checks import Element, parsed
from hypothesis import example, given
from hypothesis import strategies as st
from record_builders import COUNTS, cell, noop_list, recording_list, run
from stored_histories import BEGUN, EXPERIMENT, KPROBE, NEEDS_RUPTURES, broken, counted, store_days, timed

from orchestrator.benchmarks.registry import reports
from orchestrator.errors import HostError
from orchestrator.report.chart import sparkline
from orchestrator.report.html.pictures import bounds, history_picture, levels
from orchestrator.report.table_report import draw_charts
from orchestrator.results.contract import CellRecord
from orchestrator.results.cost_history import History, HistoryPoint, Metric, Quantity, history
from orchestrator.results.history_steps import Steps, steps_of
from orchestrator.results.store import Store


def chart(lab: Path, days: Sequence[CellRecord], quantity: Quantity = "value") -> Steps:
    store_days(lab, days)
    with Store.open(lab) as store:
        found = history(store, Metric(EXPERIMENT, KPROBE), quantity)
    assert found is not None
    return steps_of(found)


def test_levels_reach_to_the_next_step(tmp_path: Path) -> None:
    drawn = chart(tmp_path, [counted(1036), counted(1036), broken(), counted(1050), counted(1049)])
    found = [(level.first.day, level.last.day, level.value, level.change) for level in levels(drawn)]
    assert found == [(1, 4, 1036, ""), (4, 5, 1050, "+14"), (5, 5, 1049, "-1")]
    assert [drawn.history.of(point) for point in drawn.history.points] == [1036, 1036, None, 1050, 1049]
    assert all(bounds(drawn.history, point) is None for point in drawn.history.points)


@pytest.mark.parametrize(("quantity", "centre"), [("value", 1000.0), ("overhead", 591.0)])
def test_an_interval_is_around_what_is_drawn(tmp_path: Path, quantity: Quantity, centre: float) -> None:
    drawn = chart(tmp_path, [timed(1000.0)], quantity).history
    assert (drawn.of(drawn.points[0]), bounds(drawn, drawn.points[0])) == (centre, (centre - 4, centre + 4))


def test_a_history_without_a_number_is_drawn(tmp_path: Path) -> None:
    assert "a run without a number" in picture(chart(tmp_path, [broken(), broken()])).whole_text


def test_a_picture_says_each_step_and_stays_small(tmp_path: Path) -> None:
    drawn = chart(tmp_path, [counted(1036 + (14 if day >= 60 else 0)) for day in range(120)])
    root = picture(drawn)
    assert "+14" in [element.whole_text for element in root.all("text")]
    assert root.all("title")[0].whole_text == KPROBE
    assert "120 runs from 2026-03-01 to 2026-06-28; 1 step, the newest: +14 on 2026-04-30" in root.whole_text
    # 120 equal runs are two lines: a point for each would be five times as much.
    assert len(history_picture(drawn, "x")) < 5000


@NEEDS_RUPTURES
def test_a_picture_of_times_with_failures(tmp_path: Path) -> None:
    chance = random.Random(3)
    days = [timed(round(chance.gauss(1000 + 60 * (day >= 15), 8), 1)) if day % 7 else broken() for day in range(30)]
    root = picture(chart(tmp_path, days))
    paths = [element.attributes for element in root.all("path")]
    bands = [path for path in paths if "fill-opacity" in path]
    # The first of a week has no number, and none is drawn across it.
    assert len(bands) == 5
    assert "a run without a number" in root.whole_text


def test_newest_of_close_steps_are_labelled(tmp_path: Path) -> None:
    drawn = chart(tmp_path, [counted(1036 + day) for day in range(400)])
    root = picture(drawn)
    lines = [element for element in root.all("path") if "stroke-dasharray" in element.attributes]
    labels = [float(element.attributes["x"]) for element in root.all("text") if element.whole_text == "+1"]
    assert len(lines) == 399
    assert labels[0] == float(lines[0].attributes["d"].partition(" ")[0].removeprefix("M"))
    assert 20 < len(labels) < 60
    assert all(newer - older > 14 for newer, older in pairwise(labels))


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@example([0.0, 4.460186899733086e-230])
def test_any_figures_are_drawn_inside_the_axes(values: list[float | None]) -> None:
    moments = [BEGUN + timedelta(hours=7 * at) for at in range(len(values))]
    points = [
        HistoryPoint(str(at), at.isoformat(), "", "ok", "instructions", "instructions", "m", value)
        for at, value in zip(moments, values, strict=True)
    ]
    root = picture(Steps(History(Metric("s", "t"), points), [], ""))
    (runs,) = [element.attributes["d"] for element in root.all("path") if "stroke-linecap" in element.attributes] or [
        ""
    ]
    places = [tuple(map(float, one.split("h")[0].split())) for one in runs.split("M")[1:]]
    assert all(0 < x < 960 and 0 < y < 320 for x, y in places)
    assert bool(places) == any(value is not None for value in values)


def picture(drawn: Steps) -> Element:
    """The parsed SVG, whose ids are there once."""
    return parsed(history_picture(drawn, "chart"))


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 10, ""),
        ([1.0, 2.0, 3.0], 10, "▁▅█"),
        ([5.0, 5.0], 10, "▅▅"),
        ([None, 1.0, None, 9.0], 10, "!▁!█"),
        ([None, None], 10, "!!"),
        ([1.0] * 50 + [2.0] * 50, 4, "▁▁██"),
        ([1.0, None] * 50, 4, "▅▅▅▅"),
    ],
)
def test_a_sparkline(values: Sequence[float | None], width: int, line: str) -> None:
    assert sparkline(values, width) == line


# Charts as files: their names, their bytes, and what is needed to draw them.

PNG = b"\x89PNG\r\n\x1a\n"


def test_charts_are_named_after_their_tables_and_never_overwrite_each_other() -> None:
    plain = [cell(probe) for probe in COUNTS]
    other_cells = [cell(probe, id=f"smp/{probe}", smp=2) for probe in COUNTS]
    names = list(bar_charts(run(*recording_list("list12"), *plain, *other_cells)))
    assert names == ["list12", "pentium4-debian-686-noop", "pentium4-debian-686-noop-2"]


def test_equal_results_give_equal_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    record = run(*noop_list("list7"))
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        drawn = draw_charts(record, tmp_path / name, reports())
        assert [path.name for path in drawn] == ["list7.png", "list7.svg"]
        assert {path.parent for path in drawn} == {tmp_path / name / "charts"}
        files.append([path.read_bytes() for path in drawn])
    assert files[0] == files[1]
    assert files[0][0].startswith(PNG)
    assert b"<svg" in files[0][1]
    assert b"<dc:date>" not in files[0][1]


def test_without_matplotlib_the_error_has_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # what an import of a module that is not there meets
    with pytest.raises(HostError, match=r"pip install 'probe-lab\[plots\]'"):
        draw_charts(run(*noop_list("list5")), tmp_path, reports())
    assert list(tmp_path.iterdir()) == []
