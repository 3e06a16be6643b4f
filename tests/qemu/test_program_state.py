# SPDX-License-Identifier: GPL-2.0-only
"""Has a BPF program what its user space would keep for it, and does it leave nothing switched on in the kernel?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

PROGRAMS = Path(__file__).with_name("programs")
WORKLOADS = Path(__file__).with_name("workloads")

pytestmark = pytest.mark.qemu


def file_of(name: str) -> str:
    return str(PROGRAMS / f"{name}.bpf.c")


def costs(
    command: CommandLine, *words: str, calls: Sequence[str] = ("--call", "read_zero"), kernels: str = "6.1"
) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """The costs of programs, by kernel and program."""
    done = command.run("cost", *words, *calls, "--kernels", kernels, "--format", "json")
    assert done.stdout, done.stderr
    return {(cost["kernel"], cost["program"]): cost for cost in json.loads(done.stdout)["costs"]}


def symbols(command: CommandLine, cost: Mapping[str, Any]) -> Sequence[str]:
    """What the calls with a program execute."""
    done = command.run("profile", f"latest:{cost['cell']}", "--format", "json", "--offline")
    assert done.returncode == 0, done.stderr
    return [symbol["name"] for cell in json.loads(done.stdout) for symbol in cell["symbols"]]


@pytest.mark.parametrize(
    "kernels",
    ["6.1", pytest.param("6.12,7.3", marks=pytest.mark.nightly("the same on two more kernels: half a minute"))],
)
def test_what_lives_as_long_as_its_user_is_measured(tmp_path: Path, kernels: str) -> None:
    command = CommandLine(tmp_path)
    found = costs(command, *map(file_of, ("program_arrays", "tail_call", "timer", "prints")), kernels=kernels)
    assert len(found) == 6 * len(kernels.split(","))
    assert [(cost["program"], cost["reason"]) for cost in found.values() if cost["status"] != "ok"] == []
    for (kernel, program), cost in found.items():
        executed = symbols(command, cost)
        if program == "jumper":
            assert cost["instructions"] == found[kernel, "pinned"]["instructions"]
        if program in ("jumper", "pinned"):
            assert "BPF program target" in executed
        if program == "first":
            assert "BPF program counted" in executed
        if program == "watch_reads":
            assert "hrtimer_start_range_ns" in executed
        assert ("bpf_trace_vprintk" in executed or "bpf_trace_printk" in executed) == (program == "prints")
        assert cost["hits"] == 1000
    if kernels == "6.1":
        assert found["debian-amd64", "jumper"]["instructions"] == 750


@pytest.mark.parametrize(
    "kernels",
    ["6.1", pytest.param("6.12,7.3", marks=pytest.mark.nightly("the same on two more kernels: half a minute"))],
)
def test_programs_in_a_workload_are_where_their_sections_or_the_point_say(tmp_path: Path, kernels: str) -> None:
    command = CommandLine(tmp_path)
    file, workload = file_of("in_program"), ("--workload", str(WORKLOADS / "marked.c"), "--point")
    static = [f"{file} program={program}" for program in ("unnamed", "returns", "static_named", "static_unnamed")]
    for (_, program), cost in costs(command, *static, calls=[*workload, "program:lab:passed"], kernels=kernels).items():
        if program == "returns":
            assert cost["reason"] == "a return is probed at a function's entry: name the function, without an offset"
        else:
            check_measured_in_workload(cost)
    at_function = costs(command, file, calls=[*workload, "program:workload"], kernels=kernels)
    for (_, program), cost in at_function.items():
        if program == "static_unnamed":
            assert cost["reason"].startswith("a static probe point has two names: ")
        else:
            check_measured_in_workload(cost)
    for kernel in {kernel for kernel, _ in at_function}:
        instructions = {program: cost["instructions"] for (of, program), cost in at_function.items() if of == kernel}
        assert instructions["named"] == instructions["unnamed"] < instructions["returns"]
        assert instructions["many_named"] == instructions["many_unnamed"]


def check_measured_in_workload(cost: Mapping[str, Any]) -> None:
    if cost["program"].startswith("many_") and cost["kernel"] == "debian-amd64":
        assert cost["status"] == "unsupported"
        assert "probe.multi" in cost["reason"]
        assert "Linux has this since 6.6" in cost["reason"]
    else:
        assert (cost["status"], cost["hits"]) == ("ok", 1000), cost


def test_a_map_that_a_tools_loader_sizes_has_a_size_that_is_said(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    (cost,) = costs(command, file_of("sized_by_loader")).values()
    assert cost["status"] == "ok", cost["reason"]
    said = "reads has 10240 entries by the lab: the source gives no max_entries"
    assert cost["notes"] == [said]
    table = command.run("report", "latest").stdout
    assert said in " ".join(table.split())


def test_a_program_that_a_tail_call_leads_to_is_refused_by_its_name(tmp_path: Path) -> None:
    found = costs(CommandLine(tmp_path), file_of("refused_callee"))
    assert found["debian-amd64", "alone"]["status"] == "ok"
    reason = found["debian-amd64", "jumper"]["reason"]
    assert reason.startswith(
        "the verifier refuses target, in which refused_callee.bpf.c.program-jumper may go on: R0 invalid mem access"
    )


REFUSED = {
    "ring_small": "map small is full with 3960 bytes: the kernel refuses what hits add",
    "ring_typical": "map typical is full with 261888 bytes",
    "hash_full": "map full is full with 256 keys",
    "hash_fills": "map fills has room for 8192 keys, and 1000 hits add ",
    "percpu_hash_full": "map of_each_cpu is full with 256 keys",
    "lru": "map newest evicts old keys for new ones, and had room for the first of them",
    "hash_of_wide_keys": "map full_of_paths is full with 256 keys",
    "lru_nearly_full": "map newest_of_many evicts old keys for new ones",
    "trie_full": "map prefixes is full with 256 keys",
    "queue_full": "map short_queue is full with 64 elements",
    "stack_full": "map short_stack is full with 64 elements",
    "perf_unread": "nobody reads map events, a perf event array: bpf_perf_event_output() fails with ENOENT",
    "tail_call_to_nobody": "map nowhere, a program array, is empty",
    "callee_fills_hash": "map full_of_callee is full with 256 keys",
    "inner_hash_full": "map inside is full with 256 keys",
}
INSERTS = "100 of 100 calls add a key to map roomy: those insert, and do not update"


DAILY = (
    "ring_typical",
    "hash_full",
    "hash_of_wide_keys",
    "hash_roomy",
    "hash_of_one_key",
    "lru_nearly_full",
    "perf_unread",
    "perf_unused",
)
ALL = pytest.mark.nightly("a guest for each map that is full, on three kernels: ten minutes on a busy host")


@pytest.mark.parametrize(
    ("programs", "kernels"), [(DAILY, "6.1"), pytest.param((), "6.1,6.12,7.3", marks=ALL)], ids=["daily", "all"]
)
def test_a_map_that_had_no_room_for_the_hits_fails_the_cell(
    tmp_path: Path, programs: Sequence[str], kernels: str
) -> None:
    file = file_of("fills_maps")
    words = [f"{file} program={program}" for program in programs] or [file, file_of("fills_maps_by_tail_calls")]
    found = costs(CommandLine(tmp_path), *words, kernels=kernels)
    for (_, program), cost in found.items():
        reason = REFUSED.get(program)
        if reason is None:
            assert (cost["status"], cost["hits"]) == ("ok", 1000), cost
            assert cost["notes"] == ([INSERTS] if program == "hash_roomy" else [])
        else:
            assert cost["status"] == "failed", cost
            assert reason in cost["reason"]
    assert {program for _, program in found} > (REFUSED.keys() & set(programs) if programs else REFUSED.keys())
