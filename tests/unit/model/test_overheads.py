# SPDX-License-Identifier: GPL-2.0-only
"""Does a modelled time follow from the profiles of a cell and of its own baseline, and from nothing else?"""

from __future__ import annotations

from pathlib import Path

import pytest
from modelled_cells import BASE, counted, record
from record_builders import run

from orchestrator.errors import LabError, UsageError
from orchestrator.model.modelled_run import known_costs, modelled_run
from orchestrator.results.contract import CellRecord, ProfileEvidence
from orchestrator.results.profile import FOLDER, CellProfile, Instruction, SymbolProfile, file_name, write_profile
from orchestrator.results.runs import Run

CALLS = 500


def profiled(cell: CellRecord, directory: Path, *codes: tuple[str, int]) -> CellRecord:
    """The cell with a profile of these instructions, so many a call."""
    instructions = tuple(Instruction(at, code, times * CALLS) for at, (code, times) in enumerate(codes))
    symbol = SymbolProfile(name="f", place="kernel", address=0, instructions=instructions)
    profile = CellProfile(cell=cell.id, arch="i386", calls=CALLS, has_details=False, symbols=(symbol,))
    sha = write_profile(profile, directory / FOLDER / file_name(cell.id))
    int3 = sum(times for code, times in codes if code == "cc")
    proof = ProfileEvidence(sha256=sha, calls=CALLS, instructions=profile.executed, int3=int3 * CALLS)
    return CellRecord.model_validate({**cell.model_dump(), "profile": proof.model_dump()})


def list5(directory: Path) -> list[CellRecord]:
    """A kprobe and what it is compared with, with profiles that add up."""
    counts = counted("list5")["kprobe"]
    return [
        profiled(record("list5", "none"), directory, ("90", BASE)),
        profiled(
            record("list5", "kprobe"),
            directory,
            ("90", BASE + counts["instruction"]),
            ("cc", counts["trap"]),
            ("cf", counts["trap"]),
        ),
    ]


def test_the_counts_are_those_of_the_two_profiles(tmp_path: Path) -> None:
    (cell,) = modelled_run(Run(run(*list5(tmp_path)), tmp_path), known_costs()).cells
    assert cell.evidence is not None
    assert cell.evidence.counts == counted("list5")["kprobe"]
    assert cell.evidence.instructions == sum(cell.evidence.counts.values()) + 2
    assert cell.overhead == pytest.approx(986.2, abs=0.05)
    assert cell.role == "calibration"


def test_profiles_that_do_not_add_up_give_no_time(tmp_path: Path) -> None:
    """As where two baselines could be meant."""
    baseline, kprobe = list5(tmp_path)
    other = baseline.model_dump() | {"samples": [359.0], "value": 359.0, "profile": None}
    wrong = profiled(CellRecord.model_validate(other), tmp_path, ("90", 359))
    (cell,) = modelled_run(Run(run(wrong, kprobe), tmp_path), known_costs()).cells
    assert cell.overhead is None
    assert "differ by 530 instructions, and its overhead is 529" in (cell.reason or "")


def test_a_baseline_of_another_kernel_is_no_baseline(tmp_path: Path) -> None:
    baseline, kprobe = list5(tmp_path)
    elsewhere = CellRecord.model_validate(baseline.model_dump() | {"kernel": "lab-i386-smp"})
    (cell,) = modelled_run(Run(run(elsewhere, kprobe), tmp_path), known_costs()).cells
    assert cell.reason == "the cell, or the one without a probe, has no profile"


def test_a_cpu_without_a_cost_table_has_no_time(tmp_path: Path) -> None:
    cells = [CellRecord.model_validate(one.model_dump() | {"cpu": "athlon"}) for one in list5(tmp_path)]
    (cell,) = modelled_run(Run(run(*cells), tmp_path), known_costs()).cells
    assert cell.reason == "CPU athlon has no cost table"


def test_a_profile_that_is_not_the_recorded_one_is_an_error(tmp_path: Path) -> None:
    cells = list5(tmp_path)
    (tmp_path / FOLDER / file_name(cells[1].id)).write_bytes(b"")
    with pytest.raises(LabError, match="this is not the profile"):
        modelled_run(Run(run(*cells), tmp_path), known_costs())


def test_a_run_without_profiles_says_how_to_get_them(tmp_path: Path) -> None:
    cells = [CellRecord.model_validate(one.model_dump() | {"profile": None}) for one in list5(tmp_path)]
    with pytest.raises(UsageError, match="--profile symbols"):
        modelled_run(Run(run(*cells), tmp_path), known_costs())
