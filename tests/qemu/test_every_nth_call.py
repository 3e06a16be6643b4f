# SPDX-License-Identifier: GPL-2.0-only
"""Is the cost of what only each N-th call does counted in proportion, whatever the number of calls, profiled or not?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.profile.stored.profile_files import load_profile
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import find_run

pytestmark = pytest.mark.qemu

PROGRAMS = Path(__file__).with_name("programs")
WORKLOADS = Path(__file__).with_name("workloads")
HEAD = """\
name: every
kernels: [debian-amd64]
machines: [{cpu: xeon-e5410}]
points: [vfs_read]
"""
READ = "name: syscall, call: read, arguments: [0, 0, 0]"
REPEATING = f"""\
tables:
  profiled: {{probes: [none, {PROGRAMS}/each_16th.bpf.c], benchmark: {{{READ}}}, profile: [symbols]}}
  hundred: {{probes: [none, {PROGRAMS}/each_16th.bpf.c], benchmark: {{{READ}, calls: 100}}}}
  workload: {{probes: [none, bpf-fentry], benchmark: {{name: workload, file: {WORKLOADS}/skipping.c}}}}
"""
SCATTERING = f"""\
tables:
  rare: {{probes: [none, {PROGRAMS}/each_4099th.bpf.c], benchmark: {{{READ}}}, profile: [symbols]}}
  chance: {{probes: [none, {PROGRAMS}/by_chance.bpf.c], benchmark: {{{READ}}}}}
"""
WORK = 1402
"""Instructions of a hit that does its work, besides those of one that does not."""


def measured(command: CommandLine, experiment: str) -> Mapping[str, Sequence[CellRecord]]:
    """The cells of each table: without a probe, and with one."""
    command.lab.mkdir(exist_ok=True)
    (command.lab / "x.yaml").write_text(HEAD + experiment)
    finished = command.run("run", command.lab / "x.yaml")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    cells: dict[str, list[CellRecord]] = {}
    for cell in find_run("latest", command.lab).record.cells:
        cells.setdefault(cell.table or "", []).append(cell)
    return cells


def test_what_repeats_is_exact_whatever_the_number_of_calls(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    cells = measured(command, REPEATING)
    for period, names in ((16, ("profiled", "hundred")), (64, ("workload",))):
        for cell in (cells[name][1] for name in names):
            assert cell.overhead is not None
            assert cell.interval == (cell.overhead, cell.overhead)
            assert len(set(cell.samples)) == 1
            assert any(note.startswith(f"the costs of calls repeat after {period}: ") for note in cell.notes)
    plain, profiled = cells["profiled"]
    assert profiled.overhead is not None
    assert (profiled.overhead - WORK / 16).is_integer()
    assert cells["hundred"][1].overhead == profiled.overhead
    assert profiled.profile is not None
    assert profiled.profile.calls % 16 == 0
    before, after = (load_profile(find_run("latest", command.lab).directory, cell) for cell in (plain, profiled))
    assert float(after.per_call(after.executed) - before.per_call(before.executed)) == profiled.overhead
    # The baseline of the workload repeats as well, and the probe adds the same to each call.
    without, _ = cells["workload"]
    assert any(note.startswith("the costs of calls repeat after 64: 63 take ") for note in without.notes)
    assert (cells["workload"][1].overhead or 0.5).is_integer()


@pytest.mark.nightly("calls that vary are measured each day by test_calls_that_vary.py")
def test_what_repeats_too_rarely_or_by_chance_has_its_spread(tmp_path: Path) -> None:
    cells = measured(CommandLine(tmp_path / "lab"), SCATTERING)
    for (plain, probed), share in ((cells["rare"], 1 / 4099), (cells["chance"], 1 / 16)):
        assert probed.calls_vary
        assert probed.interval is not None
        assert plain.value is not None
        low, high = probed.interval
        assert low < high
        costs = next(note for note in probed.notes if note.startswith("calls vary: "))
        usual = int(costs.split(" take ")[1].split()[0])
        assert low <= usual - plain.value + WORK * share <= high
