# SPDX-License-Identifier: GPL-2.0-only
"""Do the chart and the sparkline of a history show its course, its steps, and its runs without a number?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from stored_histories import EXPERIMENT, KPROBE, broken, counted, store_days, timed

from orchestrator.report.chart import HistoryChart
from orchestrator.report.drawing import save, svg_text
from orchestrator.report.history_chart import history_chart
from orchestrator.report.sparkline import ASCII, BLOCKS, sparkline
from orchestrator.results.contract import CellRecord
from orchestrator.results.history import Metric, Quantity, history
from orchestrator.results.steps import steps_of
from orchestrator.results.store import Store


def chart(lab: Path, days: Sequence[CellRecord], quantity: Quantity = "value") -> HistoryChart:
    store_days(lab, days)
    with Store.open(lab) as store:
        found = history(store, Metric(EXPERIMENT, KPROBE), quantity)
    assert found is not None
    return history_chart(found, steps_of(found))


def test_levels_reach_to_the_next_step(tmp_path: Path) -> None:
    drawn = chart(tmp_path, [counted(1036), counted(1036), broken(), counted(1050), counted(1049)])
    levels = [(level.first.day, level.last.day, level.value, level.change) for level in drawn.levels]
    assert levels == [(1, 4, 1036, ""), (4, 5, 1050, "+14"), (5, 5, 1049, "-1")]
    assert [point.value for point in drawn.points] == [1036, 1036, None, 1050, 1049]
    assert all(point.bounds is None for point in drawn.points)


@pytest.mark.parametrize(("quantity", "centre"), [("value", 1000.0), ("overhead", 591.0)])
def test_an_interval_is_around_what_is_drawn(tmp_path: Path, quantity: Quantity, centre: float) -> None:
    drawn = chart(tmp_path, [timed(1000.0)], quantity)
    assert (drawn.points[0].value, drawn.points[0].bounds) == (centre, (centre - 4, centre + 4))


def test_a_history_without_a_number_is_drawn(tmp_path: Path) -> None:
    assert "without a number" in svg_text(chart(tmp_path, [broken(), broken()]))


def test_a_picture_says_each_step_and_stays_small(tmp_path: Path) -> None:
    days = [counted(1036 + (14 if day >= 60 else 0)) for day in range(120)]
    drawn = chart(tmp_path, days)
    text = svg_text(drawn)
    ElementTree.fromstring(text)
    assert "+14" in text
    assert KPROBE in text
    # 120 equal runs are two lines: a point for each would be four times as much.
    assert len(text) < 32_000
    assert [path.suffix for path in save(drawn, tmp_path, "history")] == [".png", ".svg"]


def test_a_picture_of_times_with_failures(tmp_path: Path) -> None:
    chance = random.Random(3)
    days = [timed(round(chance.gauss(1000 + 60 * (day >= 15), 8), 1)) if day % 7 else broken() for day in range(30)]
    text = svg_text(chart(tmp_path, days))
    assert "without a number" in text


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
    assert sparkline(values, width, ASCII) == line.translate(dict(zip(map(ord, BLOCKS), ASCII, strict=True)))
