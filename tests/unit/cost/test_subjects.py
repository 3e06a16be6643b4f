# SPDX-License-Identifier: GPL-2.0-only
"""Is what the user names taken apart into programs, and is each known to be where libbpf or bpftrace attaches it?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from host_toolchain import a_kernel
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.artifacts.bpf_objects import BpfObject
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.sources import UserSource
from orchestrator.catalog.probes import one_liner
from orchestrator.catalog.tools import is_script, script_text
from orchestrator.cost.request import CostRequest
from orchestrator.cost.subjects import AttachPlace, Subject, place_of_one_liner, place_of_section, subjects
from orchestrator.errors import BuildError, ConfigError, LabError, UsageError


def named(folder: Path, text: str) -> list[Subject]:
    return list(subjects(BuildContext(Cache(folder / "cache"), offline=True), a_kernel("debian-amd64"), text))


def programs(file: Path, **sections: str) -> BpfObject:
    return BpfObject(file, file, file, UserSource(file.name, str(file), {}), sections)


# --- places ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ("fentry/do_sys_openat2", AttachPlace("do_sys_openat2")),
        ("fentry.s/__x64_sys_getppid", AttachPlace("__x64_sys_getppid")),
        ("?fexit/vfs_read", AttachPlace("vfs_read")),
        ("kprobe/vfs_read+0x10", AttachPlace("vfs_read", offset=16)),
        ("kprobe/vfs_read+0xzz", AttachPlace("vfs_read")),
        ("kprobe.multi/vfs_rea*", AttachPlace("vfs_rea*")),
        ("kretprobe/vfs_read", AttachPlace("vfs_read")),
        ("ksyscall/openat", AttachPlace(system_call="openat")),
        ("kretsyscall/openat", AttachPlace(system_call="openat")),
        ("lsm/file_open", AttachPlace("bpf_lsm_file_open")),
        ("lsm.s/file_open", AttachPlace("bpf_lsm_file_open")),
        ("tp/syscalls/sys_enter_openat", AttachPlace(system_call="openat")),
        ("tracepoint/syscalls/sys_exit_read", AttachPlace(system_call="read")),
        ("tracepoint/sched/sched_switch", AttachPlace(event="sched:sched_switch")),
        ("tp.s/sched/sched_switch", AttachPlace(event="sched:sched_switch")),
        ("uprobe", AttachPlace(is_in_program=True)),
        ("uprobe//bin/sh:main", AttachPlace(is_in_program=True, file="/bin/sh", symbol="main")),
        ("?uretprobe/libc.so.6:malloc", AttachPlace(is_in_program=True, file="libc.so.6", symbol="malloc")),
        ("uprobe.s/libc.so.6:malloc+4", AttachPlace(is_in_program=True, file="libc.so.6", symbol="malloc+4")),
        ("usdt//bin/python3:python:line", AttachPlace(is_in_program=True, file="/bin/python3", symbol="python:line")),
        ("raw_tp/sys_enter", AttachPlace(system_call="getppid", event="sys_enter")),
        ("raw_tracepoint/sched_switch", AttachPlace(event="sched_switch")),
        ("tp_btf/sched_switch", AttachPlace(event="sched_switch")),
        ("kprobe", None),
        ("kprobe/", None),
        ("xdp", None),
        ("fentry", None),
        ("nonsense/vfs_read", AttachPlace(wrong="libbpf has no section nonsense/vfs_read")),
        ("fentyr/vfs_read", AttachPlace(wrong="libbpf has no section fentyr/vfs_read; did you mean fentry/vfs_read?")),
        (
            "tp/sched_switch",
            AttachPlace(wrong="tp/sched_switch names no event: it is tp/SYSTEM/NAME, such as tp/sched/sched_switch"),
        ),
    ],
)
def test_a_section_says_where_libbpf_attaches_its_program(section: str, place: AttachPlace | None) -> None:
    assert place_of_section(section) == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("kprobe:vfs_read { @ = count(); }", AttachPlace("vfs_read")),
        ("k:vfs_rea* { @ = count(); }", AttachPlace("vfs_rea*")),
        ("kretprobe:vfs_read,kprobe:vfs_write { @ = count(); }", AttachPlace("vfs_read")),
        ("fentry:vmlinux:vfs_read { @ = count(); }", AttachPlace("vfs_read")),
        ("BEGIN { @x = 1; } kfunc:vfs_open { @ = count(); }", AttachPlace("vfs_open")),
        ("tracepoint:syscalls:sys_enter_openat { @ = count(); }", AttachPlace(system_call="openat")),
        ("t:raw_syscalls:sys_exit { @ = count(); }", AttachPlace(system_call="getppid", event="raw_syscalls:sys_exit")),
        ("rawtracepoint:sys_enter { @ = count(); }", AttachPlace(system_call="getppid", event="sys_enter")),
        ("tracepoint:sched:sched_switch { @ = count(); }", AttachPlace(event="sched:sched_switch")),
        ("kprobe:vfs_read+5 { @ = count(); }", AttachPlace("vfs_read", offset=5)),
        ("kporbe:vfs_read { @ = count(); }", AttachPlace(wrong="bpftrace has no probe kporbe; did you mean kprobe?")),
        ("k*:vfs_read { @ = count(); }", AttachPlace()),
        ("bench:mine { @ = count(); }", AttachPlace()),
        (
            "t:sched_switch { @ = count(); }",
            AttachPlace(
                wrong="t:sched_switch names no event: it is t:SYSTEM:NAME, such as tracepoint:sched:sched_switch"
            ),
        ),
        ("uprobe:/bin/sh:main { @ = count(); }", AttachPlace(is_in_program=True, file="/bin/sh", symbol="main")),
        ("usdt:/bin/p:python:line { }", AttachPlace(is_in_program=True, file="/bin/p", symbol="python:line")),
        ("BEGIN { }", AttachPlace()),
        ("", AttachPlace()),
    ],
)
def test_the_first_probe_of_a_one_liner_says_where_it_is(text: str, place: AttachPlace) -> None:
    assert place_of_one_liner(text) == place


@given(st.text(max_size=60))
@example("tracepoint/")
@example("kprobe.multi/" + "*" * 40)
def test_any_text_is_a_section_or_none(text: str) -> None:
    assert place_of_section(text) is None or isinstance(place_of_section(text), AttachPlace)
    assert isinstance(place_of_one_liner(text), AttachPlace)


# --- scripts and tools ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b" \n", "it is empty"),
        (b"\xff\xfe", "cannot be read: not UTF-8 text"),
        (b"a" * ((1 << 20) + 1), "it has more than 1 MiB"),
        (b"interval:s:1 { exit(); }", "the clock hits it"),
    ],
)
def test_a_wrong_script_is_refused_by_its_name(content: bytes, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.bt"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=complaint) as refused:
        named(tmp_path, str(file))
    assert refused.value.where == str(file)


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ("software:alignment-faults:1", "nothing hits it on x86, whose kernels mend no alignment"),
        ("software:cpu-clock:1", "the clock hits it"),
        ("hardware:cache-misses:1", "a counter of the CPU hits it"),
        ("watchpoint:0xffffffff81000000:8:x", "whatever accesses its memory hits it"),
        ("w:0x1000:8:w", "whatever accesses its memory hits it"),
        ("profile:hz:99", "the clock hits it"),
    ],
)
def test_an_event_that_no_call_hits_is_refused_alone_and_taken_beside_others(probe: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        one_liner(f"{probe} {{ @ = count(); }}")
    assert f"found '{':'.join(probe.split(':')[:2])}'; {why}" in refused.value.what
    line = f"BEGIN {{ }} kprobe:vfs_read {{ @ = count(); }} {probe} {{ print(@); }}"
    assert one_liner(line) == line


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        ("kprobe:vfs_read { @ = count(); }", False),
        ("BEGIN { } kprobe:vfs_read { @ = 1; } kretprobe:vfs_read { @ = 2; } END { }", False),
        ("kprobe:vfs_* { @ = count(); }", True),
        ("kprobe:vfs_read { @ = 1; } kprobe:vfs_write { @ = 2; }", True),
        ("kprobe:vfs_read { @ = 1; } interval:s:1 { print(@); }", True),
        ("software:faults:1 { @ = count(); }", True),
    ],
)
def test_a_line_with_several_places_is_measured_whole(text: str, is_whole: bool, tmp_path: Path) -> None:
    (subject,) = named(tmp_path, f"bpftrace: {text}")
    assert (subject.command is not None) == is_whole


@pytest.mark.parametrize(
    ("text", "program", "row"),
    [
        ("tool:  opensnoop   -x", "opensnoop", "tool: opensnoop -x"),
        ("tool: /usr/sbin/opensnoop-bpfcc -n 'a b'", "opensnoop-bpfcc", "tool: /usr/sbin/opensnoop-bpfcc -n 'a b'"),
        ("tool: ./mine.sh --pid 1", "mine.sh", "tool: HERE/mine.sh --pid 1"),
        ("trace.bt 'a b' 7", "bpftrace", "HERE/trace.bt 'a b' 7"),
    ],
)
def test_a_command_and_a_script_are_subjects_as_they_are(
    text: str, program: str, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.sh").write_text("#!/bin/sh\n")
    (tmp_path / "trace.bt").write_text("#include <linux/fs.h>\nkprobe:vfs_read { @[str($1)] = $2; }\n")
    (subject,) = named(tmp_path, text)
    assert subject.row == row.replace("HERE", str(tmp_path))
    assert subject.command is not None
    assert subject.command.program == program
    assert not subject.is_module


@pytest.mark.parametrize(
    ("text", "is_of_bpftrace"),
    [
        ("./my.bpf.c map=seen=./data.bt", False),
        ("./mod.c 'name=x.bt'", False),
        ("./folder name=x.bt", False),
        ("my scripts/a=b.bt", True),
        ("./x.bt a=b.bt", True),
        ("./x.bt size=1 ./y.bt", True),
    ],
)
def test_a_file_in_a_parameter_makes_no_script(text: str, is_of_bpftrace: bool) -> None:
    assert is_script(text) == is_of_bpftrace


def test_a_pipe_is_no_script(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.bt")
    with pytest.raises(ConfigError, match="not a file"):
        script_text(tmp_path / "x.bt")


def test_different_commands_have_different_names_in_results(tmp_path: Path) -> None:
    texts = ["tool: opensnoop -x", "tool: opensnoop -p 1", "tool: opensnoop", "bpftrace: kprobe:vfs_read { @ = 1; }"]
    for name in ("a.bt", "b.bt"):
        (tmp_path / name).write_text("kprobe:vfs_read { @ = 1; }")
    texts += [str(tmp_path / "a.bt"), f"{tmp_path / 'a.bt'} 7", f"{tmp_path / 'a.bt'} 8", str(tmp_path / "b.bt")]
    assert len({subject.probe for text in texts for subject in named(tmp_path, text)}) == len(texts)


# --- subjects -------------------------------------------------------------------------------------


def test_each_program_of_a_file_is_a_subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.bpf.c"
    file.touch()
    made = programs(file, on_open="fentry/do_sys_openat2", part="kprobe", on_read="kprobe/vfs_read", other="tp/a/b")
    monkeypatch.setattr("orchestrator.cost.subjects.bpf_object", lambda *_: made)
    monkeypatch.chdir(tmp_path)
    found = named(tmp_path, "own.bpf.c")
    assert [(one.title, one.source, one.mechanism, one.place) for one in found] == [
        ("on_open", "own.bpf.c", "bpf-fentry", AttachPlace("do_sys_openat2")),
        ("on_read", "own.bpf.c", "bpf-kprobe", AttachPlace("vfs_read")),
        ("other", "own.bpf.c", "bpf-tracepoint", AttachPlace(event="a:b")),
    ]
    assert [one.row for one in found] == [f"{file} program={one.name}" for one in found]
    (subject,) = named(tmp_path, "own.bpf.c program=on_read")
    assert subject == found[1]
    with pytest.raises(BuildError, match=r"unknown program 'on_raed'.*did you mean 'on_read'"):
        named(tmp_path, "own.bpf.c program=on_raed")


def test_a_file_whose_programs_are_attached_nowhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.bpf.o"
    file.touch()
    monkeypatch.setattr("orchestrator.cost.subjects.bpf_object", lambda *_: programs(file, part="xdp"))
    with pytest.raises(UsageError, match="no program of it is attached") as refused:
        named(tmp_path, str(file))
    assert refused.value.where == str(file)
    packets = (
        "part: a program of section xdp runs on packets of an interface; the lab measures what functions and events"
    )
    assert list(refused.value.detail) == [f"{packets} hit"]
    assert not refused.value.hint
    monkeypatch.setattr("orchestrator.cost.subjects.bpf_object", lambda *_: programs(file, part="xdp", at="kprobe"))
    with pytest.raises(UsageError) as refused:
        named(tmp_path, str(file))
    assert str(refused.value.hint).startswith("say where each is attached")


def test_scripts_lines_modules_and_mechanisms_are_subjects(tmp_path: Path) -> None:
    script, module = tmp_path / "reads.bt", tmp_path / "own.c"
    script.write_text("kprobe:vfs_read { @ = count(); }\n")
    module.touch()
    line = "bpftrace: kprobe:vfs_read { @ = count(); }"
    for text, row, place in [
        (str(script), str(script), AttachPlace("vfs_read")),
        ("bpftrace:   kprobe:vfs_read { @ = count(); } ", line, AttachPlace("vfs_read")),
        (f"{module} size=4", f"{module} size=4", AttachPlace()),
        ("kprobe", "kprobe", AttachPlace("vfs_read")),
        ("bpf-tracepoint", "bpf-tracepoint", AttachPlace(system_call="getppid", event="raw_syscalls:sys_enter")),
    ]:
        (subject,) = named(tmp_path, text)
        assert (subject.row, subject.source, subject.title, subject.place) == (row, text, text, place)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kprob", "unknown probe or file 'kprob'.*did you mean 'kprobe'"),
        ("none", "'none' has no cost"),
        ("missing.c", "this file does not exist"),
        ("missing.bt", "no such file or directory"),
        ("", "unknown probe or file"),
        ("x.bpf.c size=1", "BPF programs take program=NAME"),
        ("x.bpf.c program=a-b", "a program's name is that of a function of C"),
        ("bpftrace:", "a one-liner has a probe and an action"),
        ("tool:", "a tool is a command"),
        ("tool: a 'b", "quotes are as in a shell"),
        ("tool: ./gone -x", "this file does not exist"),
        ("tool: ./x.bpf.c", "expected a program for x86"),
    ],
)
def test_wrong_subjects_are_refused(text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.bpf.c").touch()
    with pytest.raises(UsageError, match=complaint):
        named(tmp_path, text)


@given(
    st.text(max_size=40) | st.sampled_from(["~", "~nobody-at-all/x.c", "\0.bt", "a\0b.c", "x" * 300 + ".bt", ".bpf.c"])
)
def test_any_text_is_a_subject_or_refused_in_a_sentence(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    try:
        found = named(tmp_path_factory.getbasetemp(), text)
    except LabError:
        return
    assert found


def test_a_file_that_a_command_names_last_is_no_subject() -> None:
    texts = ["tool: ./load my.bpf.c", "x.bt y.o", "x.bpf.c"]
    assert CostRequest(texts, ["7.3"], together=True).sources() == [*texts[:2], "x.bpf.c together=all"]
