# SPDX-License-Identifier: GPL-2.0-only
"""Which calls measure the programs of a file that are attached at once, and what cannot be?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from host_toolchain import a_kernel

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.catalog.probes import probe_kind
from orchestrator.cost.call_finder import CallFinder, NamedCalls
from orchestrator.cost.call_table import call_table
from orchestrator.cost.cost_machine import DEFAULT_CPU, DEFAULT_KERNEL
from orchestrator.cost.counted_table import CountedCall, CountedTable
from orchestrator.cost.line import CostLine
from orchestrator.cost.reference import partner
from orchestrator.cost.request import CostRequest
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.errors import ConfigError, UsageError

TABLE = CountedTable(
    calls={
        "read_zero": CountedCall(functions={"vfs_read": 1}),
        "open": CountedCall(functions={"do_sys_openat2": 1, "do_filp_open": 2}),
    }
)


def finder(folder: Path, **given: Any) -> CallFinder:
    context = BuildContext(Cache(folder / "cache"), offline=True)
    calls = CallFinder(context, a_kernel(DEFAULT_KERNEL), DEFAULT_CPU, NamedCalls(**given))
    calls._counted += [TABLE, *[CountedTable(calls={})] * len(call_table())]  # no guest is asked
    return calls


def together(*functions: str) -> Subject:
    programs = tuple(
        Subject(f"./own.bpf.c program=at_{function}", "own.bpf.c", AttachPlace(function), f"at_{function}")
        for function in functions
    )
    return Subject("./own.bpf.c together=all", "own.bpf.c", AttachPlace(), programs=programs)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.bpf.c").touch()
    return tmp_path


def called(lines: list[CostLine]) -> list[tuple[str | None, str, int]]:
    return [(line.point, Path(str(line.benchmark.get("file"))).name, line.hits) for line in lines]


def test_each_call_that_reaches_a_program_is_a_line_the_one_of_most_first(here: Path) -> None:
    lines = finder(here).lines(together("vfs_read", "do_sys_openat2", "do_filp_open"))
    assert called([*lines]) == [("__x64_sys_openat", "open.c", 1), ("__x64_sys_read", "read_zero.c", 1)]
    assert {line.subject.title for line in lines} == {"own.bpf.c together"}


def test_a_program_that_no_call_reaches_is_told(here: Path) -> None:
    calls = finder(here)
    assert len(calls.lines(together("vfs_read", "quotactl_block"))) == 1
    (unreached,) = calls.unreached
    assert unreached.subject.name == "at_quotactl_block"
    with pytest.raises(UsageError, match="no known call enters it"):
        finder(here).lines(together("quotactl_block"))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"call": "read"}, ("__x64_sys_read", "read_zero.c", 1)),
        ({"call": "getuid"}, ("__x64_sys_getuid", "None", 1)),
        ({"call": "open", "point": "do_filp_open"}, ("do_filp_open", "open.c", 1)),
        ({"workload": Path("/w.c")}, ("vfs_read", "w.c", 1)),
        ({"workload": Path("/w.c"), "point": "ksys_read"}, ("ksys_read", "w.c", 1)),
    ],
)
def test_the_user_may_name_the_calls(given: dict[str, Any], line: tuple[str, str, int], here: Path) -> None:
    assert called([*finder(here, **given).lines(together("vfs_read", "quotactl_block"))]) == [line]


def test_a_command_is_no_call(here: Path) -> None:
    with pytest.raises(UsageError, match="counted in calls, and not in runs of a command"):
        finder(here, run="ls").lines(together("vfs_read"))


def test_programs_whose_places_the_kernel_lacks_are_all_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "orchestrator.cost.call_finder.lacking",
        lambda _, place: None if place.function == "vfs_read" else f"this kernel has no function {place.function}",
    )
    with pytest.raises(UsageError, match=r"at_gone: this kernel has no function gone; at_lost: .* lost") as refused:
        finder(here, call="read").lines(together("gone", "vfs_read", "lost"))
    assert "'own.bpf.c together=at_vfs_read'" in refused.value.hint


def test_a_line_is_compared_with_that_of_the_same_call(here: Path) -> None:
    lines = finder(here).lines(together("vfs_read", "do_sys_openat2"))
    before = [replace(line, subject=replace(line.subject, source="old.bpf.c")) for line in reversed(lines)]
    assert [partner(line, lines, before) for line in lines] == [*reversed(before)]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("own.bpf.c", "own.bpf.c together=all"),
        ("own.bpf.c together=a,b", "own.bpf.c together=a,b"),
        ("own.bpf.c program=a", "own.bpf.c together=a"),
        ("own.bpf.c rodata=pid=1", "own.bpf.c together=all rodata=pid=1"),
        ("bpftrace: kprobe:vfs_read { @ = count(); }", "bpftrace: kprobe:vfs_read { @ = count(); }"),
    ],
)
def test_all_programs_of_files_are_together(text: str, source: str, here: Path) -> None:
    request = CostRequest([text], together=True)
    request.check()
    assert request.sources() == [source]


@pytest.mark.parametrize("text", ["kprobe", "./own.c", "./module/"])
def test_what_has_no_programs_cannot_be_together(text: str, here: Path) -> None:
    with pytest.raises(UsageError, match=rf"^--together: {text} is no file of BPF programs"):
        CostRequest(["own.bpf.c", text], together=True).check()


def test_the_programs_are_a_part_of_the_rows_name(here: Path) -> None:
    every, some = (probe_kind(f"./own.bpf.c together={names}") for names in ("all", "b,a,b"))
    assert (every.name, every.is_together, every.named_programs) == ("own.bpf.c.together-all", True, [])
    assert (some.is_together, some.named_programs) == (True, ["b", "a"])
    assert some.name.startswith("own.bpf.c.together-b_a_b.")
    alone = probe_kind("./own.bpf.c program=a")
    assert (alone.is_together, alone.named_programs) == (False, ["a"])
    with pytest.raises(ConfigError, match="program=a is measured alone, and together attaches several"):
        probe_kind("./own.bpf.c program=a together=all")
    for wrong in ("", "a,", "a b", "../x"):
        with pytest.raises(ConfigError, match=r"found .*; (a program's name|a parameter)"):
            probe_kind(f"./own.bpf.c together='{wrong}'")
