# SPDX-License-Identifier: GPL-2.0-only
"""Has each call of the table a number, with and without a probe, and does a profile change nothing about that?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import CALL_PREFIX
from orchestrator.cost.call_table import TableCall, call_table
from orchestrator.cost.counted_table import counted_table, made_by
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.run.ready_guest import ReadyGuest

EACH_KERNEL = pytest.mark.nightly("makes all kinds of calls with and without a probe: minutes on each kernel")
CPUS = {"x86_64": "xeon-e5410", "i386": "pentium4"}
THAT_SET_UP = ("tcp_retransmit", "ping", "pivot_root", "oom", "exec_program", "clone_user", "io_uring")
"""Calls that need something of a guest, which they set up: addresses, mounts, control groups, other processes."""
NOT_TRACED = ("stat", "thread", "futex_wait")
"""Calls that a trace shows otherwise: the row has the names of both architectures; a thread is not traced; it answers
before the traced one waits."""
NAMES = {"umount2": "umount", "sendfile": "sendfile64"}
"""The kernel's names for its events, where they are not those of its system calls."""
WATCHED = 10

pytestmark = pytest.mark.qemu


def measured(
    folder: Path, kernel: str, calls: Mapping[str, Mapping[str, object]], probes: Sequence[str]
) -> Mapping[str, CellRecord]:
    """The records of profiled calls: the tables' names with those of the probes."""
    spec = kernel_spec(kernel)
    common = {"name": "calls", "kernels": [kernel], "machines": [{"cpu": CPUS[spec.arch], "memory": "512M"}]}
    tables = {name.replace("_", "-"): {"probes": probes, **table} for name, table in calls.items()}
    file = folder / "calls.yaml"
    file.write_text(json.dumps({**common, "profile": ["symbols"], "tables": tables}))
    command = CommandLine(folder)
    ran = command.run("run", file)
    assert ran.returncode in (0, 1), ran.stderr
    answer = command.run("report", "latest", "--format", "json").stdout
    cells = RunRecord.model_validate_json(answer, strict=False).cells
    return {f"{cell.table} {cell.probe}": cell for cell in cells}


def failures(cells: Mapping[str, CellRecord]) -> Mapping[str, str | None]:
    return {name: cell.reason for name, cell in cells.items() if cell.status != "ok"}


def test_calls_that_fault_or_let_others_run_have_a_number_and_a_profile(tmp_path: Path) -> None:
    """Which exec and thread do each time, in the calls that warm caches up for a profile as well."""
    calls = {
        call.name: {"points": [CALL_PREFIX["x86_64"] + call.events[0]], "benchmark": {**call.benchmark, "calls": 50}}
        for call in map(call_table().__getitem__, ("exec", "thread"))
    }
    cells = measured(tmp_path, "debian-amd64", calls, ["none"])
    assert not failures(cells)
    assert [name for name, cell in cells.items() if cell.profile is None] == []


def test_a_hit_by_a_thread_of_the_calls_process_is_a_hit_of_the_calls(tmp_path: Path) -> None:
    benchmark = {**call_table()["thread"].benchmark, "calls": 50, "repeats": 2}
    calls = {"thread": {"points": ["do_exit"], "benchmark": benchmark}}
    evidence = measured(tmp_path, "debian-amd64", calls, ["none", "bpf-fentry"])["thread bpf-fentry"].evidence
    assert evidence is not None
    assert (evidence.hits, evidence.hits_per_call) == (1000, 1)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in THAT_SET_UP else pytest.mark.nightly("the same of calls that need less"))
        for name, call in call_table().items()
        if call.call is None and not call.modules and name not in NOT_TRACED
    ],
)
@pytest.mark.guest(kernel=["debian-amd64", "debian-amd64@7.3"], cpu="xeon-e5410", timing="instructions")
def test_a_workload_makes_the_system_calls_of_its_row(workshop: BuildContext, ready: ReadyGuest, name: str) -> None:
    call = call_table()[name]
    calls = made_by(workshop, ready.artifacts.kernel.spec.arch, call)
    assert calls is not None
    calls.prepare(ready.guest)
    seen = calls.watch(ready.guest, time_limit=60.0, calls=WATCHED)
    made = {NAMES.get(system_call, system_call): results.observed / WATCHED for system_call, results in seen.items()}
    assert made == Counter(call.events)


@pytest.mark.parametrize("kernel", ["debian-amd64", "debian-amd64@7.3"])
def test_calls_that_need_modules_of_the_kernel_hit_their_functions(tmp_path: Path, kernel: str) -> None:
    """One of them is in such a module itself."""
    points = {"block_read": "blk_mq_start_request", "ext4_read": "ext4_file_read_iter"}
    few = {"calls": 100, "repeats": 2}
    calls = {
        name: {"points": [point], "kernel_modules": call.modules, "benchmark": {**call.benchmark, **few}}
        for name, point in points.items()
        for call in (call_table()[name],)
    }
    cells = measured(tmp_path, kernel, calls, ["none", "kprobe"])
    assert not failures(cells)
    hits = [
        cell.evidence.hits_per_call for cell in cells.values() if cell.evidence is not None and cell.probe != "none"
    ]
    assert hits == [1, 1]
    assert cells["ext4-read kprobe"].parameters["kernel_modules"] == "null_blk, ext4"


@EACH_KERNEL
@pytest.mark.parametrize("kernel", ["debian-amd64", "debian-amd64@6.12", "debian-amd64@7.3", "lab-i386-up"])
def test_each_call_of_the_table_has_a_number(workshop: BuildContext, tmp_path: Path, kernel: str) -> None:
    built = ready_kernel(workshop, kernel_spec(kernel))
    arch = built.spec.arch
    machine = MachineSpec(cpu=CPUS[arch])
    table = counted_table(workshop, built, machine)
    reached = table.functions_of_one_process.calls
    lacking = {name for name, call in table.calls.items() if call.failure}
    assert not lacking or built.config.get("CONFIG_NET") != "y", table.calls

    def table_of(call: TableCall) -> Mapping[str, object]:
        events = dict.fromkeys((CALL_PREFIX[arch] + event for event in call.events), 1)  # of one with a child
        entered = reached.get(call.name, events)
        function, hits = next((name, hits) for name, hits in entered.items() if name.startswith(CALL_PREFIX[arch]))
        few = {"calls": min(200, call.calls or 200), "repeats": 2}
        benchmark = {**call.benchmark, **few, **({} if hits == 1 else {"hits": hits})}
        modules = {"kernel_modules": call.modules} if call.modules else {}
        return {"points": [function], "benchmark": benchmark, **modules}

    calls = {name: table_of(call_table()[name]) for name in table.calls if name not in lacking}
    cells = measured(tmp_path, kernel, calls, ["none", "kprobe"])
    assert len(cells) == 2 * len(calls)
    for name, cell in sorted(cells.items()):
        print(
            f"{kernel} {name}: {cell.status} {cell.value} {cell.overhead} {cell.reason or ''} {'; '.join(cell.notes)}"
        )
    assert not failures(cells)
