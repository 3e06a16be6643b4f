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
