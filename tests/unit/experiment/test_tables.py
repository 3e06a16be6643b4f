# SPDX-License-Identifier: GPL-2.0-only
"""Several tables in one file: what they inherit, how they are planned and selected, and where an error is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from loaded_tables import QEMU_CPUS, tables_of
from user_trees import build_tree

from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.probes import BASELINE, probes
from orchestrator.errors import ConfigError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan, select
from orchestrator.paths import data_dir

TABLES = """\
name: several
kernels: [debian-686]
machines: [{cpu: pentium4}]
probes: [none, kprobe]
benchmark: {name: gtodbench, calls: 100}
tables:
  one: {reference: djprobe-2005/list5}
  two:
    machines: [{cpu: athlon}]
    handlers: [record]
    benchmark: {repeats: 7}
  three: {probes: [jprobe, kprobe], kernel_for: {jprobe: debian-686-pae}}
"""


def load(folder: Path, text: str = TABLES, *overrides: str) -> Experiment:
    file = folder / "x.yaml"
    file.write_text(text)
    return load_experiment(file, kinds(), overrides)


def complaint(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, *overrides)
    return str(caught.value).replace(f"{folder}/", "")


def test_keys_beside_the_tables_are_defaults_of_all(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    table, two, three = tables_of(experiment, CallsTable).values()
    assert [named.name for named in experiment.tables] == ["one", "two", "three"]
    assert table.kernels == two.kernels == three.kernels == ("debian-686",)
    assert (table.machines[0].cpu, two.machines[0].cpu) == ("pentium4", "athlon")
    # A mapping is merged with the default one.
    assert (two.benchmark.calls, two.repeats, table.repeats) == (100, 7, 4)
    assert (table.reference, two.reference) == ("djprobe-2005/list5", None)


def test_the_resolved_experiment_loads_as_itself(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    again = load(tmp_path, experiment.resolved_yaml())
    assert again == experiment
    assert again.resolved_yaml() == experiment.resolved_yaml()
    assert again.digest() == experiment.digest()
    assert plan(again) == plan(experiment)


def test_cells_are_named_after_their_table(tmp_path: Path) -> None:
    planned = plan(load(tmp_path))
    assert [(boot.guest.cpu, boot.guest.kernel, [cell.id for cell in boot.cells]) for boot in planned.boots] == [
        (
            "pentium4",
            "debian-686",
            [
                "one/pentium4/debian-686/none/noop",
                "one/pentium4/debian-686/kprobe/noop",
                # The same machine and kernel: the same boot.
                "three/pentium4/debian-686/none/noop",
                "three/pentium4/debian-686/kprobe/noop",
            ],
        ),
        ("athlon", "debian-686", ["two/athlon/debian-686/none/record", "two/athlon/debian-686/kprobe/record"]),
        (
            "pentium4",
            "debian-686-pae",
            ["three/pentium4/debian-686-pae/none/noop", "three/pentium4/debian-686-pae/jprobe/noop"],
        ),
    ]
    assert {cell.table for cell in planned.cells} == {"one", "two", "three"}


def test_overrides_reach_a_table_or_all(tmp_path: Path) -> None:
    experiment = load(tmp_path, TABLES, "tables.one.benchmark.calls=5", "benchmark.entry=int80")
    tables = tables_of(experiment, CallsTable).values()
    assert [table.benchmark.calls for table in tables] == [5, 100, 100]
    assert {table.benchmark.entry for table in tables} == {"int80"}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        # A problem with a default of several tables is reported once, at its own place.
        ("[none, kprobe]", "[none, kprob]", "x.yaml:4: probes.1: found 'kprob'; allowed: none, "),
        ("calls: 100", "cals: 100", "x.yaml:5: benchmark.cals: unknown key; allowed: name, calls, repeats, "),
        ("cpu: athlon}", "cpu: athlonn}", "x.yaml:9: tables.two.machines.0.cpu: found 'athlonn'; "),
        ("repeats: 7", "repeats: 0", "x.yaml:11: tables.two.benchmark.repeats: found 0; "),
        ("list5}", "list55}", "x.yaml:7: tables.one.reference: found 'djprobe-2005/list55'; "),
        ("  one:", "  One:", "x.yaml:7: tables.One: found 'One'; expected at most 64 small letters"),
        ("handlers: [record]", "handler: [record]", "x.yaml:10: tables.two.handler: unknown key; allowed: "),
        ("jprobe: debian-686-pae", "jprob: debian-686-pae", "x.yaml:12: tables.three.kernel_for.jprob: "),
        ("name: several", "nam: several", "did you mean 'name'?"),
        ("machines: [{cpu: pentium4}]\n", "", "tables.one.machines: missing; this key is required"),
        ("  one: {reference: djprobe-2005/list5}", "  one: 5", "x.yaml:7: tables.one: found 5; expected a mapping"),
    ],
)
def test_an_error_names_its_own_place(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in TABLES
    error_text = complaint(tmp_path, TABLES.replace(before, after))
    assert message in error_text
    assert error_text.count(message) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("handlers=[noop]", ""),
        ("machines=[{cpu: athlon64}]", ""),
        ("benchmark.calls=3", ""),
        ("benchmark={name: gtodbench, calls: 3}", ""),
        ("reference=djprobe-2005/list4", "reference"),
        ("kernels.0=debian-686-pae", "kernels"),
        ("benchmark.entry=int80", "benchmark.entry"),
    ],
)
def test_an_override_that_no_table_takes_is_refused(tmp_path: Path, override: str, message: str) -> None:
    own = "reference: djprobe-2005/list5, kernels: [debian-686], benchmark: {entry: auto}"
    matrices = f"  one: {{{own}}}\n  two: {{{own}, machines: [{{cpu: athlon}}]}}\n"
    text = (
        TABLES[: TABLES.index("  one:")].replace("benchmark:", "reference: djprobe-2005/list6\nbenchmark:") + matrices
    )
    error_text = ""
    try:
        load(tmp_path, text, override)
    except ConfigError as error:
        error_text = str(error)
    why = f"changes nothing, because every table has its own value; set each table's, as in tables.one.{message}=..."
    key = "kernels.0" if message == "kernels" else message
    assert error_text == (f"--set {override}: {key}: {why}" if message else "")


def test_a_relative_path_begins_at_its_file_or_on_the_command_line_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = (tmp_path / name for name in ("here", "there"))
    for folder in (here, there):
        build_tree(folder / "tree")
    monkeypatch.chdir(here)
    text = TABLES.replace("kernels: [debian-686]", "kernels: [./tree]").replace("debian-686-pae", "./tree")
    experiment = load(there, text, "tables.two.kernels=[./tree]")
    table, two, three = tables_of(experiment, CallsTable).values()
    assert (table.kernels, two.kernels) == ((str(there / "tree"),), (str(here / "tree"),))
    assert three.kernel_for == {"jprobe": str(there / "tree")}
    ids = [cell.id for cell in plan(experiment).cells]
    assert all(str(tmp_path) not in name and "/own-tree-" in name for name in ids)


def test_the_wall_clock_needs_samples_for_an_interval(tmp_path: Path) -> None:
    error_text = complaint(tmp_path, TABLES.replace("repeats: 7", "repeats: 5"), "tables.two.clock=wall")
    assert "tables.two.benchmark.repeats: found 5; clock 'wall' needs more: an interval needs at least 6" in error_text


@pytest.mark.parametrize("only", ["two", "table=two", "table=tw*,probe=*"])
def test_a_table_is_selected_by_its_name(tmp_path: Path, only: str) -> None:
    assert {cell.table for cell in select(plan(load(tmp_path)), [only]).cells} == {"two"}


def test_a_selection_keeps_each_table_s_own_baseline(tmp_path: Path) -> None:
    chosen = select(plan(load(tmp_path)), ["table=three,kprobe"])
    assert [cell.id for cell in chosen.cells] == [
        "three/pentium4/debian-686/none/noop",
        "three/pentium4/debian-686/kprobe/noop",
    ]


@pytest.mark.parametrize("config", sorted(data_dir("configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_loads_and_is_planned(config: Path) -> None:
    experiment = load_experiment(config, kinds(), (), lambda: QEMU_CPUS)
    assert experiment.name == config.stem
    assert plan(experiment).cells


def test_the_eight_lists_are_36_cells() -> None:
    experiment = load_experiment(data_dir("configs") / "djprobe-2005.yaml", kinds())
    cells = plan(experiment).cells
    assert len(cells) == 36
    assert Counter(cell.table for cell in cells) == {
        **dict.fromkeys(("list4", "list5", "list6", "list7"), 4),
        **dict.fromkeys(("list11", "list12", "list13", "list14"), 5),
    }
    assert {cell.published.table for cell in cells if cell.published} == {
        f"djprobe-2005/{cell.table}" for cell in cells
    }


DESCRIBED = st.fixed_dictionaries(
    {
        "machines": st.lists(
            st.sampled_from([{"cpu": "athlon64"}, {"cpu": "xeon-e5410"}, {"cpu": "athlon64", "memory": "1G"}]),
            min_size=1,
            unique_by=str,
        ),
        "kernels": st.lists(st.sampled_from(["debian-686", "debian-amd64"]), min_size=1, unique=True),
        "probes": st.lists(st.sampled_from(list(probes())), min_size=1, unique=True),
        "handlers": st.lists(st.sampled_from(["noop", "record"]), min_size=1, unique=True),
    }
)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), DESCRIBED, min_size=1), st.data())
def test_every_table_is_planned_exactly(
    tmp_path_factory: pytest.TempPathFactory, tables: dict[str, dict[str, list[Any]]], data: st.DataObject
) -> None:
    moved: dict[str, dict[str, str]] = {}
    for name, described in tables.items():
        movable = [probe for probe in described["probes"] if probe != BASELINE]
        chosen = data.draw(st.lists(st.sampled_from(movable), unique=True)) if movable else []
        moved[name] = dict.fromkeys(chosen, "debian-686-pae")
    content = {
        name: {**described, "kernel_for": moved[name], "benchmark": {"name": "gtodbench"}}
        for name, described in tables.items()
    }
    text = yaml.safe_dump({"name": "x", "tables": content})
    experiment = load(tmp_path_factory.getbasetemp(), text)
    planned = plan(experiment)
    wanted = set()
    for table, matrix in tables_of(experiment, CallsTable).items():
        name = table or ""
        for machine in matrix.machines:
            for handler in matrix.handlers:
                for probe in {BASELINE, *matrix.probes} - set(moved[name]):
                    wanted |= {(name, machine.cpu, machine.memory_mib, k, probe, handler) for k in matrix.kernels}
                for probe in {BASELINE, *moved[name]} if moved[name] else ():
                    wanted.add((name, machine.cpu, machine.memory_mib, "debian-686-pae", probe, handler))
    found = [(c.table, c.cpu, c.memory_mib, c.kernel, c.probe, c.handler) for c in planned.cells]
    assert sorted(found) == sorted(wanted)
    assert len({cell.id for cell in planned.cells}) == len(found)
    machines = [(boot.guest, boot.clock) for boot in planned.boots]
    assert len(machines) == len(set(machines))
    for boot in planned.boots:
        seen: list[tuple[str | None, str]] = []
        for cell in boot.cells:
            group = (cell.table, cell.handler)
            if cell.probe == BASELINE:
                assert group not in seen
                seen.append(group)
            assert seen[-1] == group
