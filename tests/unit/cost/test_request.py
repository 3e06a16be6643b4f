# SPDX-License-Identifier: GPL-2.0-only
"""Which call reaches a subject, at which point, and does the experiment that measures it load?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from host_toolchain import a_kernel

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.benchmarks.registry import kinds
from orchestrator.cost.call_finder import CallFinder, NamedCalls
from orchestrator.cost.call_table import call_table
from orchestrator.cost.cost_experiment import allowed, budget_of_hit, experiment_content, experiment_text, planned_lines
from orchestrator.cost.cost_machine import DEFAULT_CPU, DEFAULT_KERNEL, cost_kernel
from orchestrator.cost.counted_table import CountedCall, CountedTable
from orchestrator.cost.line import CostLine
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.errors import UsageError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan

TABLE = CountedTable(
    calls={
        "getppid": CountedCall(functions={"__x64_sys_getppid": 1}),
        "read_zero": CountedCall(functions={"vfs_read": 1, "read_iter_zero": 1}),
        "open": CountedCall(
            functions={"do_sys_openat2": 1, "__x64_sys_close": 1},
            tracepoints={"kmem_cache_alloc": 2, "kmem_cache_free": 1},
        ),
        "rename": CountedCall(
            functions={"vfs_rename": 2, "only_by_rename": 2}, tracepoints={"kmem_cache_alloc": 1, "mm_page_alloc": 2}
        ),
    }
)
ONE = "bpftrace: kprobe:vfs_read { @ = count(); }"


def finder(folder: Path, kernel: str = DEFAULT_KERNEL, **given: Any) -> CallFinder:
    context = BuildContext(Cache(folder / "cache"), offline=True)
    nothing = [CountedTable(calls={})] * len(call_table())
    counted = [TABLE, *nothing]  # no guest is asked
    return CallFinder(context, a_kernel(kernel), DEFAULT_CPU, NamedCalls(**given), None, counted)


def test_parts_of_the_table_are_counted_until_a_call_has_a_single_hit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_child = CountedCall(functions={"switches": 2})
    second = {"bind": CountedCall(functions={"only_by_rename": 1}), "fork": with_child, "switch": with_child}
    counted = [TABLE, CountedTable(calls=second)]
    asked: list[int] = []

    def count(*_: object) -> CountedTable:
        asked.append(len(asked))
        return counted[min(len(asked), len(counted)) - 1]

    monkeypatch.setattr("orchestrator.cost.call_finder.counted_part", count)
    calls = CallFinder(BuildContext(Cache(tmp_path), offline=True), a_kernel(DEFAULT_KERNEL), DEFAULT_CPU, NamedCalls())
    for function, call, parts in (("read_iter_zero", "read_zero", 1), ("only_by_rename", "bind", 2)):
        assert calls.line(at(function)).benchmark["file"] == str(call_table()[call].file)
        assert len(asked) == parts
    with pytest.raises(UsageError, match="no known call enters it"):
        calls.line(at("quotactl_block"))
    assert len(asked) > 2
    assert calls.line(at("switches")).benchmark["file"] == str(call_table()["switch"].file)


def at(function: str) -> Subject:
    return Subject(f"./own.bpf.c program=at_{function}", "own.bpf.c", AttachPlace(function), f"at_{function}")


def of_call(name: str) -> Subject:
    return Subject(f"./own.bpf.c program=of_{name}", "own.bpf.c", AttachPlace(system_call=name), f"of_{name}")


def hitting(event: str) -> Subject:
    return Subject("./own.bpf.c program=hits", "own.bpf.c", AttachPlace(event=event), "hits")


MODULE = Subject("./own.c", "own.c", AttachPlace())
MECHANISM = Subject("kprobe", "kprobe", AttachPlace("vfs_read"))


def made(line: CostLine) -> str:
    """The call, or the file with its name alone."""
    return str(line.benchmark.get("call") or Path(str(line.benchmark["file"])).name)


# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "point", "call", "hits"),
    [
        (at("vfs_read"), "vfs_read", "read_zero.c", 1),
        (at("vfs_r*d"), "vfs_read", "read_zero.c", 1),
        (at("only_by_rename"), "only_by_rename", "rename.c", 2),
        (of_call("getppid"), "__x64_sys_getppid", "getppid", 1),
        (of_call("close"), "__x64_sys_close", "open.c", 1),
        (of_call("rename"), "__x64_sys_rename", "rename.c", 2),
        (MECHANISM, "vfs_read", "read_zero.c", 1),
        (hitting("kmem:kmem_cache_alloc"), "__x64_sys_rename", "rename.c", 1),
        (hitting("kmem_cache_free"), "__x64_sys_openat", "open.c", 1),
        (hitting("kmem:mm_page_al*"), "__x64_sys_rename", "rename.c", 2),
    ],
)
def test_a_call_is_found_that_reaches_the_place(
    named: Subject, point: str, call: str, hits: int, tmp_path: Path
) -> None:
    line = finder(tmp_path).line(named)
    assert (line.subject, line.point, made(line), line.hits) == (named, point, call, hits)
    assert line.benchmark.get("hits", 1) == hits
    assert line.benchmark["calls"] == 1000
    assert line.benchmark["repeats"] == 2


@pytest.mark.parametrize(
    ("named", "given", "point", "call", "hits"),
    [
        (MODULE, {"call": "read"}, "__x64_sys_read", "read_zero.c", 1),
        (MODULE, {"call": "read_zero", "point": "vfs_read"}, "vfs_read", "read_zero.c", 1),
        (MODULE, {"call": "close"}, "__x64_sys_close", "open.c", 1),
        (MODULE, {"call": "rename"}, "__x64_sys_rename", "rename.c", 2),
        (MODULE, {"call": "rename", "point": "vfs_rename"}, "vfs_rename", "rename.c", 2),
        (MODULE, {"call": "getuid"}, "__x64_sys_getuid", "getuid", 1),
        (MODULE, {"call": "getppid", "point": "ext4:some_function"}, "ext4:some_function", "getppid", 1),
        (MODULE, {"point": "do_sys_openat2"}, "do_sys_openat2", "open.c", 1),
        (of_call("close"), {"call": "open"}, "__x64_sys_close", "open.c", 1),
        (of_call("getppid"), {"call": "read"}, "__x64_sys_read", "read_zero.c", 1),
        (MECHANISM, {"call": "getppid"}, "__x64_sys_getppid", "getppid", 1),
        (hitting("kmem:kmem_cache_al*"), {"call": "open"}, "__x64_sys_openat", "open.c", 2),
        (hitting("kmem:kmem_cache_al*"), {"call": "openat"}, "__x64_sys_openat", "open.c", 2),
        (at("vfs_read"), {"workload": Path("/w.c")}, "vfs_read", "w.c", 1),
        (at("vfs_read"), {"workload": Path("/w.c"), "hits": 3}, "vfs_read", "w.c", 3),
        (at("vfs_read"), {"workload": Path("/w.c"), "point": "ksys_read"}, "ksys_read", "w.c", 1),
        (of_call("openat"), {"workload": Path("/w.c")}, "__x64_sys_openat", "w.c", 1),
    ],
)
def test_the_user_may_name_calls_and_a_point(
    named: Subject, given: Mapping[str, Any], point: str, call: str, hits: int, tmp_path: Path
) -> None:
    line = finder(tmp_path, **given).line(named)
    assert (line.point, made(line), line.hits, line.benchmark.get("hits", 1)) == (point, call, hits, hits)


@pytest.mark.parametrize(
    ("named", "given", "where", "complaint"),
    [
        (at("vfs_raed"), {}, "vfs_raed", "no known call enters it"),
        (at("vfs_read"), {"call": "getppid"}, "vfs_read", "the call getppid does not enter it"),
        (of_call("acct"), {}, "of_acct", "no known call makes the system call acct"),
        (MODULE, {}, "own.c", "which call hits it is not known"),
        (MECHANISM, {"workload": Path("/w.c")}, "kprobe", "where the calls hit it is not known"),
        (MODULE, {"point": "nowhere"}, "nowhere", "no known call enters it"),
        (hitting("kmem:kmem_cache_aloc"), {}, "kmem:kmem_cache_aloc", "no known call hits it"),
        (hitting("kmem:*"), {}, "*", "open reaches 2 of this pattern: kmem_cache_alloc, kmem_cache_free"),
    ],
)
def test_what_no_call_reaches_is_refused_with_what_to_do(
    named: Subject, given: Mapping[str, Any], where: str, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        finder(tmp_path, **given).line(named)
    assert refused.value.where == where
    assert refused.value.hint
    if where == "vfs_raed":
        assert refused.value.hint.startswith("known calls enter vfs_read")
    if where == "kmem:kmem_cache_aloc":
        assert refused.value.hint.startswith("known calls hit kmem_cache_alloc")


@pytest.mark.parametrize(
    ("given", "where", "complaint"),
    [
        ({"call": "raed"}, "--call", "unknown call 'raed'; .*did you mean 'read'"),
        ({"call": ""}, "--call", "unknown call ''"),
        ({"point": "vfs_read+3x"}, "--point", r"found 'vfs_read\+3x'; expected a kernel function"),
        ({"point": ""}, "--point", "found ''; expected a kernel function"),
    ],
)
def test_calls_and_points_that_cannot_be_are_refused_at_once(
    given: Mapping[str, Any], where: str, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        NamedCalls(**given).check()
    assert refused.value.where == where


def test_a_pattern_is_no_point_of_a_workload(tmp_path: Path) -> None:
    for named in (at("vfs_rea*"), of_call("open*")):
        with pytest.raises(UsageError, match=r"\* stands for several functions") as refused:
            finder(tmp_path, workload=Path("/w.c")).line(named)
        assert "--point FUNCTION" in refused.value.hint


def test_probe_in_a_program_needs_its_source_and_a_point_there(tmp_path: Path) -> None:
    in_program = Subject("bpf-uprobe", "bpf-uprobe", AttachPlace(is_in_program=True))
    for given in ({}, {"call": "read"}, {"workload": Path("/w.c")}, {"workload": Path("/w.c"), "point": "vfs_read"}):
        with pytest.raises(UsageError, match="it is in the program that makes the calls") as refused:
            finder(tmp_path, **given).line(in_program)
        assert "--workload FILE.c --point program:FUNCTION" in refused.value.hint
    line = finder(tmp_path, workload=Path("/w.c"), point="program:at_push").line(in_program)
    assert (line.point, made(line)) == ("program:at_push", "w.c")


def test_a_system_call_that_no_known_call_makes_may_be_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no known call makes the system call acct") as refused:
        finder(tmp_path).line(of_call("acct"))
    assert "--call acct" in refused.value.hint
    assert made(finder(tmp_path, call="acct").line(of_call("acct"))) == "acct"
    with pytest.raises(UsageError) as refused:
        finder(tmp_path).line(of_call("no_such_call"))
    assert "--call" not in refused.value.hint


def test_misspelt_point_is_named_whatever_calls_are_given(tmp_path: Path) -> None:
    wrong = Subject("./own.bpf.c program=prog", "own.bpf.c", AttachPlace(wrong="libbpf has no section fentyr"), "prog")
    for given in ({}, {"call": "read"}, {"workload": Path("/w.c")}, {"point": "vfs_read"}):
        with pytest.raises(UsageError, match="libbpf has no section fentyr"):
            finder(tmp_path, **given).line(wrong)


def test_a_kernel_of_32_bits_has_its_own_functions_of_system_calls(tmp_path: Path) -> None:
    assert finder(tmp_path, "debian-686").line(of_call("getppid")).point == "__ia32_sys_getppid"


def test_a_version_of_linux_is_debians_kernel() -> None:
    names = {name: cost_kernel(name).name for name in ("6.1", "6.12", "debian-686", "lab-i386-up")}
    assert names == {
        "6.1": "debian-amd64",
        "6.12": "debian-amd64@6.12",
        "debian-686": "debian-686",
        "lab-i386-up": "lab-i386-up",
    }


# --- the experiment -------------------------------------------------------------------------------


def loaded(
    folder: Path, lines: Sequence[CostLine], kernels: Sequence[str], budgets: Mapping[str, object]
) -> Experiment:
    for name in ("own.bpf.c", "own.c"):
        (folder / name).touch()
    (folder / "cost.yaml").write_text(
        experiment_text(experiment_content(lines, "cost-own", kernels, DEFAULT_CPU, budgets))
    )
    return load_experiment(folder / "cost.yaml", kinds())


def test_subjects_at_one_point_with_one_call_share_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one_liner = Subject(ONE, "reads.bt", AttachPlace("vfs_read"))
    call_finder = finder(tmp_path)
    lines = [call_finder.line(subject) for subject in (at("vfs_read"), at("do_sys_openat2"), MECHANISM, one_liner)]
    written = yaml.safe_load(experiment_text(experiment_content(lines, "cost-own", ["debian-amd64"], DEFAULT_CPU, {})))
    assert "budgets" not in written
    assert {name: table["probes"] for name, table in written["tables"].items()} == {
        "vfs-read": ["none", "./own.bpf.c program=at_vfs_read", "kprobe"],
        "do-sys-openat2": ["none", "./own.bpf.c program=at_do_sys_openat2"],
        "vfs-read-bpftrace": ["none", ONE],
    }
    assert written["tables"]["vfs-read-bpftrace"]["image"] == "debian-amd64-bpftrace"
    kernels = ("debian-amd64", "debian-amd64@6.12")
    newer, *other_requests = lines  # the first one is reached on the newer kernel alone
    placed = [replace(newer, kernels=kernels[1:]), *(replace(request, kernels=kernels) for request in other_requests)]
    cells = plan(loaded(tmp_path, placed, kernels, {})).cells
    ids = [line.cells for line in planned_lines(placed, plan(loaded(tmp_path, placed, kernels, {})))]
    assert [list(of_line) for of_line in ids] == [list(line.kernels) for line in placed]
    assert ids[2]["debian-amd64"].split("/")[:3] == ["vfs-read-2", "xeon-e5410+512M", "debian-amd64"]
    assert len({cell for of_line in ids for cell in of_line.values()}) == 7
    assert [cell.probe for cell in cells if cell.kernel == "debian-amd64"].count("none") == 3
    assert [cell.probe for cell in cells if cell.kernel == "debian-amd64@6.12"] == [
        "none",
        "own.bpf.c.program-at_vfs_read",
        "none",
        "own.bpf.c.program-at_do_sys_openat2",
        "none",
        "kprobe",
        "none",
        next(cell.probe for cell in cells if cell.probe.startswith("bpftrace.")),
    ]
    assert all(cell.profile == ("symbols",) for cell in cells)


def test_a_module_needs_no_point_for_a_workload_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "w.c").write_text("void workload(void) {}")
    module = Subject("./own.c", "own.c", AttachPlace())
    line = finder(tmp_path, workload=tmp_path / "w.c").line(module)
    assert (line.point, line.is_anywhere) == ("vfs_read", True)
    assert not finder(tmp_path, workload=tmp_path / "w.c", point="vfs_read").line(module).is_anywhere
    cells = plan(loaded(tmp_path, [line], ["debian-amd64"], {})).cells
    assert {cell.profile for cell in cells} == {("symbols", "stacks")}


def test_a_line_that_prints_has_the_newer_bpftrace(tmp_path: Path) -> None:
    printing = Subject('bpftrace: kprobe:vfs_read { printf("a"); }', "reads.bt", AttachPlace("vfs_read"))
    lines = [finder(tmp_path).line(subject) for subject in (Subject(ONE, "a.bt", AttachPlace("vfs_read")), printing)]
    written = yaml.safe_load(experiment_text(experiment_content(lines, "cost-own", ["debian-amd64"], DEFAULT_CPU, {})))
    assert {name: table["image"] for name, table in written["tables"].items()} == {
        "vfs-read-bpftrace": "debian-amd64-bpftrace",
        "vfs-read-bpftrace-13": "debian-amd64-bpftrace-13",
    }


def test_one_table_is_written_without_a_name(tmp_path: Path) -> None:
    line = finder(tmp_path, call="read").line(MODULE)
    written = yaml.safe_load(experiment_text(experiment_content([line], "cost-own", ["debian-amd64"], DEFAULT_CPU, {})))
    assert list(written) == ["name", "kernels", "machines", "profile", "points", "probes", "benchmark"]


def test_tables_with_one_point_and_different_calls_have_different_names(tmp_path: Path) -> None:
    lines = [
        finder(tmp_path, call=call, point="f:g").line(subject)
        for call, subject in (("getppid", MODULE), ("read", MECHANISM))
    ]
    written = yaml.safe_load(experiment_text(experiment_content(lines, "cost-own", ["debian-amd64"], DEFAULT_CPU, {})))
    assert list(written["tables"]) == ["f-g-1", "f-g-2"]


@pytest.mark.parametrize(
    ("at_most", "limits"),
    [
        ("300", ("300", "600")),
        ("0", ("0", "0")),
        ("12.3456", ("12.3456", "24.6912")),
        ("0.0004", ("0.0004", "0.0008")),
        ("12345678", ("12345678", "24691356")),
    ],
)
def test_what_a_hit_may_cost_is_allowed_as_often_as_a_call_hits(
    at_most: str, limits: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.bpf.c").touch()
    lines = [finder(tmp_path).line(at(name)) for name in ("vfs_read", "only_by_rename")]
    budgets = allowed(lines, budget_of_hit(at_most))
    entries = loaded(tmp_path, lines, ["debian-amd64"], budgets).budgets.plain()
    names = [f"probe=own.bpf.c.program-at_{name},kernel=debian-amd64" for name in ("vfs_read", "only_by_rename")]
    assert entries == {name: {"overhead": f"<={limit}"} for name, limit in zip(names, limits, strict=True)}


@pytest.mark.parametrize("text", ["", "-1", "1e3", "inf", "nan", "300ns", "1/3", "5%", "1.", ".5"])
def test_a_hit_without_a_valid_budget_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected \+N or|to allow an increase of"):
        budget_of_hit(text)


def test_a_limit_of_a_hit_is_bounded() -> None:
    with pytest.raises(UsageError, match="the limit of a hit is below 10"):
        budget_of_hit("1" * 10)


@pytest.mark.parametrize(
    ("at_most", "budget"),
    [
        ("<=300", "<=600"),
        ("+5", "+10"),
        ("+2.5%", "+2.5%"),
        ("422 +2%", "844 +2%"),
        ("422 +3", "844 +6"),
        (7.5, "<=15"),
    ],
)
def test_a_hits_budget_has_the_form_of_any_budget(
    at_most: str | float, budget: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.bpf.c").touch()
    line = finder(tmp_path).line(at("only_by_rename"))
    assert list(allowed([line], budget_of_hit(at_most)).values()) == [{"overhead": budget}]
