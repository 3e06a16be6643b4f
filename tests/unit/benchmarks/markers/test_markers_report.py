# SPDX-License-Identifier: GPL-2.0-only
"""Tables and charts of the markers document's loops."""

from __future__ import annotations

import pytest
from drawn_charts import bar_charts
from record_builders import marker_loops, mixed_marker_loops, run
from report_text import check_golden_table

from orchestrator.results.contract import RunRecord

RUNS: dict[str, RunRecord] = {
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
    "markers_of_two_kernels": run(*mixed_marker_loops()),
}


@pytest.mark.parametrize("name", RUNS)
def test_markers_table_is_as_in_the_golden_file(name: str) -> None:
    check_golden_table(name, RUNS[name])


def test_each_group_of_marker_loops_has_a_chart() -> None:
    drawn = bar_charts(run(*marker_loops(empty=2.0, empty_optimized=5.0, empty_generic=6.0, varargs=None, int3=2.0)))
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
    other_cells = [cell.model_copy(update={"kernel": "debian-686", "id": f"other/{cell.id}"}) for cell in generic]
    drawn = bar_charts(run(empty, optimized, *other_cells))
    (_, (measured,)), _ = drawn["markers-empty"].panes
    assert [(bar.value, bar.text) for bar in measured.bars] == [(3.0, "3"), (None, "nothing to compare")]
