# SPDX-License-Identifier: GPL-2.0-only
"""The axes of a table that make several kernels of each one: parameters and options."""

from __future__ import annotations

from pathlib import Path

import pytest
from loaded_tables import tables_of

from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import ConfigError
from orchestrator.experiment.experiment import Experiment, on_kernels
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan

AXES = """\
name: axes
kernels: [lab-i386-up, lab-i386-up@7.3]
machines: [{cpu: pentium4}]
probes: [none, kprobe]
benchmark: {name: gtodbench, calls: 100}
options: [{}, {CONFIG_KFENCE: y, CONFIG_SWAP: n}, mine.config]
parameters: [default, "mitigations=auto nopti"]
"""


def load(folder: Path, text: str = AXES, *overrides: str) -> Experiment:
    (folder / "mine.config").write_text("CONFIG_KCOV=y\n")
    file = folder / "x.yaml"
    file.write_text(text)
    return load_experiment(file, kinds(), overrides)


def test_every_combination_is_a_kernel(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    cells = plan(experiment).cells
    names = list(dict.fromkeys(cell.spec.name for cell in cells))
    own = ["", "+CONFIG_KFENCE=y+CONFIG_SWAP=n", "+mine.config"]
    parts = [f"{options}{parameters}" for options in own for parameters in ("", "+mitigations=auto+nopti")]
    assert names == [f"{kernel}{part}" for kernel in ("lab-i386-up", "lab-i386-up@7.3") for part in parts]
    assert len({cell.id for cell in cells}) == len(cells) == 2 * 12
    assert len(plan(experiment).boots) == 12


def test_the_resolved_experiment_names_the_kernels_and_is_the_same(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    text = experiment.resolved_yaml()
    assert f"lab-i386-up+{tmp_path}/mine.config" in text
    assert "parameters:" not in text
    again = load(tmp_path, text)
    assert again.digest() == experiment.digest()
    assert plan(again) == plan(experiment)


def test_default_alone_changes_nothing(tmp_path: Path) -> None:
    plain = AXES.partition("options:")[0]
    assert load(tmp_path, plain).digest() == load(tmp_path, f"{plain}options: [{{}}]\nparameters: [default]\n").digest()


def test_on_other_kernels_the_axes_are_gone(tmp_path: Path) -> None:
    (table,) = tables_of(on_kernels(load(tmp_path), ["debian-686", "debian-686+nopti"]), CallsTable).values()
    assert table.kernels == ("debian-686", "debian-686+nopti")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("parameters", "[tsc=unstable]", "x.yaml:7: parameters.0: found 'tsc=unstable'; the lab sets it"),
        ("parameters", "['a b', 'a b']", "a duplicate of an entry above"),
        ("parameters", "[{a: b}]", "expected kernel parameters"),
        ("options", "[{KFENCE: y}]", "expected options, such as {CONFIG_KFENCE: y}"),
        ("options", "[./no.config]", "No such file or directory"),
        ("options", "[nopti]", "expected options"),
    ],
)
def test_wrong_values_are_reported_where_they_are(tmp_path: Path, key: str, value: str, message: str) -> None:
    plain = AXES.partition("options:")[0]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"{plain}{'# ' if key == 'parameters' else ''}\n{key}: {value}\n")
    assert message in str(caught.value)


def test_options_of_a_built_kernel_and_kernels_of_single_probes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, AXES, "kernels=[debian-686]", "kernel_for={kprobe: lab-i386-up}")
    assert "debian-686 is Debian's package" in str(caught.value)
    assert "kernel_for names its kernels whole" in str(caught.value)
