# SPDX-License-Identifier: GPL-2.0-only
"""Tables and curves of thousands of kprobes."""

from __future__ import annotations

import pytest
from drawn_charts import bar_charts, curve_charts
from record_builders import failed, many_probes, run
from report_text import check_golden, printed

from orchestrator.results.contract import RunRecord

KPCACHE_CELL = ("id", "table", "kernel", "probe", "benchmark", "metric", "parameters")

RUNS: dict[str, RunRecord] = {
    "many_probes": run(*many_probes()),
    "many_probes_with_failures": run(
        *(one for one in many_probes() if one.table == "hash6"),
        *(
            failed("none", "the guest hangs", **{name: getattr(one, name) for name in KPCACHE_CELL})
            for one in many_probes()
            if one.kernel == "lab-i386-smp-kpcache"
        ),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_scaling_table_is_as_in_the_golden_file(name: str) -> None:
    check_golden(name, RUNS[name])


def test_thousands_of_kprobes_are_curves_over_their_number() -> None:
    drawn = curve_charts(run(*many_probes()))
    assert {"kpcache-register", "kpcache-enable", "kpcache-hit"} <= set(drawn)
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
    assert bar_charts(run(*many_probes())) == {}


def test_a_baseline_alone_has_a_plain_table() -> None:
    (baseline, *_) = [one for one in many_probes() if one.benchmark == "kpcache" and one.probe == "none"]
    assert any(line.startswith(baseline.id) for line in printed(run(baseline)).splitlines())
