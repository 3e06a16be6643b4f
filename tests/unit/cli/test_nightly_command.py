# SPDX-License-Identifier: GPL-2.0-only
"""What does a night do that cannot be measured, or not reported? ``tests/qemu/test_nightly.py`` has real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from junitparser import TestSuite
from record_builders import cell
from stored_profiles import store_run
from typer.testing import CliRunner
from user_trees import build_tree, kernel_source

from orchestrator.cli.main import app
from orchestrator.errors import BuildError, HostError
from orchestrator.experiment.experiment import Experiment
from orchestrator.library import nightly_run as nightly
from orchestrator.nightly.night import nightly_lock
from orchestrator.results.runs import find_run

EXPERIMENT = """\
name: own
kernels: [lab-i386-up]
machines: [{cpu: pentium4}]
probes: [none, kprobe]
benchmark: {name: gtodbench}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "own.yaml").write_text(EXPERIMENT)
    return tmp_path / "own.yaml"


def test_a_wrong_experiment_is_told(lab: Path, config: Path, tmp_path: Path) -> None:
    """An earlier JUnit file would be taken for a good night."""
    config.write_text(EXPERIMENT + "budget: {}\n")
    junit, mail = tmp_path / "junit.xml", tmp_path / "mail"
    ended = CliRunner().invoke(app, ["nightly", str(config), "--junit", str(junit), "--mail", str(mail)])
    assert ended.exit_code == 2
    assert TestSuite.fromstring(junit.read_text()).errors == 1
    assert "Subject: [own] not measured\n" in mail.read_text()


def test_what_a_compiler_printed_does_not_damage_the_xml(
    lab: Path, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> object:
        raise BuildError("it does not build", detail=["\x1b[31merror:\x1b[0m \udcff", "x" * 100_000])

    monkeypatch.setattr(nightly, "nightly_run", fails)
    junit = tmp_path / "junit.xml"
    ended = CliRunner().invoke(app, ["nightly", str(config), "--junit", str(junit)])
    assert ended.exit_code == BuildError.exit_status
    assert r"\x1b[31merror:\x1b[0m \udcff" in junit.read_text()
    assert TestSuite.fromstring(junit.read_text()).errors == 1
    assert len(junit.read_text()) < 10_000


@pytest.mark.parametrize("error", [RuntimeError("a fault of this program"), HostError("no room")])
def test_a_night_that_cannot_be_told_is_over(
    lab: Path, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The next night measures: with the note, it would try to tell this one for ever."""
    run = store_run(lab, tmp_path / "run", cell("none"))

    def measured(_experiment: object, _measuring: object, note: object) -> object:
        return find_run(run, lab)

    def broken(*_: object) -> str:
        raise error

    monkeypatch.setattr(nightly, "nightly_run", measured)
    monkeypatch.setattr("orchestrator.results.store.Store.set_baseline", broken)
    with nightly_lock(lab, "own") as note:
        note.begin()
    ended = CliRunner().invoke(app, ["nightly", str(config)])
    assert ended.exit_code == (3 if isinstance(error, HostError) else 1)
    assert not (lab / "nights" / "own").exists()


def test_in_a_kernel_s_tree_a_night_is_measured_on_its_kernel(
    lab: Path, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by ``run``; a budget of no cell is said before anything is measured."""
    tree = build_tree(kernel_source(tmp_path / "linux"), "X86_64")
    measured: list[Experiment] = []

    def stopped(experiment: Experiment, *_: object) -> object:
        measured.append(experiment)
        raise HostError("enough")

    monkeypatch.setattr(nightly, "nightly_run", stopped)
    config.write_text(EXPERIMENT.replace("kernels: [lab-i386-up]\n", "").replace("pentium4", "xeon-e5410"))
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["nightly", str(config)]).exit_code == 2
    monkeypatch.chdir(tree)
    ended = CliRunner().invoke(app, ["nightly", str(config)])
    assert (ended.exit_code, "kernel: this tree" in ended.stderr) == (3, True), ended.stderr
    assert measured[0].tables[0].table.kernels == (str(tree),)
    wrong = CliRunner().invoke(app, ["nightly", str(config), "--set", "budgets={jprobe: +1}"])
    assert (wrong.exit_code, "no cell matches" in wrong.stderr, len(measured)) == (2, True, 1), wrong.stderr
