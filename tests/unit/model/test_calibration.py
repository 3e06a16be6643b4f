# SPDX-License-Identifier: GPL-2.0-only
"""Are costs fitted to the counts of the declared kernel, and of no other?"""

from __future__ import annotations

from pathlib import Path

import pytest
from profiled_cells import list5
from record_builders import run

from orchestrator.errors import LabError, UsageError
from orchestrator.model.cost_file import cost_file, load_cost_file
from orchestrator.model.modelled_run import calibrated
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run

PROBES = ("kprobe", "jprobe", "djprobe")


def stored(folder: Path, *cells: CellRecord) -> Run:
    return Run(run(*cells), folder)


def test_the_catalogues_costs_are_those_of_the_declared_kernel(tmp_path: Path) -> None:
    file = cost_file("pentium4")
    assert calibrated(file, [stored(tmp_path, *list5(tmp_path, *PROBES))]) == file.table.fitted


def test_counts_of_another_kernel_are_refused_with_both_names(tmp_path: Path) -> None:
    wrong = stored(tmp_path, *list5(tmp_path, *PROBES, kernel="debian-686"))
    with pytest.raises(UsageError) as raised:
        calibrated(cost_file("pentium4"), [wrong])
    assert "counted djprobe-2005/list5 kprobe on kernel debian-686" in raised.value.what
    assert "the cost table of pentium4 declares lab-i386-up" in raised.value.what
    assert "--set kernels=[lab-i386-up] --profile symbols" in raised.value.hint
    assert "model show pentium4 --format yaml" in raised.value.hint


def test_a_run_of_another_kernel_is_refused_beside_one_of_the_declared(tmp_path: Path) -> None:
    wrong = stored(tmp_path, *list5(tmp_path, "kprobe", kernel="debian-686"))
    right = stored(tmp_path, *list5(tmp_path, *PROBES))
    with pytest.raises(UsageError, match="on kernel debian-686"):
        calibrated(cost_file("pentium4"), [right, wrong])


def test_of_a_run_of_two_kernels_the_declared_one_counts(tmp_path: Path) -> None:
    cells = [*list5(tmp_path, "kprobe", kernel="debian-686"), *list5(tmp_path, *PROBES)]
    file = cost_file("pentium4")
    assert calibrated(file, [stored(tmp_path, *cells)]) == file.table.fitted


def test_a_table_of_ones_own_may_declare_another_kernel(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(cost_file("pentium4").text.replace("list5: lab-i386-up", "list5: debian-686"))
    file = load_cost_file(own)
    assert "has changed since it was fitted" in (file.unusable or "")
    found = calibrated(file, [stored(tmp_path, *list5(tmp_path, *PROBES, kernel="debian-686"))])
    assert found.declaration == file.declaration


def test_missing_cells_are_listed_with_their_kernel(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        calibrated(cost_file("pentium4"), [stored(tmp_path, *list5(tmp_path, "kprobe"))])
    assert raised.value.detail == (
        "djprobe-2005/list5 jprobe on lab-i386-up",
        "djprobe-2005/list5 djprobe on lab-i386-up",
    )


def test_a_cpu_that_cannot_be_calibrated_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"pentium-m cannot be calibrated: .* contradict each other"):
        calibrated(cost_file("pentium-m"), [stored(tmp_path, *list5(tmp_path, *PROBES))])
