# SPDX-License-Identifier: GPL-2.0-only
"""Does a modelled time follow from the profiles of a cell and of its own baseline, and from nothing else?"""

from __future__ import annotations

from pathlib import Path

import pytest
from modelled_cells import counted
from profiled_cells import list5, profiled
from record_builders import failed, run

from orchestrator.errors import ConfigError, LabError, UsageError
from orchestrator.model.cost_file import cost_file
from orchestrator.model.modelled_run import known_costs, modelled_run, own_costs
from orchestrator.report.modelled_sheets import modelled_sheets
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run
from orchestrator.results.stored_profile import FOLDER, file_name


def test_the_counts_are_those_of_the_two_profiles(tmp_path: Path) -> None:
    (cell,) = modelled_run(Run(run(*list5(tmp_path, "kprobe")), tmp_path), known_costs()).cells
    assert cell.evidence is not None
    assert cell.evidence.counts == counted("list5")["kprobe"]
    assert cell.evidence.instructions == sum(cell.evidence.counts.values()) + 2
    assert cell.overhead == pytest.approx(986.2, abs=0.05)
    assert cell.role == "calibration"


def test_profiles_that_do_not_add_up_give_no_time(tmp_path: Path) -> None:
    """As where two baselines could be meant."""
    baseline, kprobe = list5(tmp_path, "kprobe")
    other = baseline.model_dump() | {"samples": [359.0], "value": 359.0, "profile": None}
    wrong = profiled(CellRecord.model_validate(other), tmp_path, ("90", 359))
    (cell,) = modelled_run(Run(run(wrong, kprobe), tmp_path), known_costs()).cells
    assert cell.overhead is None
    assert "differ by 530 instructions, and its overhead is 529" in (cell.reason or "")


def test_a_baseline_of_another_kernel_is_no_baseline(tmp_path: Path) -> None:
    baseline, kprobe = list5(tmp_path, "kprobe")
    elsewhere = CellRecord.model_validate(baseline.model_dump() | {"kernel": "lab-i386-smp"})
    (cell,) = modelled_run(Run(run(elsewhere, kprobe), tmp_path), known_costs()).cells
    assert cell.reason == "the cell, or the one without a probe, has no profile"


def test_a_cpu_without_a_cost_table_has_no_time(tmp_path: Path) -> None:
    cells = [CellRecord.model_validate(one.model_dump() | {"cpu": "athlon"}) for one in list5(tmp_path, "kprobe")]
    (cell,) = modelled_run(Run(run(*cells), tmp_path), known_costs()).cells
    assert cell.reason == "CPU athlon has no cost table"


def test_a_profile_that_is_not_the_recorded_one_is_an_error(tmp_path: Path) -> None:
    cells = list5(tmp_path, "kprobe")
    (tmp_path / FOLDER / file_name(cells[1].id)).write_bytes(b"")
    with pytest.raises(LabError, match="this is not the profile"):
        modelled_run(Run(run(*cells), tmp_path), known_costs())


def test_a_run_without_profiles_says_how_to_get_them(tmp_path: Path) -> None:
    cells = [CellRecord.model_validate(one.model_dump() | {"profile": None}) for one in list5(tmp_path, "kprobe")]
    with pytest.raises(UsageError, match="--profile symbols"):
        modelled_run(Run(run(*cells), tmp_path), known_costs())


def test_a_published_figure_is_calibration_on_the_declared_kernel_only(tmp_path: Path) -> None:
    cells = list5(tmp_path, "kprobe", "djprobe", kernel="debian-686")
    modelled = modelled_run(Run(run(*cells), tmp_path), known_costs())
    assert [cell.role for cell in modelled.cells] == ["predicted", "predicted"]
    assert {cell.calibration_kernel for cell in modelled.cells} == {"lab-i386-up"}
    (sentence,) = [one for sheet in modelled_sheets(modelled) for one in sheet.sentences if "debian-686" in one]
    assert sentence == (
        "list5, kprobe -3.0 %, djprobe -0.8 %: predicted from the counts of kernel debian-686; the costs were fitted "
        "to these figures with the counts of lab-i386-up."
    )
    declared = modelled_run(Run(run(*list5(tmp_path, "kprobe")), tmp_path), known_costs()).cells[0]
    assert (declared.role, declared.calibration_kernel) == ("calibration", None)


def test_a_cell_that_failed_has_no_time_and_its_reason(tmp_path: Path) -> None:
    baseline, kprobe = list5(tmp_path, "kprobe")
    _, cell = modelled_run(
        Run(run(baseline, kprobe, failed("jprobe", "the guest panicked")), tmp_path), known_costs()
    ).cells
    assert cell.probe == "jprobe"
    assert cell.reason == "jprobe failed: the guest panicked"


def test_a_run_whose_cells_failed_says_so(tmp_path: Path) -> None:
    (baseline,) = list5(tmp_path)
    with pytest.raises(LabError, match=r"its cells failed(.|\n)*orchestrator report") as raised:
        modelled_run(Run(run(baseline, failed("kprobe", "the guest panicked")), tmp_path), known_costs())
    assert raised.value.exit_status == 1


def test_two_cost_tables_of_one_cpu_are_refused(tmp_path: Path) -> None:
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text(cost_file("pentium4").text)
    paths = [str(tmp_path / name) for name in ("one.yaml", "two.yaml")]
    stored = Run(run(*list5(tmp_path, "kprobe")), tmp_path)
    assert list(own_costs(paths[:1], stored)) == ["pentium4"]
    with pytest.raises(UsageError, match=r"one\.yaml and .*two\.yaml both have the costs of pentium4"):
        own_costs(paths, stored)


def test_a_cost_table_of_ones_own_that_gives_no_times_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(cost_file("pentium4").declared)
    with pytest.raises(
        ConfigError, match=r"own\.yaml: .* was not fitted yet(.|\n)*model fit .*own\.yaml RUN --out FILE"
    ):
        own_costs([str(own)], Run(run(*list5(tmp_path, "kprobe")), tmp_path))


def test_a_cost_table_that_the_run_has_no_use_for_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(cost_file("pentium4").text.replace("cpu: pentium4", "cpu: pentium5"))
    with pytest.raises(
        UsageError, match=r"own\.yaml: this has the costs of pentium5, and the run has cells of pentium4"
    ):
        own_costs([str(own)], Run(run(*list5(tmp_path, "kprobe")), tmp_path))
