# SPDX-License-Identifier: GPL-2.0-only
"""What a table of a whole-system workload may say, and which cells it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from orchestrator.benchmarks.system.table import MacroMatrix
from orchestrator.errors import ConfigError
from orchestrator.experiment.file.experiment import AnyExperiment, load_experiment
from orchestrator.experiment.plan import Plan, plan
from orchestrator.experiment.selection import select

BUILD = """\
name: build
kernels: [lab-i386-up]
machines: [{cpu: pentium4}]
macro: {name: kernel-build}
"""
RECORDED = """\
name: recorded
kernels: [lab-i386-up, lab-i386-smp]
kernel_for: {hook: lab-i386-up-markers}
machines: [{cpu: pentium4}]
probes: [none, hook, kprobe]
macro: {name: ping-flood, packets: 100, again: 2}
"""

Loader = Callable[..., AnyExperiment]


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    def load_text(text: str, *overrides: str) -> AnyExperiment:
        (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
        return load_experiment(tmp_path / "x.yaml", overrides)

    return load_text


def complaint(load: Loader, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load(text, *overrides)
    return str(raised.value)


def only(experiment: AnyExperiment) -> MacroMatrix:
    ((_, matrix),) = experiment.matrices
    assert isinstance(matrix, MacroMatrix)
    return matrix


def test_what_is_not_said_is_as_usual(load: Loader) -> None:
    matrix = only(load(BUILD))
    assert (matrix.macro.scope, matrix.macro.repeats, matrix.macro.again) == ("locking", 3, 1)
    assert (matrix.probes, matrix.clock) == (("none",), "instructions")
    assert matrix.machines[0].memory == "1024M"
    assert only(load(BUILD.replace("kernel-build", "ping-flood"))).macro.packets == 20000


def test_the_resolved_experiment_loads_as_itself(load: Loader) -> None:
    for text in (BUILD, RECORDED):
        experiment = load(text)
        assert load(experiment.resolved_yaml()) == experiment


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("kernel-build}", "kernel-build, packets: 3}"), "macro.packets: 'kernel-build' has no such key"),
        (("kernel-build}", "kernel-build, scope: lockin}"), "did you mean 'locking'?"),
        (("kernel-build}", "ping-flod}"), "did you mean 'ping-flood'?"),
        (("kernel-build}", "command}"), "macro.command: missing"),
        (("kernel-build}", "command, command: [gzip]}"), "absolute path"),
        (("kernel-build}", "command, command: true}"), "expected a program of the image"),
        (("kernel-build}", "kernel-build, events: [process_frk]}"), "did you mean 'process_fork'?"),
        (("kernel-build}", "kernel-build, again: 0}"), "macro.again"),
        (("pentium4}", "pentium4, memory: 256M}"), "needs 1024M"),
        (("pentium4}", "pentium4, smp: 2}"), "clock 'instructions' needs 1"),
        (("macro:", "probes: [ftrace]\nmacro:"), "probes.0"),
        (("macro:", "probes: [none]\nkernel_for: {hook: lab-i386-up}\nmacro:"), "kernel_for.hook"),
        (("macro:", "image: debian-amd64\nmacro:"), "is for x86_64, and kernel 'lab-i386-up' for i386"),
        (("macro:", "reference: markers-2006/ping-flood\nmacro:"), "is of 'ping-flood', not of 'kernel-build'"),
        (("macro:", "handlers: [noop]\nmacro:"), "handlers: unknown key; allowed: name, description, charts, clock"),
        (("macro:", "clock: wall\nmacro:"), None),
        (("kernel-build}", "kernel-build, repeats: 3}\nclock: wall"), "clock 'wall' needs more"),
        (("[lab-i386-up]", "[lab-i386-up, lab-x86_64-smp]"), "found kernels for i386 and x86_64"),
        (("kernel-build}", "command, command: [/bin/ö]}"), "expected a program of the image"),
        (("macro: {name: kernel-build}", "probes: [none]\nbenchmark: {name: [kernel-build]}"), "found a list"),
        (("macro: {name", "benchmark: {name"), "write it in a table's macro: {name: kernel-build}"),
    ],
)
def test_what_is_wrong_is_said(load: Loader, change: tuple[str, str], message: str | None) -> None:
    if message is None:
        load(BUILD.replace(*change))
        return
    assert message in complaint(load, BUILD.replace(*change))


def test_a_table_of_either_kind_takes_the_defaults_that_it_knows(load: Loader) -> None:
    text = """\
name: both
kernels: [lab-i386-up]
machines: [{cpu: pentium4}]
handlers: [record]
tables:
  micro: {probes: [kprobe], benchmark: {name: gtodbench}}
  macro: {probes: [none], macro: {name: ping-flood, repeats: 1}}
"""
    micro, macro = (matrix for _, matrix in load(text).matrices)
    assert micro.machines[0].memory == "256M"
    assert isinstance(macro, MacroMatrix)
    assert macro.machines[0].memory == "512M"
    wrong = complaint(load, text.replace("repeats: 1", "repeats: x"))
    assert "tables.macro.macro.repeats" in wrong
    assert ":7" in wrong


def test_an_override_that_no_such_table_has_is_idle(load: Loader) -> None:
    text = "name: x\nkernels: [lab-i386-up]\nmachines: [{cpu: pentium4}]\ntables:\n  one: {macro: {name: ping-flood}}\n"
    assert "changes nothing: tables of whole-system workloads" in complaint(load, text, "handlers=[record]")
    assert load(text, "probes=[kprobe]").matrices[0][1].probes == ("kprobe",)


def ids(planned: Plan) -> list[str]:
    return [cell.id for cell in planned.cells]


def test_the_baseline_comes_first_and_again(load: Loader) -> None:
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
    assert len({cell.macro.baseline for cell in planned.cells if cell.macro}) == 1


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
    cells = plan(load(BUILD + "probes: [none, ./mine.c]\n")).cells
    assert [cell.handler for cell in cells] == ["noop"] * 3


def test_the_resolved_file_is_plain_yaml(load: Loader) -> None:
    plain = yaml.safe_load(load(BUILD).resolved_yaml())
    assert plain["macro"]["scope"] == "locking"
    assert "benchmark" not in plain
