# SPDX-License-Identifier: GPL-2.0-only
"""The allowed keys of a table of a whole-system workload, and its cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from drawn_charts import bar_charts
from loaded_tables import only_table, tables_of
from record_builders import marked_build, recorded_build, run
from report_text import check_golden_table

from orchestrator.benchmarks.registry import kinds
from orchestrator.benchmarks.system.kind import SystemTable
from orchestrator.errors import ConfigError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import Plan, plan, select
from orchestrator.results.contract import RunRecord

BUILD = """\
name: build
kernels: [lab-i386-up]
machines: [{cpu: pentium4}]
benchmark: {name: kernel-build}
"""


RECORDED = """\
name: recorded
kernels: [lab-i386-up, lab-i386-smp]
kernel_for: {hook: lab-i386-up-markers}
machines: [{cpu: pentium4}]
probes: [none, hook, kprobe]
benchmark: {name: ping-flood, packets: 100, aa_boots: 2}
"""


Loader = Callable[..., Experiment]


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    def load_text(text: str, *overrides: str) -> Experiment:
        (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
        return load_experiment(tmp_path / "x.yaml", kinds(), overrides)

    return load_text


def complaint(load: Loader, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load(text, *overrides)
    return str(raised.value)


def only(experiment: Experiment) -> SystemTable:
    return only_table(experiment, SystemTable)


def test_missing_keys_have_defaults(load: Loader) -> None:
    matrix = only(load(BUILD))
    assert (matrix.benchmark.scope, matrix.benchmark.repeats, matrix.benchmark.aa_boots) == ("locking", 3, 1)
    assert (matrix.probes, matrix.clock) == (("none",), "instructions")
    assert matrix.machines[0].memory == "1024M"
    assert only(load(BUILD.replace("kernel-build", "ping-flood"))).benchmark.packets == 20000


def test_the_resolved_experiment_loads_as_itself(load: Loader) -> None:
    for text in (BUILD, RECORDED):
        experiment = load(text)
        assert load(experiment.resolved_yaml()) == experiment


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("kernel-build}", "kernel-build, packets: 3}"), "benchmark.packets: 'kernel-build' does not have this key"),
        (("kernel-build}", "kernel-build, scope: lockin}"), "did you mean 'locking'?"),
        (("kernel-build}", "ping-flod}"), "did you mean 'ping-flood'?"),
        (("kernel-build}", "command}"), "benchmark.command: missing"),
        (("kernel-build}", "command, command: [gzip]}"), "absolute path"),
        (("kernel-build}", "command, command: true}"), "expected a program of the image"),
        (("kernel-build}", "kernel-build, events: [process_frk]}"), "did you mean 'process_fork'?"),
        (("kernel-build}", "kernel-build, aa_boots: 0}"), "benchmark.aa_boots"),
        (("pentium4}", "pentium4, memory: 256M}"), "needs 1024M"),
        (("pentium4}", "pentium4, smp: 2}"), "clock 'instructions' needs 1"),
        (("benchmark:", "probes: [ftrace]\nbenchmark:"), "probes.0"),
        (("benchmark:", "probes: [none]\nkernel_for: {hook: lab-i386-up}\nbenchmark:"), "kernel_for.hook"),
        (("benchmark:", "image: debian-amd64\nbenchmark:"), "is for x86_64, and kernel 'lab-i386-up' for i386"),
        (("benchmark:", "reference: markers-2006/ping-flood\nbenchmark:"), "is of 'ping-flood', not of 'kernel-build'"),
        (
            ("benchmark:", "handlers: [noop]\nbenchmark:"),
            "handlers: unknown key; allowed: name, description",
        ),
        (("benchmark:", "clock: wall\nbenchmark:"), None),
        (("kernel-build}", "kernel-build, repeats: 3}\nclock: wall"), "clock 'wall' needs more"),
        (("[lab-i386-up]", "[lab-i386-up, lab-x86_64-smp]"), "found kernels for i386 and x86_64"),
        (("kernel-build}", "command, command: [/bin/ö]}"), "expected a program of the image"),
        (("benchmark: {name: kernel-build}", "probes: [none]\nbenchmark: {name: [kernel-build]}"), "found a list"),
    ],
)
def test_problems_are_reported(load: Loader, change: tuple[str, str], message: str | None) -> None:
    if message is None:
        load(BUILD.replace(*change))
        return
    assert message in complaint(load, BUILD.replace(*change))


def test_a_disk_of_ones_own_is_no_image_of_a_system(load: Loader, tmp_path: Path) -> None:
    disk = tmp_path / "mine.img"
    disk.write_bytes(bytes(1080) + b"\x53\xef" + bytes(1 << 20))  # ext4's magic number
    message = complaint(load, BUILD.replace("benchmark:", f"image: {disk}\nbenchmark:"))
    assert "a workload works in memory, where a disk of your own cannot be: name a recipe" in message


def test_a_table_of_either_kind_takes_the_defaults_that_it_knows(load: Loader) -> None:
    text = """\
name: both
kernels: [lab-i386-up]
machines: [{cpu: pentium4}]
handlers: [record]
tables:
  calls: {probes: [kprobe], benchmark: {name: gtodbench}}
  system: {probes: [none], benchmark: {name: ping-flood, repeats: 1}}
"""
    calls, system = (named.table for named in load(text).tables)
    assert calls.machines[0].memory == "256M"
    assert isinstance(system, SystemTable)
    assert system.machines[0].memory == "512M"
    wrong = complaint(load, text.replace("repeats: 1", "repeats: x"))
    assert "tables.system.benchmark.repeats" in wrong
    assert ":7" in wrong


def test_an_override_that_no_such_table_has_is_idle(load: Loader) -> None:
    head = "name: x\nkernels: [lab-i386-up]\nmachines: [{cpu: pentium4}]\n"
    text = f"{head}tables:\n  one: {{benchmark: {{name: ping-flood}}}}\n"
    assert "changes nothing: no benchmark of this file has this key" in complaint(load, text, "handlers=[record]")
    assert load(text, "probes=[kprobe]").tables[0].table.probes == ("kprobe",)


def ids(planned: Plan) -> list[str]:
    return [cell.id for cell in planned.cells]


def test_the_baseline_is_first_and_has_aa_boots(load: Loader) -> None:
    planned = plan(load(RECORDED))
    assert ids(planned) == [
        "pentium4+512M/lab-i386-up/none",
        "pentium4+512M/lab-i386-up/none/again1",
        "pentium4+512M/lab-i386-up/none/again2",
        "pentium4+512M/lab-i386-up/kprobe",
        "pentium4+512M/lab-i386-smp/none",
        "pentium4+512M/lab-i386-smp/kprobe",
        "pentium4+512M/lab-i386-up-markers/none",
        "pentium4+512M/lab-i386-up-markers/hook",
    ]
    assert all(len(boot.cells) == 1 for boot in planned.boots)
    first, *other_cells = planned.cells
    assert first.compared_with == ()
    assert {cell.compared_with[0] for cell in other_cells} == {first.id}
    assert {len(cell.compared_with) for cell in other_cells if not cell.task.aa_boot} == {3}


def test_a_selection_keeps_what_it_is_compared_with(load: Loader) -> None:
    assert ids(select(plan(load(RECORDED)), ["probe=hook"])) == [
        "pentium4+512M/lab-i386-up/none",
        "pentium4+512M/lab-i386-up/none/again1",
        "pentium4+512M/lab-i386-up/none/again2",
        "pentium4+512M/lab-i386-up-markers/hook",
    ]


def test_a_module_of_one_s_own_is_found_beside_the_file(load: Loader, tmp_path: Path) -> None:
    (tmp_path / "mine.c").write_text("")
    matrix = only(load(BUILD + "probes: [none, ./mine.c]\n"))
    assert matrix.probes == ("none", str(tmp_path / "mine.c"))
    given = only(load(BUILD + "probes: [none, './mine.c size=64']\n"))
    assert given.probes == ("none", f"{tmp_path / 'mine.c'} size=64")
    cells = plan(load(BUILD + "probes: [none, ./mine.c]\n")).cells
    assert [cell.handler for cell in cells] == ["noop"] * 3


@pytest.mark.parametrize("name", ["mine.bpf.c", "mine.o"])
def test_programs_of_one_s_own_are_no_module(load: Loader, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    said = complaint(load, BUILD + f"probes: [none, ./{name}]\n")
    assert "your own module is a template (.c.j2), a C file (.c), a .ko or a folder with a Kbuild" in said


def test_the_resolved_file_is_plain_yaml(load: Loader) -> None:
    plain = yaml.safe_load(load(BUILD).resolved_yaml())
    assert plain["benchmark"]["scope"] == "locking"


HEAD = "name: x\nkernels: [lab-i386-smp-preempt]\nmachines: [{cpu: pentium4, memory: 1G}]\n"


def repeats(experiment: Experiment) -> list[int | None]:
    return [getattr(named.table.benchmark, "repeats", None) for named in experiment.tables]


def test_a_default_reaches_every_table_whose_kind_has_it(load: Loader) -> None:
    tables = "tables:\n  a: {probes: [none, marker.int3], benchmark: {name: markers}}\n"
    both = tables + "  b: {probes: [none, kprobe], benchmark: {name: gtodbench}}\n"
    assert repeats(load(HEAD + "benchmark: {repeats: 7}\n" + both)) == [7, 7]
    inherited = tables + "  b: {probes: [none, kprobe]}\n"
    assert repeats(load(HEAD + "benchmark: {name: gtodbench, repeats: 7}\n" + inherited)) == [7, 7]
    assert repeats(load(HEAD + both, "benchmark.repeats=7")) == [7, 7]


def test_defaults_reach_each_table_of_whole_systems(load: Loader) -> None:
    tables = "tables:\n  a: {benchmark: {name: kernel-build}}\n  b: {benchmark: {name: ping-flood}}\n"
    experiment = load(HEAD + "benchmark: {repeats: 7, aa_boots: 2}\n" + tables)
    assert repeats(experiment) == [7, 7]
    assert [only_kind.benchmark.aa_boots for only_kind in tables_of(experiment, SystemTable).values()] == [2, 2]
    assert load(HEAD + tables, "benchmark.repeats=7", "benchmark.aa_boots=2") == experiment


@pytest.mark.parametrize("default", ["benchmark: {frob: 5}", "benchmark: {calls: 5}", "benchmark: {aa_boots: 2}"])
def test_a_default_that_no_table_can_have_is_unknown(load: Loader, default: str) -> None:
    tables = "tables:\n  a: {probes: [none, marker.int3], benchmark: {name: markers}}\n"
    assert ": unknown key; allowed: name, repeats" in complaint(load, f"{HEAD}{default}\n{tables}")


@pytest.mark.parametrize("benchmark", ["aa_boots: 1", "packets: null", "aa_boots: true"])
def test_a_key_of_another_kind_is_refused_whatever_its_value(load: Loader, benchmark: str) -> None:
    text = f"{HEAD}probes: [kprobe]\nbenchmark: {{name: gtodbench, {benchmark}}}\n"
    assert f"benchmark.{benchmark.partition(':')[0]}: " in complaint(load, text)


# Tables and charts of whole-system workloads.

RUNS: dict[str, RunRecord] = {
    "whole_system_recorded": run(*recorded_build()),
    "whole_system_marked": run(*marked_build()),
}


@pytest.mark.parametrize("name", RUNS)
def test_system_table_is_as_in_the_golden_file(name: str) -> None:
    check_golden_table(name, RUNS[name])


def test_the_instrumentation_stands_beside_what_a_difference_has_to_exceed() -> None:
    first, again, marked = marked_build()
    counted = {"instrumentation": 1044516.0, "instrumentation_least": 1038774.0, "instrumentation_most": 1044618.0}
    cells = [
        *(
            cell.model_copy(update={"parameters": {**cell.parameters, "instrumentation": 0.0}})
            for cell in (first, again)
        ),
        marked.model_copy(update={"parameters": {**marked.parameters, **counted}}),
    ]
    check_golden_table("whole_system_instrumentation", run(*cells))


def test_bars_are_per_cent_of_the_baseline() -> None:
    (chart,) = bar_charts(RUNS["whole_system_recorded"]).values()
    (left, (added,)), (right, (published,)) = chart.panes
    assert (left, right) == ("added to a run, per cent", "published, per cent")
    assert chart.labels[0] == "A/A boot"
    assert [bar.text for bar in added.bars] == ["+0.018", "+0.383", "+0.511", "+5.111", "+0.013\nno verdict", "failed"]
    assert [bar.value is None for bar in published.bars] == [True, True, False, False, True, False]


def test_a_baseline_alone_has_no_chart() -> None:
    assert bar_charts(run(recorded_build()[0])) == {}
