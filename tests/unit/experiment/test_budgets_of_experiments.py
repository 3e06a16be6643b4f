# SPDX-License-Identifier: GPL-2.0-only
"""Do an experiment's budgets come with it, without being part of what is measured?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import ConfigError, UsageError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import check_budgets, plan
from orchestrator.results.store import Store
from orchestrator.run.runner import check_resumable

FILE = """\
name: budgeted
kernels: [debian-686]
machines: [{cpu: pentium4}]
probes: [none, kprobe]
benchmark: {name: gtodbench}
"""
BUDGETS = """\
budgets:
  "*": +1%
  probe=kprobe: {value: +5, overhead: "+0.5"}
  none: <=300
"""


def loaded(folder: Path, text: str, *overrides: str) -> Experiment:
    (folder / "file.yaml").write_text(text)
    return load_experiment(folder / "file.yaml", kinds(), overrides)


def test_budgets_are_resolved_and_load_again(tmp_path: Path) -> None:
    experiment = loaded(tmp_path, FILE + BUDGETS)
    assert experiment.heading.budgets == {
        "*": "+1%",
        "probe=kprobe": {"value": "+5", "overhead": "+0.5"},
        "none": "<=300",
    }
    (tmp_path / "resolved.yaml").write_text(experiment.resolved_yaml())
    again = load_experiment(tmp_path / "resolved.yaml", kinds())
    assert again == experiment
    assert again.budgets == experiment.budgets


def test_budgets_change_no_digest(tmp_path: Path) -> None:
    without, budgeted = loaded(tmp_path, FILE), loaded(tmp_path, FILE + BUDGETS)
    assert without.digest() == budgeted.digest() == loaded(tmp_path, FILE, "budgets.kprobe=+3").digest()
    assert "budgets" not in without.resolved_yaml()
    assert plan(without).cells == plan(budgeted).cells


def test_a_run_goes_on_with_other_budgets(tmp_path: Path) -> None:
    with Store.open(tmp_path / "lab") as store:
        digest = loaded(tmp_path, FILE).digest()
        entry = store.begin_run("budgeted", ["a"], digest=digest, provenance={}, directory=tmp_path)
    check_resumable(entry, loaded(tmp_path, FILE + BUDGETS), kinds())
    with pytest.raises(UsageError, match="another experiment file"):
        check_resumable(entry, loaded(tmp_path, FILE, "benchmark.calls=77"), kinds())


def test_budgets_of_several_tables(tmp_path: Path) -> None:
    several = FILE.replace("name: budgeted", "name: budgeted\ntables: {one: {}, two: {probes: [none, djprobe]}}")
    experiment = loaded(tmp_path, several + "budgets: {table=one: +1, djprobe: +2}")
    check_budgets(experiment, plan(experiment))
    wrong = loaded(tmp_path, several + "budgets: {table=oen: +1}")
    with pytest.raises(ConfigError, match=r"budgets\.table=oen: no cell matches; did you mean 'one'\?") as caught:
        check_budgets(wrong, plan(wrong))
    assert caught.value.where == f"{tmp_path / 'file.yaml'}:7"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("budgets: +1", 6, "budgets: expected a mapping of at most 1000"),
        ("budgets:\n  kprobe: 300", 7, "budgets.kprobe: found 300, a limit or an increase? Write '<=300'"),
        ("budgets:\n  kprobe: fast", 7, "budgets.kprobe: found 'fast'; expected +N"),
        ("budgets:\n  kprobe: {value: +1, ovrhead: +1}", 7, "budgets.kprobe.ovrhead: unknown key; allowed: value"),
        ("budgets:\n  cup=athlon: +1", 7, "budgets.cup=athlon: unknown key 'cup'; allowed: table"),
        ("budget: {kprobe: +1}", 6, "budget: unknown key; allowed: name, description, charts, budgets"),
    ],
)
def test_errors_name_file_line_and_key(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, FILE + text)
    assert str(caught.value).startswith(f"{tmp_path / 'file.yaml'}:{line}: {words}")
