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

from orchestrator.artifacts.cache import BuildContext
from orchestrator.benchmarks.calls.table import CallCell
from orchestrator.cost.reaching import call_table
from orchestrator.errors import EvidenceError
from orchestrator.probes.symbols import Symbols
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import ReadyGuest

PROGRAMS = Path(__file__).parent / "programs"
WRONG_ALSO = pytest.mark.nightly("other programs that are wrong: a second each")
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


def test_programs_run_at_each_call_and_are_gone_afterwards(ready: ReadyGuest, workshop: BuildContext) -> None:
    mechanisms = {"count_reads.bpf.c": "direct", "both.bpf.c": "ftrace", "at_reads.bpf.c": "elsewhere"}
    ready, cells = prepared(ready, workshop, *mechanisms)
    for cell, (program, mechanism) in zip(cells, mechanisms.items(), strict=True):
        ready.guest.put(b"1", "/proc/sys/kernel/bpf_stats_enabled")
        record = measured_call(ready, cell)
        assert (record.status, record.probe) == ("ok", program)
        assert record.evidence is not None
        assert (record.evidence.hits, record.evidence.calls, record.evidence.mechanism) == (1000, 1000, mechanism)
        assert ready.guest.succeed(["ls", "/sys/fs/bpf"]).text == ""
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


WRONG = {
    "verifier.bpf.c": "R2 invalid mem access 'scalar'",
    "no_function.bpf.c": "bpfload: cannot attach kprobe/vfs_raed: No such file or directory",
    "elsewhere.bpf.c": "program elsewhere is attached to vfs_write, and the point is vfs_read",
    "rare.bpf.c": "the BPF program rare (tp/syscalls/sys_enter_write) ran 0 times in 1000 calls",
}
WRONG_OTHERWISE = {
    "no_fentry.bpf.c": "failed to find kernel BTF type ID of 'vfs_raed'",
    "section.bpf.c": "check ELF section name 'nonsense/vfs_read'",
    "net.bpf.c": "libbpf attaches nothing by itself for the section xdp",
}


@pytest.mark.parametrize(
    "wrong", [pytest.param(WRONG, id="daily"), pytest.param(WRONG_OTHERWISE, id="others", marks=WRONG_ALSO)]
)
def test_programs_that_are_refused_or_not_hit_have_no_number(
    ready: ReadyGuest, workshop: BuildContext, wrong: Mapping[str, str]
) -> None:
    ready, cells = prepared(ready, workshop, *wrong)
    for cell, words in zip(cells, wrong.values(), strict=True):
        with pytest.raises(EvidenceError) as raised:
            measured_call(ready, cell)
        assert words in str(raised.value)
        assert ready.guest.succeed(["ls", "/sys/fs/bpf"]).text == ""


def test_hits_at_an_event_are_those_of_the_calls(ready: ReadyGuest, workshop: BuildContext, tmp_path: Path) -> None:
    # A run makes one write, and the guest's agent makes others meanwhile.
    compile_program(workshop, "x86_64", PROGRAMS / "write_once.c", tmp_path / "once")
    benchmark = {"name": "workload", "file": str(tmp_path / "once"), "repeats": 6}
    record = measured(ready, workshop, "rare.bpf.c", benchmark=benchmark, point="ksys_write")
    assert record.evidence is not None
    assert (record.evidence.hits, record.evidence.calls) == (3, 3)
    assert ready.guest.succeed(["ls", "/sys/fs/bpf"]).text == ""


EVENTFD = {"name": "workload", "file": str(call_table()["eventfd"].file), "calls": 100, "repeats": 2}


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("at_calls.bpf.c program=on_raw", "1000 calls were made and the probe's handler ran 2000 times"),
        ("at_calls.bpf.c program=on_event", "1000 calls were made and the probe's handler ran 2000 times"),
        (
            "at_calls.bpf.c",
            "1000 calls hit the programs unequally often: on_event 2000 times, on_raw 2000 times, on_read 1000 times",
        ),
    ],
)
def test_what_a_call_hits_several_times_is_no_hit_a_call(
    ready: ReadyGuest, workshop: BuildContext, program: str, why: str
) -> None:
    """A call of an eventfd is a write and a read: two of all system calls, and one read."""
    with pytest.raises(EvidenceError) as raised:
        measured(ready, workshop, program, benchmark=EVENTFD, point="ksys_read")
    assert str(raised.value).startswith(why)


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


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            "syntax.bpf.c",
            ("syntax.bpf.c:7: syntax.bpf.c does not compile", "error: use of undeclared identifier 'nowhere'"),
        ),
        pytest.param("no_program.bpf.c", ("this object file has no program",), marks=WRONG_ALSO),
    ],
)
def test_a_source_that_makes_no_program_fails_before_any_call(
    ready: ReadyGuest, workshop: BuildContext, program: str, words: tuple[str, ...]
) -> None:
    record = measured(ready, workshop, program)
    assert record.status == "failed"
    assert [each for each in words if each not in str(record.reason)] == []


def test_programs_do_not_record(ready: ReadyGuest, workshop: BuildContext) -> None:
    record = measured(ready, workshop, "count_reads.bpf.c", handler="record")
    assert record.status == "unsupported"
    assert record.reason == "BPF programs of your own have no handlers, so they cannot record"


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
