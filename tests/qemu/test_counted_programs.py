# SPDX-License-Identifier: GPL-2.0-only
"""Is each instruction of a program's run counted for the system call that it is executed in, also with a probe?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest
from command_line import CommandLine
from static_programs import compile_program

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.results.contract import BACKGROUND, CellRecord, RunPart, RunRecord

KERNEL = "debian-amd64"
pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]

OWN = """\
name: counted
kernels: [debian-amd64]
machines: [{cpu: athlon64}]
tables:
  own:
    probes: [none, kprobe]
    points: [__x64_sys_getppid]
    benchmark: {name: program, file: ./counted, repeats: 3}
  failing:
    probes: [none]
    benchmark: {name: program, run: "echo it broke >&2; exit 3", repeats: 3}
"""
CALLS = {"fork": 1, "execve": 1, "wait4": 1, "open": 1, "dup2": 1, "getppid": 5, "write": 1, "exit_group": 1}
PIPELINE = """\
name: pipeline
kernels: [debian-amd64, debian-amd64@7.3]
machines: [{cpu: athlon64, memory: 512M}]
image: debian-amd64
probes: [none, kprobe, bpf-fentry]
points: [vfs_read]
benchmark: {name: program, run: "cat /etc/passwd | sort | wc -l"}
"""


def run(command: CommandLine, config: Path, *, status: int = 0) -> Sequence[CellRecord]:
    finished = command.run("run", config)
    assert finished.returncode == status, finished.stderr
    return RunRecord.model_validate_json(command.run("report", "latest", "--format", "json").stdout).cells


def parts(cell: CellRecord) -> dict[str, RunPart]:
    assert cell.profile is not None, cell.reason
    return {part.name or part.kind: part for part in cell.profile.parts}


def spread(part: RunPart) -> int:
    """What the table prints as +-."""
    return sum(max(runs) - min(runs) for runs in (part.runs, part.plain) if runs)


def test_a_program_s_run_is_counted_by_system_call(tmp_path: Path, workshop: BuildContext) -> None:
    compile_program(workshop, "x86_64", Path(__file__).parent / "programs" / "counted.c", tmp_path / "counted")
    config = tmp_path / "counted.yaml"
    config.write_text(OWN)
    command = CommandLine(tmp_path / "lab")
    plain, probed, failing = run(command, config, status=1)
    for cell in (plain, probed):
        assert cell.profile is not None
        found = {part.name: part.calls for part in cell.profile.parts if part.kind == "call"}
        assert found == CALLS
        own = [part.instructions for part in cell.profile.parts if part.kind not in BACKGROUND]
        assert sum(own) == cell.value
        assert cell.profile.instructions == sum(sum(part.runs) for part in cell.profile.parts) + 3
    getppid = parts(probed)["getppid"]
    # Five hits of some hundreds of instructions, the same in each run; what nothing has probed is the same without.
    assert len({*getppid.runs}) == len({*getppid.plain}) == 1
    added = getppid.runs[0] - getppid.plain[0]
    assert added % 5 == 0
    assert 100 < added // 5 < 5000
    assert {*parts(probed)["dup2"].runs} == {*parts(probed)["dup2"].plain} == {*parts(plain)["dup2"].runs}
    assert probed.evidence is not None
    assert (probed.evidence.hits, probed.evidence.int3) == (5, 10)
    assert "did not run to its end" in (failing.reason or "")
    assert "it broke" in (failing.reason or "")
    graph = tmp_path / "graph.svg"
    assert command.run("profile", f"latest:{probed.id}", "--flame-graph", graph).returncode == 0
    assert "__x64_sys_getppid" in graph.read_text()


@pytest.mark.nightly("a pipeline of an image's programs on two kernels, twice: ten minutes")
@pytest.mark.kernels(KERNEL, "debian-amd64@7.3")
def test_two_runs_of_a_pipeline_differ_by_less_than_they_say(tmp_path: Path) -> None:
    config = tmp_path / "pipeline.yaml"
    config.write_text(PIPELINE)
    command = CommandLine(tmp_path / "lab")
    for cell, other_cell in zip(run(command, config), run(command, config), strict=True):
        first, second = parts(cell), parts(other_cell)
        assert first.keys() == second.keys()
        for name, part in first.items():
            assert abs(part.instructions - second[name].instructions) <= spread(part) + spread(second[name]), name
            assert part.kind != "call" or part.calls == second[name].calls
        assert first["user"].instructions > 100_000
        assert {"read", "write", "execve", "clone", "pipe2", "page_fault"} <= first.keys()
        if cell.probe != "none":
            loading = first["pread64"]  # of the loader, eight times; a read of a pipe may wait
            assert median(loading.runs) - median(loading.plain) > 800
