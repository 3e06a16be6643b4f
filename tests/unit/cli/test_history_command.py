# SPDX-License-Identifier: GPL-2.0-only
"""Does ``history`` print a metric's steps and runs, and say what is wrong with what was asked for?"""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from pathlib import Path

import pytest
from stored_histories import KPROBE, NEEDS_RUPTURES, broken, counted, store_days, timed
from typer.testing import CliRunner, Result

from orchestrator.cli.completion import metrics
from orchestrator.cli.main import app
from orchestrator.results.store import Store

pytestmark = pytest.mark.usefixtures("lab")

METRIC = f"quickstart:{KPROBE}"


@pytest.fixture
def runs(lab: Path) -> list[str]:
    """Six days with two steps: at the first the kernel was another, at the second nothing."""
    days = [counted(1036), counted(1036), counted(1050), broken(), counted(1050), counted(1049)]
    return store_days(lab, days, {2: "6.1.176-1"})


def orchestrator(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["history", *arguments])


def lines(*arguments: str) -> list[str]:
    result = orchestrator(*arguments)
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def refusal(*arguments: str) -> str:
    result = orchestrator(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return " ".join(result.stderr.split())


def test_a_command_to_copy_is_in_one_line_on_a_narrow_terminal(
    runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert f"orchestrator compare {runs[1]} {runs[2]}" in lines("quickstart:kprobe")
    assert any(line.endswith(f"orchestrator history {METRIC}") for line in lines())


def test_steps_come_first_with_what_changed(runs: list[str]) -> None:
    printed = lines("quickstart:kprobe")
    assert printed[:3] == [METRIC, "cost per call in instructions, 6 runs from 2026-03-01 to 2026-03-06", "▁▁█!█▇"]
    first, second = "2026-03-06 1050 1049 -1 -0.1 [1]", "2026-03-03 1036 1050 +14 +1.4 [2]"
    assert printed.index(first) < printed.index(second)
    note = printed.index("[2] kernel debian-686: 6.1 (6.1.170-1) -> 6.1 (6.1.176-1)")
    assert printed[note + 1] == f"orchestrator compare {runs[1]} {runs[2]}"
    nothing = printed.index("[1] The provenance of both runs is equal, as far as it was recorded.")
    assert printed[nothing + 1] == f"orchestrator compare {runs[4]} {runs[5]}"
    table = printed[printed.index("Runs, newest first") :]
    assert f"{runs[3]} 1 2026-03-04 failed - -" in table
    assert f"{runs[1]} 2 2026-03-01 1036 627 -" in table
    assert "1 run without a number." in printed


def test_a_limit_on_steps_and_runs(runs: list[str]) -> None:
    printed = lines("quickstart:kprobe", "--limit", "1")
    assert "1 earlier step not shown; --limit 0 lists all." in printed
    assert "[2]" not in str(printed)
    assert "... 5 earlier runs" in printed
    assert "earlier" not in str(lines("quickstart:kprobe", "--limit", "0"))


def test_several_metrics_have_a_line_each(runs: list[str]) -> None:
    printed = lines("quickstart")
    assert printed[1] == "all cells: quickstart, pentium4, debian-686, noop"
    assert "kprobe ▁▁█!█▇ 1049 instructions 2 2026-03-06 -1" in printed
    assert "none ▅▅▅▅▅▅ 409 instructions 0 - -" in printed
    assert f"orchestrator history {METRIC}" in printed


@pytest.mark.parametrize("asked", ["quickstart", "quickstart:kprobe"])
def test_the_tables_fit_an_ordinary_terminal(asked: str, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    store_days(lab, [timed(1000.5 + day // 2) for day in range(30)])
    printed = orchestrator(asked).stdout.splitlines()
    tables = [line for line in printed if not line.startswith("orchestrator")]
    assert max(len(line) for line in tables) <= 80


def test_what_changed_lately(runs: list[str], lab: Path) -> None:
    printed = lines()
    assert printed[0] == "Changed in the newest 100 runs"
    assert METRIC in str(printed)
    assert "none" not in str(printed)
    assert "No cell has changed in the newest 100 runs." in lines("--since", "2026-03-06")


def test_since_a_day_and_of_the_overhead(runs: list[str]) -> None:
    printed = lines("quickstart:kprobe", "--since", "2026-03-05", "--overhead")
    assert "overhead, cost per call, in instructions, 2 runs from 2026-03-05 to 2026-03-06" in printed
    assert "2026-03-06 641 640 -1 -0.2 [1]" in printed


def test_a_terminal_without_unicode(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner(charset="ascii").invoke(app, ["history", "quickstart:kprobe"])
    assert result.exit_code == 0, result.output
    assert "__#!#*" in result.stdout
    assert result.stdout.isascii()


def test_json_has_all_of_it(runs: list[str]) -> None:
    (found,) = json.loads(orchestrator("quickstart:kprobe", "--format", "json", "--limit", "1").stdout)["histories"]
    assert (found["metric"], found["unit"], found["exact"]) == (METRIC, "instructions", True)
    assert [point["value"] for point in found["points"]] == [1036, 1036, 1050, None, 1050, 1049]
    assert [(step["before"], step["after"], step["change"]) for step in found["steps"]] == [
        (runs[1], runs[2], 14),
        (runs[4], runs[5], -1),
    ]
    (cause,) = found["steps"][0]["causes"]
    assert cause["what"] == "kernel debian-686"


def test_csv_has_a_row_for_each_run(runs: list[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(orchestrator("quickstart:kprobe", "--format", "csv").stdout)))
    assert [(row["run"], row["value"], row["step"], row["status"]) for row in rows][1:4] == [
        (runs[1], "1036.0", "", "ok"),
        (runs[2], "1050.0", "14.0", "ok"),
        (runs[3], "", "", "failed"),
    ]


@NEEDS_RUPTURES
def test_times(lab: Path) -> None:
    chance = random.Random(3)
    store_days(lab, [timed(round(chance.gauss(1000 + 60 * (day >= 15), 8), 1)) for day in range(30)])
    printed = lines("quickstart:kprobe", "--limit", "3")
    assert [line for line in printed if line.startswith("2026-03-16") and line.endswith("[1]")]
    assert "... 27 earlier runs" in printed


def test_times_without_the_library(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_days(lab, [timed(1000.0 + day % 3 + 60 * (day >= 15)) for day in range(30)])
    monkeypatch.setitem(sys.modules, "ruptures", None)
    refused = orchestrator("quickstart:kprobe")
    assert (refused.exit_code, "probe-lab[statistics]" in refused.stderr) == (3, True)
    overview = orchestrator()
    assert (overview.exit_code, "probe-lab[statistics]" in overview.stderr) == (0, True)


def test_missing_history_is_said(lab: Path) -> None:
    assert "there is no run yet" in refusal("quickstart:kprobe")
    store_days(lab, [counted(1036)])
    assert "did you mean 'kprobe'?" in refusal("quickstart:kprob")
    assert "did you mean 'quickstart:kprobe'?" in refusal("quick:kprobe")
    assert "did you mean 'quickstart:kprobe'?" in refusal("kprobe")
    assert "did you mean" not in refusal("latest")
    assert "did you mean" not in refusal("elsewhere:jprobe")
    assert "no run since 2027-01-01 has" in refusal("quickstart:kprobe", "--since", "2027-01-01")
    for other in ("yesterday", "2026-13-45", "25.11.2026"):
        expected = f"--since: found '{other}'; expected a day, such as 2026-11-01"
        assert expected in refusal("quickstart:kprobe", "--since", other)


def test_a_cell_without_an_outcome_yet(lab: Path) -> None:
    with Store.open(lab) as store:
        store.begin_run("quickstart", [KPROBE], digest="1", provenance={})
    assert "no run has an outcome of 'quickstart:kprobe'" in refusal("quickstart:kprobe")


def test_where_no_verdict_was_possible_it_is_said(lab: Path) -> None:
    store_days(lab, [timed(1000.0, verdict="none", notes=["no verdict: the drift hides the effect"])])
    assert any(line.endswith("1000 591 587 to 595, undecided") for line in lines("quickstart:kprobe"))


def test_completion(runs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert metrics("quickstart:pentium4/debian-686/k") == [METRIC]
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "none"))
    assert metrics("") == []
    assert not (tmp_path / "none").exists()
