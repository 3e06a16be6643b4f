# SPDX-License-Identifier: GPL-2.0-only
"""Does ``./lab cost`` measure programs of the kinds that projects have, the same twice, and refuse wrong ones?"""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from documentation import ROOT, write_files
from needed_images import needed_image

from orchestrator.catalog.probes import IMAGE
from orchestrator.results.contract import RunRecord

PROGRAMS = Path(__file__).with_name("programs")
KERNELS = ("debian-amd64", "debian-amd64@6.12", "debian-amd64@7.3")
FIVE = {
    "ring_of_opens": ("on_open", "bpf-fentry"),
    "reads_by_process": ("on_read", "bpf-kprobe"),
    "tail_call": ("first", "bpf-kprobe"),
    "sleepable": ("on_open", "bpf-lsm"),
    "global_functions": ("on_getppid", "bpf-tracepoint"),
}

pytestmark = pytest.mark.qemu


def own(name: str) -> Path:
    return PROGRAMS / f"{name}.bpf.c"


def costs(command: CommandLine, *words: str | Path, status: int = 0) -> list[dict[str, Any]]:
    """The costs that the command prints as JSON."""
    done = command.run("cost", *words, "--format", "json")
    assert done.returncode == status, done.stderr
    assert command.qemus() == []
    found: list[dict[str, Any]] = json.loads(done.stdout)["costs"]
    return found


def runs(command: CommandLine) -> int:
    return len(list(command.lab.glob("runs/*")))


def test_a_programs_cost_is_proved_told_and_held_against_a_limit(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    done = command.run("cost", own("global_functions"), "--call", "getppid", "--at-most", "20")
    assert done.returncode == 1, done.stderr
    rows = (line.split() for line in done.stdout.splitlines() if line.startswith("on_getppid "))
    row = next(rows)
    hit = int(row[1])
    assert 100 < hit < 2000
    assert (row[2], row[4:6]) == ("<=20", ["bpf-tracepoint", "1000"])
    assert f"on_getppid on debian-amd64: overhead {hit} instructions, allowed <=20." in done.stdout
    assert "on_getppid on debian-amd64, by symbol" in done.stdout
    stored = csv.DictReader(io.StringIO(command.run("report", "latest", "--format", "csv").stdout))
    assert [row["status"] for row in stored] == ["ok", "ok"]
    assert command.qemus() == []


def test_a_hit_of_a_tracepoint_costs_the_same_however_often_a_call_hits_it(tmp_path: Path) -> None:
    """A call of an eventfd makes two system calls; the getppid of other tests makes one."""
    command = CommandLine(tmp_path)
    program = f"{own('at_calls')} program=on_raw"
    (cost,) = costs(command, program, "--call", "eventfd")
    assert (cost["hits"], cost["hits_per_call"]) == (2000, 2)
    assert cost["instructions"] == costs(command, program, "--call", "getppid")[0]["instructions"]
    missed = command.run("cost", program.replace("on_raw", "on_exit"), "--call", "eventfd")
    assert missed.returncode == 2
    assert "sched:sched_process_exit: the call eventfd does not hit it" in missed.stderr


@pytest.mark.nightly("five programs on three kernels, twice: 27 cells, five minutes")
def test_programs_of_all_kinds_cost_the_same_twice(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    programs = [own(name) for name in FIVE]
    first, second = (costs(command, *programs, "--kernels", "6.1,6.12,7.3") for _ in range(2))
    assert [one["kernel"] for one in first[:3]] == list(KERNELS)
    mechanisms = {Path(one["subject"]).name.split(".")[0]: (one["program"], one["mechanism"]) for one in first}
    assert mechanisms == FIVE
    assert len(first) == len(second) == len(FIVE) * len(KERNELS)
    for one, again in zip(first, second, strict=True):
        check_measured(one)
        assert one["cell"] == again["cell"]
        (low, high), (low_again, high_again) = one["interval"], again["interval"]
        if Path(one["subject"]).name == "sleepable.bpf.c":
            # bpf_copy_from_user() looks for the map's memory in the kernel's tree of areas, whose depth is the boot's.
            assert again["instructions"] == pytest.approx(one["instructions"], rel=0.05)
        elif low == high and low_again == high_again:
            assert again["instructions"] == one["instructions"]
        else:  # opens vary in some guests, and not in others
            assert low_again <= high
            assert high_again >= low
    vary = {Path(one["subject"]).name for one in [*first, *second] if one["interval"][0] != one["interval"][1]}
    assert vary <= {"ring_of_opens.bpf.c", "sleepable.bpf.c"}


def check_measured(one: Mapping[str, Any]) -> None:
    """It has a figure of a plausible size, and what the verifier knows of it."""
    assert (one["status"], one["exceeded"]) == ("ok", []), one
    assert one["hits"] == 1000
    assert 50 < one["instructions"] < 5000
    assert one["verified"] >= 3
    assert one["program_instructions"] >= 3
    assert one["machine_code_bytes"] > 20
    assert one["stack_bytes"] >= 0


MODULE = Path(__file__).with_name("modules") / "counter"
WORKLOADS = Path(__file__).with_name("workloads")


def test_a_module_without_a_probe_costs_what_its_own_functions_do(tmp_path: Path) -> None:
    """Calls of its device fail where it is not loaded: there is nothing to subtract."""
    command = CommandLine(tmp_path)
    ioctl, push = costs(command, MODULE, "--workload", WORKLOADS / "counter_ioctl.c")
    assert (ioctl["status"], ioctl["mechanism"], ioctl["hits"]) == ("ok", "in counter_ioctl", 500)
    assert 50 < ioctl["instructions"] < 300
    assert (push["function"], push["hits"]) == ("ring_push", 500)
    assert push["alone"] < push["instructions"] < ioctl["instructions"]
    assert ioctl["alone"] < ioctl["instructions"] - push["instructions"]
    stored = command.run("report", "latest", "--format", "json").stdout
    cells = {cell.probe: cell for cell in RunRecord.model_validate_json(stored, strict=False).cells}
    assert cells["none"].status == "failed"
    assert cells["counter"].value is not None
    assert ioctl["instructions"] < cells["counter"].value


@pytest.mark.nightly("two guests for each kernel, and for what is refused: a minute")
def test_own_functions_on_other_kernels_and_beside_what_judges(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    workload = ("--workload", WORKLOADS / "counter_read.c")
    by_kernel = costs(command, MODULE, *workload, "--kernels", "6.1,6.12,7.3")
    assert [cost["kernel"] for cost in by_kernel if cost["function"] == "counter_read"] == list(KERNELS)
    assert {cost["mechanism"] for cost in by_kernel} == {"in counter_read", "in ring_copy"}
    (one,) = costs(command, MODULE, *workload, "--function", "ring_copy", "--at-most", "1000")
    exceeding = command.run(
        "cost", MODULE, *workload, "--function", "ring_copy", "--at-most", str(one["instructions"] - 1)
    )
    assert exceeding.returncode == 1, exceeding.stderr
    assert f"ring_copy takes {one['instructions']:.0f} instructions, allowed" in " ".join(exceeding.stdout.split())
    (same,) = costs(command, MODULE, *workload, "--function", "ring_copy", "--against", "latest")
    assert (same["change"], same["unknown"]) == (0, None)
    refused = command.run("cost", MODULE, *workload, "--point", "counter_read")
    assert refused.returncode == 2
    assert "--point: it has no function counter_read of its own" in refused.stderr


@pytest.mark.nightly("a guest with bpftrace, and one of a module: a minute")
def test_a_script_a_module_and_a_mechanism_have_a_cost(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    needed_image(request.config, IMAGE)
    script = tmp_path / "reads.bt"
    script.write_text("#!/usr/bin/env bpftrace\n// Reads by process\nkprobe:vfs_read\n{\n\t@[pid] = count();\n}\n")
    write_files(ROOT / "docs" / "modules.md", tmp_path)
    command = CommandLine(tmp_path / "lab")
    by_script, mechanism = costs(command, script, "kprobe")
    assert (by_script["status"], by_script["mechanism"], by_script["hits"]) == ("ok", "bpf-kprobe", 1000)
    assert (mechanism["status"], mechanism["mechanism"], mechanism["hits"]) == ("ok", "int3", 1000)
    assert by_script["instructions"] > 0
    (module,) = costs(command, tmp_path / "kprobe_shared.c.j2", "--call", "read")
    assert (module["status"], module["mechanism"], module["hits"]) == ("ok", "int3", 1000)
    assert module["instructions"] > mechanism["instructions"]  # it has two kprobes


@pytest.mark.nightly("a guest for each program that the kernel refuses: a minute")
def test_a_program_that_the_kernel_refuses_says_why(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    (refused,) = costs(command, own("verifier"), status=1)
    assert (refused["status"], refused["instructions"], refused["hits"]) == ("failed", None, None)
    assert refused["reason"].startswith("the verifier refuses verifier.bpf.c.program-verifier: R")
    assert "invalid mem access" in refused["reason"].splitlines()[0]
    without_types = tmp_path / "without_types.bpf.o"
    map_and_program = (
        'struct { int (*type)[2]; int (*max_entries)[1]; } one __attribute__((section(".maps"), used)); '
        '__attribute__((section("kprobe/vfs_read"))) int reads(void *c) { return one.type != 0; } '
        'char LICENSE[] __attribute__((section("license"))) = "GPL";'
    )
    argv = ["clang", "-O2", "-target", "bpf", "-c", "-x", "c", "-o", str(without_types), "-"]
    subprocess.run(argv, input=map_and_program, text=True, check=True)
    (typeless,) = costs(command, without_types, status=1)
    assert (typeless["status"], typeless["instructions"]) == ("failed", None)
    assert "BTF" in typeless["reason"]
    assert runs(command) == 2
    assert command.qemus() == []


def test_a_wrong_file_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    foreign, plain = tmp_path / "foreign.bpf.o", tmp_path / "plain.bpf.o"
    code = 'char LICENSE[] __attribute__((section("license"))) = "GPL"; int nothing(void *c) { return 0; }'
    subprocess.run(["gcc", "-c", "-x", "c", "-o", str(foreign), "-"], input=code, text=True, check=True)
    argv = ["clang", "-O2", "-target", "bpf", "-c", "-x", "c", "-o", str(plain), "-"]
    subprocess.run(argv, input=code, text=True, check=True)
    for file, status, said in [
        (foreign, 1, "not a complete object file of BPF programs"),
        (plain, 1, "this object file has no program"),
        (own("no_program"), 1, "has no program"),
        (own("syntax"), 1, "syntax.bpf.c"),
        (own("section"), 2, "section on debian-amd64: libbpf has no section nonsense/vfs_read"),
        (own("net"), 2, "no program of it is attached"),
        (own("no_function"), 2, "it has no function vfs_raed of its own; did you mean vfs_read"),
        (own("no_fentry"), 2, "it has no function vfs_raed of its own; did you mean vfs_read"),
    ]:
        done = command.run("cost", file)
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert said in done.stderr
        assert done.stderr.count("error: ") == 1 + (file == own("syntax"))
    assert runs(command) == 0
    assert command.qemus() == []
