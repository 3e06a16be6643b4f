# SPDX-License-Identifier: GPL-2.0-only
"""Are a user's BPF programs measured, proved and removed, and does a wrong one fail with words that say why?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from djprobe_trial import insert
from experiment_boot import boot_of_calls, measured_call, prepared_for
from module_maker import ModuleMaker
from static_programs import compile_program

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.calls.call_cells import CallCell
from orchestrator.cost.call_table import call_table
from orchestrator.errors import EvidenceError
from orchestrator.probes.symbols import Symbols
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

PROGRAMS = Path(__file__).parent / "programs"
READING = {"name": "syscall", "call": "read", "arguments": [0, 0, 0], "calls": 100, "repeats": 2}

pytestmark = pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions")


def prepared(
    ready: ReadyGuest,
    context: BuildContext,
    *programs: str,
    handler: str = "noop",
    benchmark: Mapping[str, object] = READING,
    point: str = "vfs_read",
) -> tuple[ReadyGuest, Sequence[CallCell]]:
    """A guest and cells of a benchmark, else of reads, with a user's programs at a function."""
    boot = boot_of_calls(
        kernels=["debian-amd64"],
        machines=[{"cpu": "xeon-e5410"}],
        points=[point],
        probes=["none", *(str(PROGRAMS / program) for program in programs)],
        handlers=[handler],
        benchmark=dict(benchmark),
    )
    return prepared_for(ready, context, boot), boot.cells[-len(programs) :]


def measured(ready: ReadyGuest, context: BuildContext, program: str, **table: Any) -> CellRecord:
    """The record of the only program's cell."""
    prepared_guest, (cell,) = prepared(ready, context, program, **table)
    return measured_call(prepared_guest, cell)


def test_the_kernel_no_longer_counts_runs_afterwards(ready: ReadyGuest, workshop: BuildContext) -> None:
    for program in ("count_reads.bpf.c", "both.bpf.c", "at_reads.bpf.c"):
        ready.guest.put(b"1", "/proc/sys/kernel/bpf_stats_enabled")
        assert measured(ready, workshop, program).status == "ok"
        assert ready.guest.get("/proc/sys/kernel/bpf_stats_enabled").strip() == b"0"


def baseline(ready: ReadyGuest, context: BuildContext, benchmark: Mapping[str, object]) -> float:
    """What the calls take without a probe."""
    boot = boot_of_calls(
        kernels=["debian-amd64"],
        machines=[{"cpu": "xeon-e5410"}],
        points=["ksys_read"],
        probes=["none"],
        benchmark=dict(benchmark),
    )
    value = measured_call(prepared_for(ready, context, boot), boot.cells[0]).value
    assert value is not None
    return value


def test_hits_at_an_event_are_those_of_the_calls(ready: ReadyGuest, workshop: BuildContext, tmp_path: Path) -> None:
    # A run makes one write, and the guest's agent makes others meanwhile.
    compile_program(workshop, "x86_64", PROGRAMS / "write_once.c", tmp_path / "once")
    benchmark = {"name": "workload", "file": str(tmp_path / "once"), "repeats": 6}
    record = measured(ready, workshop, "rare.bpf.c", benchmark=benchmark, point="ksys_write")
    assert record.evidence is not None
    assert (record.evidence.hits, record.evidence.calls) == (3, 3)
    assert ready.guest.succeed(["ls", "/sys/fs/bpf"]).text == ""


EVENTFD = {"name": "workload", "file": str(call_table()["eventfd"].file), "calls": 100, "repeats": 2}


def test_a_hit_costs_the_same_however_often_calls_make_it(ready: ReadyGuest, workshop: BuildContext) -> None:
    costs = {}
    for benchmark, hits in (READING, 1), (EVENTFD, 2):
        record = measured(
            ready, workshop, "at_calls.bpf.c program=on_raw", benchmark={**benchmark, "hits": hits}, point="ksys_read"
        )
        assert record.evidence is not None
        assert (record.evidence.hits, record.evidence.calls) == (1000 * hits, 1000)
        assert record.value is not None
        costs[hits] = (record.value - baseline(ready, workshop, benchmark)) / hits
    assert costs[1] == costs[2]


def test_a_name_that_a_module_shares_is_explained(
    ready: ReadyGuest, workshop: BuildContext, modules: ModuleMaker
) -> None:
    """A kprobe of the user's is made by its name; the type information has the kernel's own alone."""
    insert(ready.guest, modules.rogue("namesake"))
    beside = dataclasses.replace(ready, symbols=Symbols.of(ready.guest))
    with pytest.raises(EvidenceError, match=r"both\.bpf\.c cannot be attached") as raised:
        measured(beside, workshop, "both.bpf.c")
    assert raised.value.hint.startswith(
        "vfs_read is a function of the kernel and of module namesake, and the kernel may"
    )
    record = measured(beside, workshop, "count_reads.bpf.c")
    assert record.evidence is not None
    assert (record.evidence.hits, record.evidence.mechanism) == (1000, "direct")
