# SPDX-License-Identifier: GPL-2.0-only
"""Do a cell's figures agree where its baseline was measured in another state of the guest?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.library.stored_profiles import RunCell, difference_of
from orchestrator.results.parameters import PLAIN
from orchestrator.results.runs import find_run

pytestmark = pytest.mark.qemu

WORKLOAD = Path(__file__).with_name("workloads") / "aging.c"
EXPERIMENT = f"""\
name: aging
kernels: [debian-amd64]
machines: [{{cpu: xeon-e5410}}]
points: [do_sys_openat2]
probes: [none, bpf-fentry]
profile: [symbols]
benchmark: {{name: workload, file: {WORKLOAD}, calls: 1000}}
"""


def test_all_figures_of_a_cell_are_of_the_state_in_which_it_was_measured(tmp_path: Path) -> None:
    config = tmp_path / "x.yaml"
    config.write_text(EXPERIMENT)
    command = CommandLine(tmp_path / "lab")
    finished = command.run("run", config)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    run = find_run("latest", command.lab)
    plain, probed = run.record.cells
    in_turn = PLAIN.of(probed)
    assert plain.value is not None
    assert probed.value is not None
    assert in_turn is not None
    assert probed.value > 2 * plain.value  # with a hundred entries in the directory
    assert probed.overhead == 127
    assert probed.value - in_turn == pytest.approx(probed.overhead, abs=30)  # the slabs
    assert any("when the baseline was measured: the overhead is to these calls" in note for note in probed.notes)
    assert "without the probe, in turn" in finished.stdout
    compared = difference_of(RunCell(run, plain), RunCell(run, probed))
    assert (compared.before.cell, compared.after.cell) == (plain.id, probed.id)
    changed = {symbol.title: float((symbol.after or 0) - (symbol.before or 0)) for symbol in compared.symbols}
    assert sum(changed.values()) == pytest.approx(probed.overhead, abs=60)
    assert abs(changed.get("filldir64", 0)) < 1
    assert compared.notes[-1].startswith("the calls without the probe are those counted in turn with the probe's")
