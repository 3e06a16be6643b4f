# SPDX-License-Identifier: GPL-2.0-only
"""Can every boot of the experiments that come with the package be handed to another process?"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from orchestrator.benchmarks.registry import kinds
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.paths import data_dir
from orchestrator.run.boot import BootTask

EXPERIMENTS = sorted(data_dir("configs").glob("*.yaml"))


@pytest.mark.parametrize("config", EXPERIMENTS, ids=lambda config: config.stem)
def test_its_boots_survive_pickling(config: Path, tmp_path: Path) -> None:
    boots = plan(load_experiment(config, kinds())).boots
    assert boots
    for number, boot in enumerate(boots, start=1):
        task = BootTask(kinds().named(boot.kind), boot, boot.cells, {"kernel": "key"}, tmp_path / f"boot{number}")
        copied = pickle.loads(pickle.dumps(task))
        assert copied.boot == boot
        assert hash(copied.boot) == hash(boot)
        assert (copied.cells, copied.keys, copied.directory) == (task.cells, task.keys, task.directory)
        assert type(copied.kind) is type(task.kind)


def test_all_kinds_are_among_them() -> None:
    boots = [boot for config in EXPERIMENTS for boot in plan(load_experiment(config, kinds())).boots]
    assert {boot.kind for boot in boots} == {kind.name for kind in kinds()}
