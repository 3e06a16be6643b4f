# SPDX-License-Identifier: GPL-2.0-only
"""Is a kind of probe made by the kernel where it can, by the module where it must, and refused where neither can?"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from host_toolchain import a_kernel
from loaded_tables import calls_experiment

from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls import preparation
from orchestrator.benchmarks.calls.call_cells import CallCell
from orchestrator.benchmarks.calls.preparation import ProbeSetup, unsupported_reason
from orchestrator.catalog.probes import Handler
from orchestrator.experiment.plan import plan
from orchestrator.probes.point import Point

EVERYTHING = dict.fromkeys(
    (
        "CONFIG_OPTPROBES",
        "CONFIG_KALLSYMS_ALL",
        "CONFIG_TRACEPOINTS",
        "CONFIG_JUMP_LABEL",
        "CONFIG_DYNAMIC_FTRACE",
        "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS",
        "CONFIG_FPROBE",
        "CONFIG_KPROBES_ON_FTRACE",
        "CONFIG_RETHOOK",
        "CONFIG_LAB_SYSCALL_HOOK",
    ),
    "y",
)
LAB = {key: value for key, value in EVERYTHING.items() if "FTRACE" not in key and "FPROBE" not in key}
PREEMPTIBLE = {**LAB, "CONFIG_PREEMPTION": "y"}
TRACED = {"CONFIG_KPROBE_EVENTS": "y", "CONFIG_HIST_TRIGGERS": "y"}
DEBIAN = {**EVERYTHING, "CONFIG_PREEMPTION": "y", "CONFIG_SMP": "y"}


def a_cell(probe: str, entry: str = "auto") -> CallCell:
    described = calls_experiment(
        machines=[{"cpu": "athlon64"}], probes=[probe], benchmark={"name": "gtodbench", "entry": entry}
    )
    return plan(described).cells[-1]


def set_up(kernel: Kernel, cell: CallCell) -> ProbeSetup:
    return preparation.set_up(kernel, cell)


@pytest.mark.parametrize(
    ("kernel", "config", "probe", "template", "switches"),
    [
        ("lab-i386-up", LAB, "kprobe", "kprobe", {"single_step"}),
        ("lab-i386-up", LAB, "kprobe-plain", "kprobe", {"single_step"}),
        ("lab-i386-up", LAB, "kprobe-boosted", "kprobe", set()),
        ("lab-i386-up", LAB, "kprobe-optimized", "kprobe", set()),
        ("lab-i386-up", LAB, "kprobe-detour", "kprobe", {"hold_optimiser"}),
        ("lab-i386-up", LAB, "kprobe-fallback", "kprobe", {"single_step"}),
        ("lab-i386-up", LAB, "kretprobe-boosted", "kretprobe", set()),
        ("lab-i386-up", LAB, "kretprobe-optimized", "kretprobe", set()),
        ("lab-i386-smp-preempt", PREEMPTIBLE, "kprobe", "kprobe", set()),
        ("lab-i386-smp-preempt", PREEMPTIBLE, "kprobe-plain", "kprobe", set()),
        ("lab-i386-smp-preempt", PREEMPTIBLE, "kprobe-boosted", "kprobe", {"own_booster"}),
        ("lab-i386-smp-preempt", PREEMPTIBLE, "kprobe-fallback", "kprobe", {"single_step"}),
        ("lab-i386-smp-preempt", PREEMPTIBLE, "kretprobe", "kretprobe", set()),
        ("lab-i386-smp-preempt", PREEMPTIBLE, "kretprobe-boosted", "kretprobe_rethook", {"own_booster"}),
        ("lab-i386-up-ftrace", EVERYTHING, "kretprobe", "kretprobe_rethook", {"single_step"}),
        ("lab-i386-up-ftrace", EVERYTHING, "kretprobe-ftrace", "kretprobe", set()),
        ("debian-686", DEBIAN, "kprobe-boosted", "kprobe", {"own_booster"}),
        ("debian-686", DEBIAN, "kretprobe", "kretprobe_rethook", set()),
        ("debian-686", DEBIAN, "kretprobe-optimized", "kretprobe_rethook", set()),
        ("lab-i386-up-bpf", EVERYTHING, "fprobe", "fprobe", set()),
        ("lab-i386-up-bpf", EVERYTHING, "fprobe-exit", "fprobe_exit", set()),
        ("lab-x86_64-smp-bpf", {**EVERYTHING, "CONFIG_X86_64": "y"}, "ftrace-direct", "ftrace_direct", set()),
        ("debian-686", DEBIAN, "jprobe", "jprobe", set()),
        ("debian-686", DEBIAN, "none", None, set()),
    ],
)
def test_how_a_kind_is_made(
    kernel: str, config: dict[str, str], probe: str, template: str | None, switches: set[str]
) -> None:
    made = a_kernel(kernel, config)
    cell = a_cell(probe)
    assert unsupported_reason(made, cell) is None
    setups = set_up(made, cell)
    assert setups.template == template
    assert set(setups.values) - {"number"} == switches
    assert setups.parameters == ({} if template is None else {"symbol": setups.symbol, "offset": setups.offset})
    is_on_the_tracer = "ftrace" in probe or probe.startswith("fprobe")
    assert setups.offset == (0 if is_on_the_tracer else made.spec.entry_offset)
    # A note reports each mechanism that a module provides in the kernel's place.
    # What a plain kprobe is rid of is known, and noted, when it is registered.
    assert bool([note for note in setups.notes if "lock prefixes" not in note]) == (
        (bool(switches) and probe != "kprobe-plain") or template == "kretprobe_rethook"
    )


@pytest.mark.parametrize("probe", ["djprobe", "jprobe", "kprobe", "kretprobe-boosted"])
def test_points_share_a_module(probe: str) -> None:
    made = a_kernel("lab-i386-up", LAB)
    described = calls_experiment(
        machines=[{"cpu": "athlon64"}],
        probes=[probe],
        points=["ktime_get_real_ts64", "vfs_read+0x3"],
        benchmark={"name": "gtodbench"},
    )
    first, second = (set_up(made, cell) for cell in plan(described).cells if cell.probe == probe)
    assert (first.template, first.values) == (second.template, second.values)
    assert (first.parameters["symbol"], second.parameters) == (
        "ktime_get_real_ts64",
        {"symbol": "vfs_read", "offset": 3},
    )


def test_the_module_at_every_system_call_has_no_point() -> None:
    setup = set_up(a_kernel("lab-i386-up", LAB), a_cell("tracepoint"))
    assert (setup.parameters, setup.values["number"]) == ({"tracepoint": "sys_enter"}, 78)


@pytest.mark.parametrize(
    ("config", "probe", "reason"),
    [
        (LAB, "kprobe-ftrace", "this kernel was built without CONFIG_KPROBES_ON_FTRACE"),
        (LAB, "kretprobe-ftrace", "this kernel was built without CONFIG_KPROBES_ON_FTRACE"),
        (LAB, "ftrace", "this kernel was built without CONFIG_DYNAMIC_FTRACE"),
        (LAB, "fprobe", "this kernel was built without CONFIG_FPROBE"),
        (LAB, "fprobe-exit", "this kernel was built without CONFIG_FPROBE"),
        (LAB, "ftrace-direct", "this kernel was built without CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS"),
        (EVERYTHING, "ftrace-direct", "this kernel was built without CONFIG_X86_64"),
        ({}, "hook", "this kernel was built without CONFIG_LAB_SYSCALL_HOOK"),
        ({}, "tracepoint", "this kernel was built without CONFIG_TRACEPOINTS"),
        ({}, "kprobe-optimized", "this kernel was built without CONFIG_OPTPROBES"),
        ({"CONFIG_OPTPROBES": "y"}, "kprobe-detour", "this kernel was built without CONFIG_KALLSYMS_ALL"),
        (LAB, "kprobe-event", "this kernel was built without CONFIG_KPROBE_EVENTS"),
        ({**LAB, "CONFIG_KPROBE_EVENTS": "y"}, "kretprobe-event", "this kernel was built without CONFIG_HIST_TRIGGERS"),
        (TRACED, "kprobe-event-optimized", "this kernel was built without CONFIG_OPTPROBES"),
        (LAB, "bpf-kprobe", "this kernel was built without CONFIG_BPF_EVENTS"),
        ({"CONFIG_BPF_EVENTS": "y"}, "bpf-fentry", "this kernel was built without CONFIG_BPF_JIT"),
        ({"CONFIG_BPF_EVENTS": "y"}, "bpf-fentry-interpreted", "this kernel was built without CONFIG_DEBUG_INFO_BTF"),
        ({"CONFIG_BPF_EVENTS": "y"}, "bpf-kprobe-interpreted", "this kernel was built without CONFIG_KPROBE_EVENTS"),
        (
            LAB,
            "kretprobe",
            "so this kernel always boosts a kretprobe; take a preemptible one, such as lab-i386-smp-pree",
        ),
    ],
)
def test_what_a_kernel_cannot_have(config: dict[str, str], probe: str, reason: str) -> None:
    assert reason in (unsupported_reason(a_kernel("lab-i386-up", config), a_cell(probe)) or "")


UPROBED = {**LAB, "CONFIG_UPROBE_EVENTS": "y"}
NO_UPROBES = "this kernel was built without CONFIG_UPROBE_EVENTS; debian-686 and lab-i386-up-bpf have it"
NO_HISTOGRAMS = "this kernel was built without CONFIG_HIST_TRIGGERS; debian-686 and lab-i386-up-bpf have it"
IN_THE_KERNEL = "it probes the kernel, and the point is in a program: take a uprobe"
AT_THE_ENTRY = "a return is probed at a function's entry: name the function, without an offset"
IN_THE_PROGRAM = (
    "it is in the program that makes the calls: name the function, with points: ['program:FUNCTION'] or, in a shared "
    "library, ['libc.so.6:FUNCTION']"
)


@pytest.mark.parametrize(
    ("probe", "point", "config", "reason"),
    [
        ("kprobe", "program:inner", LAB, IN_THE_KERNEL),
        ("hook", "program:inner", LAB, IN_THE_KERNEL),
        ("uprobe-event", "vfs_read", LAB, IN_THE_PROGRAM),
        ("uprobe-event", "program:inner", LAB, NO_UPROBES),
        ("uretprobe-event", "program:inner", UPROBED, NO_HISTOGRAMS),
        ("none", "program:inner", LAB, None),
        ("uretprobe-event", "program:inner+0x4", UPROBED, AT_THE_ENTRY),
        ("bpf-uretprobe", "program:lab:passed", UPROBED, AT_THE_ENTRY),
        ("uprobe-event", "program:lab:passed", UPROBED, NO_HISTOGRAMS),
    ],
)
def test_a_point_in_the_program_is_for_uprobes(
    tmp_path: Path, probe: str, point: str, config: dict[str, str], reason: str | None
) -> None:
    file = tmp_path / "own.c"
    file.write_text("")
    described = calls_experiment(
        machines=[{"cpu": "athlon64"}],
        probes=[probe],
        points=[point],
        benchmark={"name": "workload", "file": str(file)},
    )
    assert unsupported_reason(a_kernel("lab-i386-up", config), plan(described).cells[-1]) == reason


def test_a_point_in_the_program_has_the_offset_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "own.c").write_text("")
    described = calls_experiment(
        machines=[{"cpu": "athlon64"}],
        probes=["none"],
        points=["program:inner", "program:inner+0x3"],
        benchmark={"name": "workload", "file": str(tmp_path / "own.c")},
    )
    setups = [set_up(a_kernel("lab-i386-up-ftrace", EVERYTHING), cell) for cell in plan(described).cells]
    assert [(setup.symbol, setup.offset) for setup in setups] == [("inner", 0), ("inner", 3)]


def test_own_programs_need_bpf_and_types(tmp_path: Path) -> None:
    source = tmp_path / "mine.bpf.c"
    source.touch()
    config: dict[str, str] = {}
    for option in ("BPF_EVENTS", "BPF_JIT", "KPROBE_EVENTS", "DEBUG_INFO_BTF", "DYNAMIC_FTRACE", "X86_64"):
        reason = unsupported_reason(a_kernel("debian-amd64", config), a_cell(str(source)))
        able = "debian-amd64 and lab-x86_64-smp-bpf have it"
        assert reason == f"this kernel was built without CONFIG_{option}; {able}"
        config[f"CONFIG_{option}"] = "y"
    assert unsupported_reason(a_kernel("debian-amd64", config), a_cell(str(source))) is None


def test_own_programs_do_not_record_in_a_program_or_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "own.c").write_text("")
    (tmp_path / "mine.bpf.c").write_text("")
    described = calls_experiment(
        machines=[{"cpu": "athlon64"}],
        probes=[str(tmp_path / "mine.bpf.c")],
        points=["program:inner", "vfs_read"],
        handlers=["record"],
        benchmark={"name": "workload", "file": str(tmp_path / "own.c")},
    )
    kernel = a_kernel("lab-i386-up", UPROBED)
    reasons = [unsupported_reason(kernel, cell) for cell in plan(described).cells if cell.probe != "none"]
    assert reasons == ["BPF programs of your own have no handlers, so they cannot record"] * 2


def test_a_one_liner_may_have_its_uprobe_in_the_program(tmp_path: Path) -> None:
    (tmp_path / "own.c").write_text("")
    described = calls_experiment(
        kernels=["debian-amd64"],
        machines=[{"cpu": "xeon-e5410"}],
        image="debian-amd64-bpftrace",
        probes=["bpftrace: uprobe:/tmp/workload:inner { @ = count(); }"],
        points=["program:inner"],
        benchmark={"name": "workload", "file": str(tmp_path / "own.c")},
    )
    (cell,) = plan(described).cells[-1:]
    kernel = a_kernel("debian-amd64", dict.fromkeys(cell.task.kind.needs, "y"))
    assert unsupported_reason(kernel, cell) is None


def test_what_a_release_lacks() -> None:
    older = a_kernel("debian-amd64", DEBIAN, release="5.4.0-x")
    reason = "Linux has this since 5.5 (commit fec56f5890d9); the kernel is 5.4.0-x"
    assert unsupported_reason(older, a_cell("bpf-fentry")) == reason
    assert unsupported_reason(older, a_cell("kprobe")) is None
    reason = "Linux has this since 6.10 (commit 535a3692ba72); the kernel is 6.1"
    assert unsupported_reason(a_kernel("debian-amd64", DEBIAN), a_cell("bpf-kprobe-session")) == reason
    newer = a_kernel("debian-686", DEBIAN, release="6.14.1")
    reason = "Linux no longer has this on i386, since 6.14 (commit 4346ba160409); the kernel is 6.14.1"
    assert unsupported_reason(newer, a_cell("fprobe")) == reason
    newer = a_kernel("debian-amd64", {**DEBIAN, "CONFIG_FPROBE": "y"}, release="6.14.1")
    assert unsupported_reason(newer, a_cell("fprobe")) is None


@pytest.mark.parametrize(
    ("probe", "before", "since"),
    [
        ("bpf-fsession", "6.19.14", "7.0 (commit 2d419c44658f)"),
        ("bpf-fentry-multi", "7.1.13", "7.2 (commit c1d32dea5d46)"),
        ("bpf-fexit-multi", "7.1.13", "7.2 (commit c1d32dea5d46)"),
        ("bpf-fsession-multi", "7.1.13", "7.2 (commit ba042ed6446f)"),
        ("bpf-tp-btf", "5.4.290", "5.5 (commit f1b9509c2fb0)"),
        ("bpf-lsm", "5.6.19", "5.7 (commit 9e4e01dfd325)"),
        ("bpf-fmod-ret", "5.6.19", "5.7 (commit ae24082331d9)"),
        ("fprobe-event", "6.4.16", "6.5 (commit 334e5519c375)"),
        ("fprobe-exit-event", "6.4.16", "6.5 (commit 334e5519c375)"),
        ("tprobe", "6.4.16", "6.5 (commit e2d0d7b2f42d)"),
        ("eprobe", "5.14.21", "5.15 (commit 7491e2c44278)"),
        ("function-graph-retval", "6.4.16", "6.5 (commit a1be9ccc57f0)"),
        ("function-graph-args", "6.14.11", "6.15 (commit ff5c9c576e75)"),
        ("bpf-uprobe-multi", "6.5.13", "6.6 (commit 89ae89f53d20)"),
        ("bpf-uretprobe-multi", "6.5.13", "6.6 (commit 89ae89f53d20)"),
        ("bpf-uprobe-session", "6.12.117", "6.13 (commit d920179b3d48)"),
        ("uprobe-event-optimized", "6.17.13", "6.18 (commit ba2bfc97b462)"),
        ("bpf-uretprobe-multi-optimized", "6.17.13", "6.18 (commit ba2bfc97b462)"),
    ],
)
def test_what_kinds_of_today_are_since(tmp_path: Path, probe: str, before: str, since: str) -> None:
    (tmp_path / "own.c").write_text("")
    cell = a_cell(probe)
    if cell.task.kind.site == "program":
        benchmark = {"name": "workload", "file": str(tmp_path / "own.c")}
        points = ["program:inner"]
        described = calls_experiment(machines=[{"cpu": "athlon64"}], probes=[probe], points=points, benchmark=benchmark)
        cell = plan(described).cells[-1]
    elif cell.task.kind.tracepoint is None:
        cell = dataclasses.replace(cell, point=Point(PLACES_OF_SECURITY.get(probe, "vfs_read")))
    config = dict.fromkeys(cell.task.kind.needs, "y")
    older, newer = (
        dataclasses.replace(a_kernel("debian-amd64", config), release=release) for release in (before, since.split()[0])
    )
    assert unsupported_reason(older, cell) == f"Linux has this since {since}; the kernel is {before}"
    assert unsupported_reason(newer, cell) is None


PLACES_OF_SECURITY = {"bpf-lsm": "bpf_lsm_file_permission", "bpf-fmod-ret": "security_file_permission"}


def test_eprobes_have_an_option_of_their_own_since_it_was_split_off() -> None:
    config = dict.fromkeys(a_cell("eprobe").task.kind.needs, "y")
    older, newer = (
        dataclasses.replace(a_kernel("debian-amd64", config), release=release) for release in ("6.16.12", "6.17.13")
    )
    assert unsupported_reason(older, a_cell("eprobe")) is None
    assert "built without CONFIG_EPROBE_EVENTS" in (unsupported_reason(newer, a_cell("eprobe")) or "")
    whole = dataclasses.replace(newer, config={**config, "CONFIG_EPROBE_EVENTS": "y"})
    assert unsupported_reason(whole, a_cell("eprobe")) is None


def test_programs_of_security_are_at_functions_of_their_own() -> None:
    kernel = dataclasses.replace(a_kernel("debian-amd64", DEBIAN), release="7.3.4")
    for probe, functions in (("bpf-lsm", "bpf_lsm_*"), ("bpf-fmod-ret", "security_*")):
        reason = f"the lab attaches it to functions {functions} alone: name one, with points: [FUNCTION]"
        assert unsupported_reason(kernel, a_cell(probe)) == reason
        other_cell = dataclasses.replace(a_cell(probe), point=Point("file_security_"))
        assert unsupported_reason(kernel, other_cell) == reason


def test_handlers_that_a_kind_cannot_have() -> None:
    graph = dict.fromkeys(("CONFIG_FUNCTION_GRAPH_TRACER", "CONFIG_X86_64", "CONFIG_DYNAMIC_FTRACE"), "y")
    orc, events = {"CONFIG_UNWINDER_ORC": "y"}, {**TRACED, "CONFIG_KPROBES_ON_FTRACE": "y"}
    in_detour = "the kernel's unwinder (ORC) has no table of the detour that the handler is called from"
    cases: list[tuple[str, Handler, dict[str, str], str | None]] = [
        ("function-graph", "count", graph, "the function graph tracer has no counter"),
        ("function-graph", "stack", graph, "the function graph tracer records calls, and no stacks"),
        ("function-graph", "record", graph, None),
        ("kprobe", "fetch-1", LAB, "only events that are made in tracefs, such as kprobe-event, fetch values"),
        ("none", "fetch-1", LAB, None),
        ("kprobe-event", "fetch-string", events, None),
        ("djprobe", "stack", {**LAB, **orc}, in_detour),
        ("djprobe", "stack", LAB, None),
        ("kprobe-optimized", "stack", {**LAB, **orc}, in_detour),
        ("kprobe", "stack", {**LAB, **orc}, None),
        ("kretprobe-optimized", "stack", {**LAB, **orc, "CONFIG_OPTPROBES": "y"}, None),  # from the return's trampoline
    ]
    for probe, handler, config, reason in cases:
        kernel = a_kernel("debian-amd64" if "graph" in probe else "lab-i386-up", config)
        cell = dataclasses.replace(a_cell(probe), handler=handler)
        assert unsupported_reason(kernel, cell) == reason, (probe, handler)


def test_links_of_perf_events_and_hooks_of_returns_are_younger_than_their_probes() -> None:
    config = {option: value for option, value in EVERYTHING.items() if option != "CONFIG_RETHOOK"}
    older = a_kernel("lab-x86_64-smp-ftrace", config, release="5.10.223")
    for probe in ("bpf-kprobe", "bpf-kprobe-optimized", "bpf-kretprobe", "bpf-tracepoint"):
        reason = "Linux has this since 5.15 (commit b89fbfbb854c); the kernel is 5.10.223"
        assert unsupported_reason(older, a_cell(probe)) == reason
    reason = (
        "register_kretprobe() does not make it, and Linux has other hooks of returns since 5.18 (commit 54ecbe6f1ed5)"
    )
    for probe in ("kretprobe-boosted", "kretprobe-optimized"):
        assert unsupported_reason(older, a_cell(probe)) == reason
    assert unsupported_reason(older, a_cell("kretprobe-ftrace")) is None


def test_a_session_needs_fprobes_and_64_bits() -> None:
    config: dict[str, str] = {}
    for option in ("BPF_EVENTS", "BPF_JIT", "FPROBE", "X86_64", "DYNAMIC_FTRACE"):
        kernel = a_kernel("lab-x86_64-smp-bpf", config, release="6.12.1")
        reason = f"this kernel was built without CONFIG_{option}; lab-x86_64-smp-bpf has it"
        assert unsupported_reason(kernel, a_cell("bpf-kprobe-session")) == reason
        config[f"CONFIG_{option}"] = "y"
    kernel = a_kernel("lab-x86_64-smp-bpf", config, release="6.12.1")
    assert unsupported_reason(kernel, a_cell("bpf-kprobe-session")) is None


def test_fentry_is_for_64_bit_kernels() -> None:
    has = ("BPF_EVENTS", "BPF_JIT", "DEBUG_INFO_BTF", "DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "DYNAMIC_FTRACE")
    config = {f"CONFIG_{option}": "y" for option in has}
    reason = "this kernel was built without CONFIG_X86_64; debian-amd64 and lab-x86_64-smp-bpf have it"
    assert unsupported_reason(a_kernel("lab-i386-up-bpf", config), a_cell("bpf-fentry")) == reason
    whole = {**config, "CONFIG_X86_64": "y"}
    assert unsupported_reason(a_kernel("lab-x86_64-smp-bpf", whole), a_cell("bpf-fentry")) is None


def test_an_entry_that_the_architecture_has_not() -> None:
    assert unsupported_reason(a_kernel("debian-686", DEBIAN), a_cell("kprobe", "syscall")) == (
        "programs of i386 have no system call entry syscall"
    )


def test_an_smp_kernel_on_one_cpu_has_a_note() -> None:
    notes = set_up(a_kernel("debian-686", DEBIAN), a_cell("none")).notes
    assert notes == ("an SMP kernel on one virtual CPU, its lock prefixes kept (noreplace-smp)",)
    two = dataclasses.replace(a_cell("none"), smp=2)
    assert set_up(a_kernel("debian-686", DEBIAN), two).notes == ()
