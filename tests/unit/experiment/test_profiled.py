# SPDX-License-Identifier: GPL-2.0-only
"""Which tables can have profiles, and what is said of the others?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import ConfigError, UsageError
from orchestrator.experiment.experiment import Experiment, unprofiled, with_profile
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan

TABLE = "kernels: [debian-686]\nmachines: [{cpu: pentium4}]\n"
CALLS = "benchmark: {name: gtodbench}\nprobes: [none]\n"
EVENTS = "benchmark: {name: kpcache-events}\nprobes: [none]\n"
MARKERS = "benchmark: {name: markers}\nprobes: [none]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "experiment.yaml"


def loaded(file: Path, text: str) -> Experiment:
    file.write_text("name: profiled\n" + text)
    return load_experiment(file, kinds())


def tables(**texts: str) -> str:
    found = "tables:\n"
    for name, text in texts.items():
        found += f"  {name}:\n" + "".join(f"    {line}\n" for line in (TABLE + text).splitlines())
    return found


def test_each_cell_of_a_profiled_table_wants_a_profile(file: Path) -> None:
    experiment = loaded(file, TABLE + CALLS + "profile: [symbols, classes]\n")
    planned = plan(experiment)
    assert [cell.profile for cell in planned.cells] == [("symbols", "classes")]
    assert planned.boots[0].profile == {"symbols", "classes"}
    file.write_text(experiment.resolved_yaml())
    assert load_experiment(file, kinds()) == experiment


def test_without_the_key_no_cell_wants_one(file: Path) -> None:
    planned = plan(loaded(file, TABLE + CALLS))
    assert [cell.profile for cell in planned.cells] == [()]
    assert not planned.boots[0].profile


def test_a_whole_system_has_profiles_by_symbol_alone(file: Path) -> None:
    system = TABLE + "benchmark: {name: ping-flood}\n"
    planned = plan(with_profile(loaded(file, system), ["stacks", "symbols"]))
    assert {cell.profile for cell in planned.cells} == {("symbols",)}
    assert {cell.profile for cell in plan(loaded(file, system)).cells} == {()}
    with pytest.raises(ConfigError, match="found 'stacks'"):
        loaded(file, system + "profile: [stacks]\n")
    with pytest.raises(ConfigError, match="counts no instructions"):
        loaded(file, system + "clock: wall\nprofile: [symbols]\n")


def test_the_option_is_the_key_of_every_table_that_may_have_it(file: Path) -> None:
    experiment = loaded(file, tables(exact=CALLS, wall=CALLS + "clock: wall\n"))
    wanted_plan = plan(with_profile(experiment, ["symbols", "symbols"]))
    assert {cell.table: cell.profile for cell in wanted_plan.cells} == {"exact": ("symbols",), "wall": ()}
    assert with_profile(loaded(file, TABLE + CALLS), ["symbols"]) == loaded(
        file, TABLE + CALLS + "profile: [symbols]\n"
    )


def test_each_table_that_is_left_without_says_so(file: Path) -> None:
    experiment = loaded(file, tables(exact=CALLS, wall=CALLS + "clock: wall\n", marked=MARKERS))
    first, second = unprofiled(experiment, ["stacks"])
    assert first.startswith("no profile of table wall: found stacks; clock 'wall' counts no instructions")
    assert second == "no profile of table marked: benchmark 'markers' has none of stacks"
    assert not unprofiled(loaded(file, TABLE + CALLS), ["symbols"])


def test_an_experiment_without_any_such_table_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match="no table of experiment 'profiled' can have a profile"):
        with_profile(loaded(file, TABLE + CALLS + "clock: wall\n"), ["symbols"])


def test_caches_are_modelled_of_cpus_whose_caches_are_known(file: Path) -> None:
    experiment = loaded(file, TABLE + CALLS + "profile: [caches]\n")
    assert plan(experiment).boots[0].profile == {"caches"}
    file.write_text("name: profiled\n" + TABLE.replace("pentium4", "core2duo") + CALLS)
    other_experiment = load_experiment(file, kinds(), qemu_cpu_names=lambda: ["core2duo"])
    with pytest.raises(UsageError, match="can have a profile"):
        with_profile(other_experiment, ["caches"])
    file.write_text(file.read_text() + "profile: [caches]\n")
    with pytest.raises(ConfigError, match="the caches of 'core2duo' are not known, only those of pentium4, "):
        load_experiment(file, kinds(), qemu_cpu_names=lambda: ["core2duo"])


def test_an_unknown_part_is_refused_with_the_nearest(file: Path) -> None:
    with pytest.raises(UsageError, match="found 'symbol'"):
        with_profile(loaded(file, TABLE + CALLS), ["symbol"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (CALLS + "profile: [symbol]\n", "did you mean 'symbols'"),
        (CALLS + "profile: [symbols]\nclock: wall\n", "clock 'wall' counts no instructions"),
        (MARKERS + "profile: [stacks]\n", "found 'stacks'"),
        (EVENTS + "profile: [symbols]\n", "marks no work that could be counted"),
    ],
)
def test_a_table_that_cannot_be_profiled_says_why(file: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(file, TABLE + text)
    assert why in str(error.value)
