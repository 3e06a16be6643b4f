# SPDX-License-Identifier: GPL-2.0-only
"""What does a run that is stopped in the middle leave behind, and does it go on to the same end?"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_line import QUICKSTART, CommandLine

from orchestrator.results.store import Store

pytestmark = pytest.mark.qemu

# A cell with a probe takes a second, the longest is the last: so the one after the last that is waited for is still
# under way on a busy host.
ARGUMENTS = (
    *("run", QUICKSTART, "--set", "kernels=[lab-i386-up]", "--set", "probes=[none, djprobe, jprobe]"),
    *("--set", "benchmark.repeats=8", "--set", "benchmark.calls=5000"),
)


def stopped_after(command: CommandLine, cells: int, number: signal.Signals, *options: str) -> tuple[int, list[str]]:
    """Start a run and stop it when ``cells`` cells are finished; its exit status and its output after that."""
    process = command.start(*ARGUMENTS, *options, stderr=subprocess.PIPE)
    with process:
        assert process.stderr is not None
        # One more cell than waited for may have been finished when the last run was stopped.
        for line in process.stderr:
            if line.startswith(f"[{cells}/3]") or f"3 cells, {cells} of them done" in line:
                break
        while not command.qemus():
            assert process.poll() is None
            time.sleep(0.02)
        assert len(command.qemus()) == 1
        process.send_signal(number)
        rest = process.stderr.read().splitlines()
    # On a busy host one more cell may have ended before the signal came to its turn.
    return process.returncode, [line for line in rest if not line.startswith("[")]


def finished(directory: Path) -> tuple[str, list[str]]:
    """The state of the lab's only run, and the probes of its finished cells."""
    with Store.open(directory) as store:
        (entry,) = store.runs()
        return entry.status, [cell.probe for cell in store.load_run(entry.id).cells]


def test_a_run_that_is_stopped_again_and_again_leaves_no_guest_and_goes_on(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    assert stopped_after(command, 1, signal.SIGINT) == (130, ["stopped by SIGINT"])
    assert command.qemus() == []
    status, probes = finished(tmp_path)
    assert (status, probes[:1]) == ("interrupted", ["none"])

    assert stopped_after(command, 2, signal.SIGKILL, "--resume") == (-signal.SIGKILL, [])
    assert command.qemus_after() == []
    assert finished(tmp_path) == ("interrupted", ["none", "djprobe"])

    last = command.run(*ARGUMENTS, "--resume")
    assert last.returncode == 0, last.stderr
    assert "3 cells, 2 of them done" in last.stderr
    assert finished(tmp_path) == ("complete", ["none", "djprobe", "jprobe"])
    # As test_profile.py has them of runs that nobody stops.
    assert {probe: (set(cell.samples), cell.overhead) for probe, cell in command.cells().items()} == {
        "none": ({360}, 0),
        "djprobe": ({399}, 39),
        "jprobe": ({1661}, 1301),
    }
    nothing = command.run(*ARGUMENTS, "--resume")
    assert (nothing.returncode, "has no unfinished run" in nothing.stderr) == (2, True)


@pytest.mark.nightly("test_image_command_line.py kills one every day")
def test_exec_that_is_killed_leaves_no_guest(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    process = command.start(
        *("exec", "--console", tmp_path / "logs", "--accel", "tcg"),
        *("--", "sh", "-c", "echo started; sleep 1000"),
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        assert len(command.qemus()) == 1
        process.kill()
    assert command.qemus_after() == []
