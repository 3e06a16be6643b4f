# SPDX-License-Identifier: GPL-2.0-only
"""Is an experiment measured on the kernels that are compared, and on no other?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import ConfigError, UsageError
from orchestrator.experiment.experiment import Experiment, on_kernels, only_profiled, with_profile
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan

TEXT = """name: two
machines: [{cpu: pentium4}]
kernels: [debian-686]
tables:
  noop: {benchmark: {name: gtodbench}, probes: [none, kretprobe], kernel_for: {kretprobe: lab-i386-smp-preempt}}
  record: {benchmark: {name: gtodbench}, probes: [none, kprobe], handlers: [record], kernels: [lab-i386-smp]}
  loops: {benchmark: {name: markers}, probes: [none]}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    file = tmp_path / "two.yaml"
    file.write_text(TEXT)
    return load_experiment(file, kinds())


def test_every_cell_is_on_both_kernels(experiment: Experiment, tmp_path: Path) -> None:
    wanted = on_kernels(experiment, ["lab-i386-up", "debian-686-pae"])
    cells = plan(on_kernels(experiment, ["lab-i386-up", "debian-686"])).cells
    assert {cell.kernel for cell in cells} == {"lab-i386-up", "debian-686"}
    for kernel in ("lab-i386-up", "debian-686"):
        rows = [(cell.table, cell.row) for cell in cells if cell.kernel == kernel]
        assert rows == [
            ("noop", "none"),
            ("noop", "kretprobe"),
            ("record", "none"),
            ("record", "kprobe"),
            ("loops", "none"),
        ]
    file = tmp_path / "resolved.yaml"
    file.write_text(wanted.resolved_yaml())
    assert load_experiment(file, kinds()) == wanted


def test_a_kernel_that_cannot_run_the_machines_is_named_with_its_place(experiment: Experiment) -> None:
    with pytest.raises(ConfigError, match=r"two.yaml:2: machines.0.cpu: kernel 'debian-amd64' is 64-bit"):
        on_kernels(experiment, ["debian-686", "debian-amd64"])


def test_one_kernel_twice_is_no_comparison(experiment: Experiment) -> None:
    with pytest.raises(UsageError, match="debian-686 and debian-686 are the same kernel"):
        on_kernels(experiment, ["debian-686", "debian-686"])


def test_tables_without_profiles_are_left_out(experiment: Experiment) -> None:
    assert [one.name for one in only_profiled(with_profile(experiment, ["stacks"])).tables] == ["noop", "record"]
