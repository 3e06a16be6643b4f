# SPDX-License-Identifier: GPL-2.0-only
"""Does a plan hold exactly the experiment's matrix, with a baseline where one is needed?"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loaded_tables import calls_experiment, only_table

from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.probes import BASELINE, probes
from orchestrator.errors import ConfigError, UsageError
from orchestrator.experiment.experiment import Experiment, on_kernels, only_profiled, with_profile
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import MAX_CELLS, check_budgets, plan
from orchestrator.results.store import Store
from orchestrator.run.runner import check_resumable


def test_a_cell_has_every_fact_its_number_depends_on() -> None:
    cell = plan(calls_experiment(reference="djprobe-2005/list5", time_limit=7)).cells[1]
    assert (cell.id, cell.cpu, cell.smp, cell.memory_mib) == ("pentium4/debian-686/kprobe/noop", "pentium4", 1, 256)
    assert (cell.kernel, cell.probe, cell.handler) == ("debian-686", "kprobe", "noop")
    assert (cell.benchmark, cell.task.calls, cell.repeats, cell.task.entry) == ("gtodbench", 1000, 2, "int80")
    assert cell.published is not None
    assert (cell.clock, cell.published.table, cell.time_limit) == ("instructions", "djprobe-2005/list5", 7)
    assert cell.compared_with == ("pentium4/debian-686/none/noop",)


def test_cells_are_in_the_file_s_order_behind_their_baseline() -> None:
    planned = plan(
        calls_experiment(
            machines=[{"cpu": "xeon-e5410"}, {"cpu": "athlon64", "memory": "1G"}],
            kernels=["debian-amd64", "debian-686"],
            probes=["jprobe", "none", "kprobe"],
        )
    )
    assert [(boot.guest.cpu, boot.guest.memory_mib, boot.guest.kernel) for boot in planned.boots] == [
        ("xeon-e5410", 256, "debian-amd64"),
        ("xeon-e5410", 256, "debian-686"),
        ("athlon64", 1024, "debian-amd64"),
        ("athlon64", 1024, "debian-686"),
    ]
    assert [cell.id for cell in planned.boots[2].cells] == [
        "athlon64+1024M/debian-amd64/none/noop",
        "athlon64+1024M/debian-amd64/jprobe/noop",
        "athlon64+1024M/debian-amd64/kprobe/noop",
    ]


def test_a_missing_baseline_is_added() -> None:
    assert [cell.probe for cell in plan(calls_experiment(probes=["djprobe"])).cells] == ["none", "djprobe"]


def test_cells_with_other_modules_of_the_kernel_s_have_another_boot() -> None:
    (with_modules,) = plan(calls_experiment(kernel_modules=["snd-pcm", "vfat"])).boots
    (without,) = plan(calls_experiment()).boots
    assert (with_modules.kernel_modules, without.kernel_modules) == (("snd_pcm", "vfat"), ())
    assert {cell.parameters["kernel_modules"] for cell in with_modules.cells} == {"snd_pcm, vfat"}
    assert all("kernel_modules" not in cell.parameters for cell in without.cells)


def test_several_cpus_show_in_the_id() -> None:
    machine = {"cpu": "pentium4", "smp": 2, "memory": "512M"}
    benchmark = {"name": "gtodbench"}
    planned = plan(calls_experiment(machines=[machine], clock="wall", benchmark=benchmark))
    assert {cell.repeats for cell in planned.cells} == {12}
    assert planned.cells[0].id == "pentium4+x2+512M/debian-686/none/noop"
    assert planned.boots[0].guest.smp == 2


def test_the_number_of_cells_is_bounded() -> None:
    machines = [{"cpu": "athlon64", "memory": f"{64 + index}M"} for index in range(1000)]
    several = calls_experiment(machines=machines, probes=list(probes()), kernels=["debian-686", "debian-amd64"])
    with pytest.raises(ConfigError, match=f"'x' has more than {MAX_CELLS} cells, baselines included"):
        plan(several)


@given(
    st.lists(
        st.tuples(st.sampled_from(["athlon64", "xeon-e5410"]), st.sampled_from(["64M", "256M", "1G"])),
        min_size=1,
        unique=True,
    ),
    st.lists(st.sampled_from(["debian-686", "debian-amd64"]), min_size=1, unique=True),
    st.lists(st.sampled_from(list(probes())), min_size=1, unique=True),
)
def test_the_plan_is_exactly_the_matrix(machines: list[tuple[str, str]], kernels: list[str], kinds: list[str]) -> None:
    described = calls_experiment(
        machines=[{"cpu": cpu, "memory": memory} for cpu, memory in machines], kernels=kernels, probes=kinds
    )
    planned = plan(described)
    found = [(cell.cpu, cell.memory_mib, cell.kernel, cell.probe, cell.handler) for cell in planned.cells]
    assert set(found) == {
        (machine.cpu, machine.memory_mib, kernel, probe, "noop")
        for machine, kernel, probe in product(only_table(described, CallsTable).machines, kernels, {BASELINE, *kinds})
    }
    assert len(found) == len(set(found)) == len({cell.id for cell in planned.cells})
    for boot in planned.boots:
        assert boot.cells[0].probe == BASELINE
        assert {(cell.cpu, cell.memory_mib, cell.kernel) for cell in boot.cells} == {
            (boot.guest.cpu, boot.guest.memory_mib, boot.guest.kernel)
        }
        assert [cell.probe for cell in boot.cells[1:]] == [kind for kind in kinds if kind != BASELINE]
    assert all(re.fullmatch(r"[A-Za-z0-9_.+-]+(/[a-z0-9-]+){3}", cell.id) for cell in planned.cells)


# Do an experiment's budgets come with it, without being part of what is measured?

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
        ("budgets:\n  kprobe: 300", 7, "budgets.kprobe: found 300; write '<=300' to allow"),
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


# Is an experiment measured on the kernels that are compared, and on no other?

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
    wanted_experiment = on_kernels(experiment, ["lab-i386-up", "debian-686-pae"])
    cells = plan(on_kernels(experiment, ["lab-i386-up", "debian-686"])).cells
    assert {cell.kernel for cell in cells} == {"lab-i386-up", "debian-686"}
    for kernel in ("lab-i386-up", "debian-686"):
        rows = [(cell.table, cell.probe) for cell in cells if cell.kernel == kernel]
        assert rows == [
            ("noop", "none"),
            ("noop", "kretprobe"),
            ("record", "none"),
            ("record", "kprobe"),
            ("loops", "none"),
        ]
    file = tmp_path / "resolved.yaml"
    file.write_text(wanted_experiment.resolved_yaml())
    assert load_experiment(file, kinds()) == wanted_experiment


def test_a_kernel_that_cannot_run_the_machines_is_named_with_its_place(experiment: Experiment) -> None:
    with pytest.raises(ConfigError, match=r"two.yaml:2: machines.0.cpu: kernel 'debian-amd64' is 64-bit"):
        on_kernels(experiment, ["debian-686", "debian-amd64"])


def test_one_kernel_twice_is_no_comparison(experiment: Experiment) -> None:
    with pytest.raises(UsageError, match="debian-686 and debian-686 are the same kernel"):
        on_kernels(experiment, ["debian-686", "debian-686"])


def test_tables_without_profiles_are_left_out(experiment: Experiment) -> None:
    assert [table.name for table in only_profiled(with_profile(experiment, ["stacks"])).tables] == ["noop", "record"]
