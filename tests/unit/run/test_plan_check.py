# SPDX-License-Identifier: GPL-2.0-only
"""Is what a plan needs and this host or a kernel lacks reported at its place in the file?"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from built_code import build_tree
from host_toolchain import a_kernel
from loaded_tables import as_kind

from orchestrator.artifacts.kernel_code import code_of_tree
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.calls_table import CallsTable, FoundPoint
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import ConfigError, HostError
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan, select
from orchestrator.guest.qemu_facts import qemu_version
from orchestrator.probes.point import Point
from orchestrator.run import plan_check
from orchestrator.run.plan_check import check_plan, check_points, wrong_points

TABLE = """\
name: one
kernels: [lab-i386-up]
machines: [{cpu: pentium4}, {cpu: athlon}]
probes: [none]
benchmark: {name: gtodbench}
"""


def check(folder: Path) -> HostError:
    file = folder / "x.yaml"
    file.write_text(TABLE)
    experiment = load_experiment(file, kinds(), [])
    with pytest.raises(HostError) as caught:
        check_plan(experiment, plan(experiment), lambda name: None)
    return caught.value


def test_a_cpu_that_is_not_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: object, timing: object) -> None:
        raise HostError("there is no such CPU", hint="name another")

    monkeypatch.setattr(plan_check, "qemu_version", str)
    monkeypatch.setattr(plan_check, "check_cpu", refuse)
    error = check(tmp_path)
    file = tmp_path / "x.yaml"
    assert error.detail == tuple(f"{file}:3: machines.{n}.cpu: there is no such CPU" for n in (0, 1))
    assert error.hint == "name another"


def test_a_host_without_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    qemu_version.cache_clear()
    error = check(tmp_path)
    assert (error.what, error.where, error.detail) == ("setpriv (util-linux) is not installed", "", ())


# Is a wrong point reported once, at its place in the file, and only where no kernel of its cells has it?

SOURCE = Path(__file__).parents[1] / "probes" / "points" / "points.S"
TABLES = """\
name: several
kernels: [lab-i386-up, debian-686]
machines: [{cpu: pentium4}, {cpu: athlon}]
probes: [none, kprobe]
benchmark: {name: gtodbench}
points:
  - vfs_write
  - vfs_raed
tables:
  first: {}
  second: {handlers: [record]}
  third:
    points: [vfs_read+0x3]
"""

Check = Callable[..., list[str]]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tree(tmp_path_factory.mktemp("tree"), SOURCE, 4)


@pytest.fixture
def check_point(tree: Path, tmp_path: Path) -> Check:
    """Check an experiment's text where the kernels that are named have the tree's code, and the others none."""

    def check_point(text: str, *overrides: str, having: tuple[str, ...], only: str = "*") -> list[str]:
        file = tmp_path / "x.yaml"
        file.write_text(text)
        experiment = load_experiment(file, kinds(), overrides)
        kernels = {name: a_kernel(name, code_folder=tree) for name in having}
        return check_points(experiment, select(plan(experiment), [only]), kernels.get)

    return check_point


WRONG = "it has no function vfs_raed of its own; did you mean vfs_read or vfs_write?"
INSIDE = "vfs_read+0x3 is inside the instruction at +0x1 (5 bytes): instructions begin at +0x0, +0x1, +0x6"


def test_each_point_once(check_point: Check, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        check_point(TABLES, having=("lab-i386-up", "debian-686"))
    file = tmp_path / "x.yaml"
    assert (caught.value.where, caught.value.what) == (str(file), "2 problems")
    assert list(caught.value.detail) == [
        f"{file}:8: points.1: found 'vfs_raed'; lab-i386-up, debian-686: {WRONG}",
        f"{file}:13: tables.third.points.0: found 'vfs_read+0x3'; lab-i386-up, debian-686: {INSIDE}",
    ]


def test_only_what_is_selected(check_point: Check) -> None:
    having = ("lab-i386-up", "debian-686")
    assert check_point(TABLES, having=having, only="point=vfs_write") == []
    with pytest.raises(ConfigError, match=r"x\.yaml:13: tables\.third\.points\.0: found 'vfs_read\+0x3'"):
        check_point(TABLES, having=having, only="table=third")


def test_an_override_is_where_it_is_from(check_point: Check) -> None:
    override = "points=[vfs_raed]"
    with pytest.raises(ConfigError, match=r"^--set points=\[vfs_raed\]: points\.0: found 'vfs_raed'; lab-i386-up: "):
        check_point(TABLES, override, "kernels=[lab-i386-up]", having=("lab-i386-up",), only="table=first")


def test_a_kernel_that_is_not_there_may_have_it(check_point: Check) -> None:
    assert check_point(TABLES, having=("lab-i386-up",)) == ["debian-686"]
    assert check_point(TABLES, having=()) == ["lab-i386-up", "debian-686"]


def test_a_table_without_points_asks_for_no_kernel(check_point: Check) -> None:
    without = TABLES[: TABLES.index("points")]
    assert check_point(without, having=()) == []


def test_without_points_no_code_is_read(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(TABLES[: TABLES.index("points")])
    monkeypatch.setattr(Kernel, "code", property(lambda kernel: pytest.fail("the image is read")))
    for boot in plan(load_experiment(file, kinds(), [])).boots:
        assert wrong_points(a_kernel(boot.guest.kernel, code_folder=tree), boot.cells) == {}


def test_a_run_that_decodes_nothing_loads_no_disassembler() -> None:
    modules = "orchestrator.run.runner, orchestrator.benchmarks.registry as registry"
    program = f"import sys, {modules}; list(registry.kinds()); print('capstone' in sys.modules)"
    argv = [sys.executable, "-c", program]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "False\n"


def test_each_instruction_of_a_function_that_one_kernel_lacks(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(TABLES[: TABLES.index("points")].replace(", {cpu: athlon}", "") + "points: ['vfs_raed+*']\n")
    experiment = load_experiment(file, kinds(), [])
    (named,) = experiment.tables
    table = as_kind(named.table, CallsTable)
    instruction = FoundPoint(Point("vfs_raed", 0, found_by="vfs_raed+*"), 1)
    whole = FoundPoint(Point.of("vfs_raed+*"))
    points = {("pentium4", "debian-686"): [instruction], ("pentium4", "lab-i386-up"): [whole]}
    found = replace(experiment, tables=[replace(named, table=table.with_found(points))])
    both = {name: a_kernel(name, code_folder=tree) for name in ("lab-i386-up", "debian-686")}
    assert check_points(found, plan(found), both.get) == []
    with pytest.raises(ConfigError, match=r"points\.0: found 'vfs_raed\+\*'; lab-i386-up, debian-686: it has no"):
        check_points(experiment, plan(experiment), both.get)


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("helper", "modules one, other have a function helper each: the name is ambiguous"),
        ("early_helper", "early_helper is __init: its memory is freed when the module has been loaded"),
    ],
)
def test_a_name_that_two_modules_share(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, expected: str
) -> None:
    """One that all of them have for their beginning has that reason."""
    code = code_of_tree(tree)
    assert code is not None
    names = {"vfs_write": "helper", "early_setup": "early_helper"}
    symbols = [replace(symbol, name=names.get(symbol.name, symbol.name)) for symbol in code.symbols]
    module = replace(code, symbols=symbols, is_module=True)
    monkeypatch.setattr(plan_check, "loaded_code", lambda *_: {"one": module, "other": module})
    file = tmp_path / "x.yaml"
    file.write_text(TABLES.partition("tables:")[0].replace("vfs_raed", point))
    cells = [
        replace(cell, kernel_modules=("one", "other"))
        for cell in plan(load_experiment(file, kinds())).boots[0].cells
        if cell.parameters.get("at") == point
    ]
    assert set(wrong_points(a_kernel("debian-686", code_folder=tree), cells).values()) == {expected}
