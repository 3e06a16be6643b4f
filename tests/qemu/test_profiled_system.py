# SPDX-License-Identifier: GPL-2.0-only
"""Is each instruction of a whole system's runs counted, the instrumentation's own among them, and no value changed?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.profile.stored.cell_profile import CellProfile, SymbolProfile
from orchestrator.profile.stored.profile_files import load_profile
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.runs import find_run

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up", "lab-i386-up-markers")]

FLOOD = """\
name: flood
kernels: [lab-i386-up, lab-i386-up-markers]
kernel_for: {hook: lab-i386-up-markers, djprobe: lab-i386-up}
machines: [{cpu: pentium4}]
probes: [none, hook, djprobe]
benchmark: {name: ping-flood, packets: 200, repeats: 2}
"""
ROWS = ["lab-i386-up/none", "lab-i386-up/none/again1", "lab-i386-up/djprobe", "lab-i386-up-markers/none"]
HOOKED = "lab-i386-up-markers/hook"


class Done:
    """A run of the lab: its cells and their profiles, by kernel and probe."""

    def __init__(self, command: CommandLine, config: Path, *options: str) -> None:
        finished = command.run("run", config, "--jobs", "2", *options)
        assert finished.returncode == 0, finished.stderr
        record = RunRecord.model_validate_json(command.run("report", "latest", "--format", "json").stdout)
        self.cells = {cell.id.removeprefix("pentium4+512M/"): cell for cell in record.cells}
        directory = find_run(record.run, command.lab).directory
        self.profiles = {name: load_profile(directory, cell) for name, cell in self.cells.items() if cell.profile}


def symbol(profile: CellProfile, title: str) -> SymbolProfile:
    (symbol_profile,) = [one for one in profile.symbols if one.title == title]
    return symbol_profile


def own(cell: CellRecord) -> float:
    value = cell.parameters["instrumentation"]
    assert isinstance(value, float)
    return value


def test_all_that_runs_execute_is_counted_and_no_value_changes(tmp_path: Path) -> None:
    config = tmp_path / "flood.yaml"
    config.write_text(FLOOD)
    command = CommandLine(tmp_path / "lab")
    plain, counted = Done(command, config), Done(command, config, "--profile", "symbols")
    assert list(counted.cells) == [*ROWS, HOOKED]
    for name, cell in counted.cells.items():
        other_cell = plain.cells[name]
        # Another boot comes to the very same, in its cold run, too.
        assert (cell.samples, cell.parameters["cold"]) == (other_cell.samples, other_cell.parameters["cold"]), name
        assert other_cell.profile is None
        assert cell.profile is not None
        assert cell.profile.ticks is not None
        # With both readings of the clock they are somewhat longer than the samples.
        assert 0 < cell.profile.ticks - sum(cell.samples) < 100_000
        assert cell.profile.instructions == counted.profiles[name].executed
        assert cell.profile.calls == len(cell.samples) == 2
        programs = symbol(counted.profiles[name], "all programs")
        assert (programs.place, [instruction.code for instruction in programs.instructions]) == ("user", [""])
    assert own(counted.cells[ROWS[0]]) == own(counted.cells[ROWS[1]]) == 0
    check_markers(counted)
    check_modules(counted)


def check_markers(counted: Done) -> None:
    """A marker's load, test and branch are executed as often as the function that begins with it."""
    profile, cell = counted.profiles[ROWS[3]], counted.cells[ROWS[3]]
    fault = symbol(profile, "handle_mm_fault")
    assert [instruction.executed for instruction in fault.instructions if instruction.code == "b000"] == [
        fault.instructions[0].executed
    ]
    loads = sum(instruction.executed for instruction in profile.instructions if instruction.code == "b000")
    assert own(cell) == pytest.approx(3 * loads / 2, rel=0.01)
    assert own(cell) < own(counted.cells[HOOKED])


def check_modules(counted: Done) -> None:
    """Handlers and detours are in the module, and are executed for each event."""
    for name in (ROWS[2], HOOKED):
        cell, profile = counted.cells[name], counted.profiles[name]
        in_module = (
            sum(
                symbol_profile.executed for symbol_profile in profile.symbols if symbol_profile.module == "lab_recorder"
            )
            / profile.calls
        )
        events = cell.parameters["events_a_run"]
        assert isinstance(events, float)
        assert 10 * events < in_module < own(cell) < 200 * events
