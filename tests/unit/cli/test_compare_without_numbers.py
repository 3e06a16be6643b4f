# SPDX-License-Identifier: GPL-2.0-only
"""Is nothing called within budget where there was nothing to compare?"""

from __future__ import annotations

from pathlib import Path

import pytest
from record_builders import cell, failed
from stored_profiles import store_run
from typer.testing import CliRunner, Result

from orchestrator.cli.main import app

pytestmark = pytest.mark.usefixtures("lab")


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments])


def test_runs_in_which_all_failed_cannot_be_compared(tmp_path: Path) -> None:
    for number in (1, 2):
        store_run(tmp_path / "lab", tmp_path / f"run{number}", failed("none", f"panic {number}"))
    result = compare()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nothing that can be compared" in result.stderr
    assert "panic 2" in result.stderr


def test_a_cell_that_failed_in_both_is_named(tmp_path: Path) -> None:
    for number in (1, 2):
        cells = [cell("none"), failed("kprobe", f"panic {number}")]
        store_run(tmp_path / "lab", tmp_path / f"run{number}", *cells)
    result = compare()
    assert result.exit_code == 0
    assert "Failed in both: pentium4/debian-686/kprobe/noop: panic 2" in " ".join(result.stdout.split())
    assert "Failed in both" in compare("--format", "markdown").stdout


def test_a_kernel_is_not_compared_with_itself(tmp_path: Path) -> None:
    store_run(tmp_path / "lab", tmp_path / "run", cell("none"))
    result = compare("--kernels", "debian-686", "debian-686")
    assert result.exit_code == 2
    assert "debian-686 is named twice" in result.stderr


def test_a_cell_that_fails_where_it_was_unsupported_is_beyond(tmp_path: Path) -> None:
    store_run(tmp_path / "lab", tmp_path / "run1", failed("none", "not here", status="unsupported"))
    store_run(tmp_path / "lab", tmp_path / "run2", failed("none", "panic"))
    result = compare()
    assert (result.exit_code, "1 failed" in result.stdout) == (1, True)


@pytest.mark.parametrize(
    ("budgets", "end"), [("", "1 unchanged."), ("budgets: {none: +5}\n", "1 unchanged; within budget.")]
)
def test_a_budget_is_spoken_of_where_there_is_one(tmp_path: Path, budgets: str, end: str) -> None:
    for number in (1, 2):
        store_run(tmp_path / "lab", tmp_path / f"run{number}", cell("none"))
        (tmp_path / f"run{number}" / "experiment.yaml").write_text(f"name: x\n{budgets}")
    assert f"1 cell compared: {end}" in compare().stdout
