# SPDX-License-Identifier: GPL-2.0-only
"""Does ``timeline`` say in a sentence why a stored cell has no call to show, before it starts anything?"""

from __future__ import annotations

from pathlib import Path

import pytest
from called_commands import refusal
from record_builders import cell, marker_loops, whole_system
from stored_histories import broken, counted, store_days, timed

from orchestrator.results.contract import PER_RUN, CellRecord

pytestmark = pytest.mark.usefixtures("lab")

MARKERS = marker_loops(empty=10.0)[0]
PROGRAM = cell("kprobe", metric=PER_RUN)


def stored(lab: Path, record: CellRecord) -> str:
    return store_days(lab, [record])[0]


@pytest.mark.parametrize(
    ("record", "status", "why"),
    [
        (broken(), 1, "is failed, and has no call to show the guest hangs"),
        (timed(1050), 2, "was measured by the wall clock, and a time line needs the exact one"),
        (PROGRAM, 2, "a time line is of one call, and cell pentium4/debian-686/kprobe/noop has the cost per run of"),
        (counted(9, benchmark="kpcache"), 2, "a time line is of one call"),
        (counted(9, benchmark="a-kind-of-others"), 2, "a time line is of one call"),
        (MARKERS, 2, "a time line is of one call"),
        (whole_system("debian-686", real=1.0, base=1.0), 2, "a time line is of one call"),
    ],
)
def test_a_cell_without_a_call_is_refused(lab: Path, record: CellRecord, status: int, why: str) -> None:
    run = stored(lab, record)
    assert why in refusal("timeline", f"{run}:{record.id}", status=status)


def test_names_that_mean_no_cell_or_several_are_refused(lab: Path) -> None:
    run = stored(lab, counted(1036))
    assert "names 2 cells" in refusal("timeline", run)
    assert "has no cell 'jprob'" in refusal("timeline", f"{run}:jprob")
    assert "no run before the colon" in refusal("timeline", ":kprobe")
    assert "has no cell 'jprob'" in refusal("timeline", f"{run}:kprobe", f"{run}:jprob")


def test_a_run_without_its_experiment_cannot_be_measured_again(lab: Path) -> None:
    run = stored(lab, counted(1036))
    assert "experiment.yaml: the run has no experiment" in refusal("timeline", f"{run}:kprobe", "--offline")


@pytest.mark.usefixtures("host_compiles")
def test_a_cell_that_its_experiment_no_longer_has_cannot_be_measured_again(lab: Path) -> None:
    run = stored(lab, counted(1036))
    table = "kernels: [debian-686]\nmachines: [{cpu: pentium4}]\nprobes: [djprobe]\nbenchmark: {name: gtodbench}\n"
    (lab / "runs" / run / "experiment.yaml").write_text(f"name: quickstart\n{table}")
    said = refusal("timeline", f"{run}:kprobe", "--offline")
    assert f"the experiment of run {run} no longer has cell pentium4/debian-686/kprobe/noop" in said


def test_a_file_that_cannot_be_written_is_refused_first(lab: Path, tmp_path: Path) -> None:
    run = stored(lab, counted(1036))
    assert "folder does not exist" in refusal("timeline", f"{run}:kprobe", "--output", str(tmp_path / "no" / "file"))
