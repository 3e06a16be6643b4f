# SPDX-License-Identifier: GPL-2.0-only
"""Do guests that run side by side change each other's numbers, and do they end together?"""

from __future__ import annotations

import csv
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine, FinishedRun

from orchestrator.results.contract import CellRecord, RunRecord

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

EXPERIMENT = Path(__file__).parent / "experiments" / "side_by_side.yaml"
CELLS = 9


def cells(command: CommandLine) -> list[CellRecord]:
    """The cells of the latest run, in the plan's order."""
    answer = command.run("report", "latest", "--format", "json")
    return list(RunRecord.model_validate_json(answer.stdout, strict=False).cells)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A run of one guest at a time, with its events."""
    folder = tmp_path_factory.mktemp("alone")
    command = CommandLine(folder / "lab")
    done = command.run("run", EXPERIMENT, "--jobs", "1", "--events", "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    assert command.qemus() == []
    return FinishedRun(command, folder / "run", done)


def test_each_cell_is_proved(alone: FinishedRun) -> None:
    found = cells(alone.command)
    assert len(found) == CELLS
    assert {cell.table for cell in found} == {"p4", "k7", "recorded"}
    for cell in found:
        assert cell.evidence is not None
        assert cell.evidence.hits == (0 if cell.probe == "none" else cell.evidence.calls)
        assert cell.evidence.recorded == (1000 if cell.table == "recorded" and cell.probe != "none" else None)


@pytest.mark.nightly("seven seconds; test_interruption.py stops a run again and again every day")
def test_an_interruption_ends_all_guests_and_the_run_goes_on_to_the_same_values(
    alone: FinishedRun, tmp_path: Path
) -> None:
    command = CommandLine(tmp_path)
    process = command.start("run", EXPERIMENT, "--jobs", "3", stderr=subprocess.PIPE)
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(f"[1/{CELLS}]"):
                break
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == 143, rest
    assert "Traceback" not in rest
    assert command.qemus() == []
    stored = {cell.id: cell for cell in cells(command)}
    assert 1 <= len(stored) < CELLS
    assert {cell.status for cell in stored.values()} == {"ok"}
    last = command.run("run", EXPERIMENT, "--jobs", "3", "--resume")
    assert last.returncode == 0, last.stderr
    finished = {cell.id: cell for cell in cells(command)}
    assert len(finished) == CELLS
    assert all(finished[id_] == cell for id_, cell in stored.items())
    assert all(cell.overhead is not None for cell in finished.values())
    assert [(cell.id, cell.samples, cell.overhead) for cell in cells(command)] == [
        (cell.id, cell.samples, cell.overhead) for cell in cells(alone.command)
    ]


def test_what_was_recorded_is_kept_on_request(alone: FinishedRun) -> None:
    folder = alone.directory / "events"
    files = sorted(path.name for path in folder.iterdir())
    assert files == [f"recorded.pentium-m.lab-i386-up.{probe}.record.csv" for probe in ("djprobe", "kprobe")]
    for name in files:
        with (folder / name).open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 1000
        assert len({row["pid"] for row in rows}) == 1
        times = [int(row["tsc"]) for row in rows]
        assert times == sorted(set(times))


def test_each_of_several_files_is_a_run(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    second = tmp_path / "second.yaml"
    second.write_text(EXPERIMENT.read_text().replace("name: side-by-side", "name: second"))
    done = command.run(
        "run", EXPERIMENT, second, "--only", "table=p4,probe=none", "--out", tmp_path / "runs", "--jobs", "2"
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["second", "side-by-side"]
    twice = command.refused("run", EXPERIMENT, EXPERIMENT)
    assert (twice.returncode, "both named 'side-by-side'" in twice.stderr) == (2, True)
    # Nothing runs when any file is wrong.
    second.write_text("name: second\n")
    wrong = command.refused("run", EXPERIMENT, second)
    assert (wrong.returncode, "starting" in wrong.stderr) == (2, False)
