# SPDX-License-Identifier: GPL-2.0-only
"""Tables and charts of whole-system workloads."""

from __future__ import annotations

import pytest
from drawn_charts import bar_charts
from record_builders import marked_build, recorded_build, run
from report_text import check_golden

from orchestrator.results.contract import RunRecord

RUNS: dict[str, RunRecord] = {
    "whole_system_recorded": run(*recorded_build()),
    "whole_system_marked": run(*marked_build()),
}


@pytest.mark.parametrize("name", RUNS)
def test_system_table_is_as_in_the_golden_file(name: str) -> None:
    check_golden(name, RUNS[name])


def test_the_instrumentation_stands_beside_what_a_difference_has_to_exceed() -> None:
    first, again, marked = marked_build()
    counted = {"instrumentation": 1044516.0, "instrumentation_least": 1038774.0, "instrumentation_most": 1044618.0}
    cells = [
        *(
            cell.model_copy(update={"parameters": {**cell.parameters, "instrumentation": 0.0}})
            for cell in (first, again)
        ),
        marked.model_copy(update={"parameters": {**marked.parameters, **counted}}),
    ]
    check_golden("whole_system_instrumentation", run(*cells))


def test_bars_are_per_cent_of_the_baseline() -> None:
    (chart,) = bar_charts(RUNS["whole_system_recorded"]).values()
    (left, (added,)), (right, (published,)) = chart.panes
    assert (left, right) == ("added to a run, per cent", "published, per cent")
    assert chart.labels[0] == "A/A boot"
    assert [bar.text for bar in added.bars] == ["+0.018", "+0.383", "+0.511", "+5.111", "+0.013\nno verdict", "failed"]
    assert [bar.value is None for bar in published.bars] == [True, True, False, False, True, False]


def test_a_baseline_alone_has_no_chart() -> None:
    assert bar_charts(run(recorded_build()[0])) == {}
