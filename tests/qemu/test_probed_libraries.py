# SPDX-License-Identifier: GPL-2.0-only
"""Is a probe in a shared library exact and proved, wherever it is loaded, and does one that is not mapped fail?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from earlier_programs import check_earlier_programs
from experiment_boot import boot_of_calls, prepared_for

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.calls.preparation import CallSetup
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.probes.event_attachment import EventAttachment, event_attached
from orchestrator.probes.user_point import UserPoint, observe_program
from orchestrator.run.benchmark_kind import Ready
from orchestrator.run.ready_guest import ReadyGuest

WORKLOADS = Path(__file__).with_name("workloads")
OWN = "shared.so:in_library"
RANDOMIZE = "/proc/sys/kernel/randomize_va_space"
CALLS = 100
PROCESSES = 3

pytestmark = pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions", image="debian-amd64")


@contextmanager
def attached(ready: ReadyGuest, workshop: BuildContext, point: str) -> Iterator[tuple[EventAttachment, CallSetup]]:
    """A uprobe's event at a point, and what calls it, which is in the guest."""
    boot = boot_of_calls(
        kernels=["debian-amd64"],
        machines=[{"cpu": "xeon-e5410"}],
        image="debian-amd64",
        probes=["uprobe-event"],
        points=[point],
        benchmark={
            "name": "workload",
            "file": str(WORKLOADS / "sharing.c"),
            "libraries": ["libc.so.6", str(WORKLOADS / "shared.c")],
            "calls": CALLS,
            "repeats": 2,
        },
    )
    prepared = prepared_for(ready, workshop, boot).artifacts.cells[boot.cells[-1].id]
    assert isinstance(prepared, Ready)
    setup = prepared.setup
    assert isinstance(setup, CallSetup)
    assert setup.in_program is not None
    setup.workload.prepare(ready.guest)
    with event_attached(ready.guest, probes()["uprobe-event"], setup.in_program, ready.symbols) as attachment:
        yield attachment, setup


def test_counts_are_exact_wherever_each_process_has_the_library(ready: ReadyGuest, workshop: BuildContext) -> None:
    """The lab switches the randomisation off; a guest that has it has all hits, and costs nearly the same each time.

    Where a process has its library decides how deep in the kernel's trees a hit finds its mapping: 7 instructions of
    2030 a call were seen.
    """
    before = ready.guest.get(RANDOMIZE)
    ready.guest.put(b"2", RANDOMIZE)
    try:
        with attached(ready, workshop, OWN) as (attachment, setup):
            attachment.wait_until_armed()
            samples, addresses = set(), set()
            for _ in range(PROCESSES):
                attachment.set_handler("record")
                called = setup.workload.call(ready.guest, CALLS, caller=None, time_limit=60.0)
                trace = ready.guest.get("/sys/kernel/tracing/instances/lab/trace").decode()
                addresses |= {line.partition("probe: (")[2] for line in trace.splitlines() if "probe: (" in line}
                attachment.set_handler("noop")
                assert attachment.recorded(called, ready.symbols, None) == (CALLS, 0)
                measured = setup.workload.measure_one(ready.guest, ticks_per_second=250, time_limit=60.0)
                samples |= set(measured.samples)
        assert len(addresses) == PROCESSES
        assert max(samples) - min(samples) <= 16
    finally:
        ready.guest.put(before, RANDOMIZE)


def test_a_library_that_was_replaced_is_not_the_one_that_is_mapped(ready: ReadyGuest, workshop: BuildContext) -> None:
    with attached(ready, workshop, OWN) as (attachment, setup):
        attachment.wait_until_armed()
        path = library_of(setup.in_program)
        ready.guest.succeed(["cp", path, f"{path}.new"])
        ready.guest.succeed(["mv", f"{path}.new", path])
        with pytest.raises(EvidenceError, match=r"^after enabling, shared\.so:in_library is not armed by a uprobe's"):
            attachment.wait_until_armed()


def test_a_library_that_the_program_does_not_load_is_found(ready: ReadyGuest, workshop: BuildContext) -> None:
    """Another of its name is found first, so the process never maps the file that is probed."""
    with attached(ready, workshop, OWN) as (_, setup):
        path = library_of(setup.in_program)
        ready.guest.succeed(["sh", "-c", f"mv {path} /tmp && ln -s /tmp/shared.so {path}"])
        assert setup.in_program is not None
        with pytest.raises(EvidenceError, match=r"^the bytes at shared\.so:in_library cannot be read") as raised:
            observe_program(ready.guest, setup.in_program)
        assert f"peek: the program has not mapped {path}" in raised.value.detail
        ready.guest.succeed(["mv", "/tmp/shared.so", path])


def library_of(point: UserPoint | None) -> str:
    assert point is not None
    assert point.library is not None
    return point.library


def test_only_processes_of_an_earlier_program_are_ended(ready: ReadyGuest, tmp_path: Path) -> None:
    check_earlier_programs(ready.guest, tmp_path)
