# SPDX-License-Identifier: GPL-2.0-only
"""Is a probe in a shared library exact and proved, wherever it is loaded, and does one that is not mapped fail?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from earlier_programs import check_earlier_programs
from elsewhere import ELSEWHERE
from experiment_boot import boot_of_calls, measured_call, prepared_for

from orchestrator.artifacts.cache import BuildContext
from orchestrator.benchmarks.calls.call_programs import COUNTED_CALLS
from orchestrator.benchmarks.calls.preparation import CallSetup
from orchestrator.benchmarks.calls.table import CallCell
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.experiment.plan import Boot
from orchestrator.probes.event_attachment import EventAttachment, event_attached
from orchestrator.probes.place import UserPoint, observe_program
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import Ready
from orchestrator.run.boot import ReadyGuest

WORKLOADS = Path(__file__).with_name("workloads")
MALLOC, OWN, PASSED, WANTED = "libc.so.6:malloc", "shared.so:in_library", "shared.so:lab:passed", "shared.so:lab:wanted"
RANDOMIZE = "/proc/sys/kernel/randomize_va_space"
IMAGES = {"debian-686": ("pentium4", "debian-i386"), "debian-amd64": ("xeon-e5410", "debian-amd64")}
EVERY_DAY = "debian-amd64"
MACHINES = [
    pytest.param(
        kernel,
        handler,
        marks=[
            pytest.mark.guest(kernel=kernel, cpu=cpu, timing="instructions", image=image),
            *([] if kernel == EVERY_DAY else [ELSEWHERE]),
        ],
    )
    for (kernel, (cpu, image)), handler in zip(IMAGES.items(), ("noop", "record"), strict=True)
]
CALLS = 100
PROCESSES = 3

pytestmark = pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions", image="debian-amd64")


def boot_with(points: list[str], rows: list[str], kernel: str = "debian-amd64", **table: object) -> Boot:
    cpu, image = IMAGES[kernel]
    libraries = ["libc.so.6", str(WORKLOADS / "shared.c")]
    return boot_of_calls(
        kernels=[kernel],
        machines=[{"cpu": cpu}],
        image=image,
        probes=rows,
        points=points,
        benchmark={
            "name": "workload",
            "file": str(WORKLOADS / "sharing.c"),
            "libraries": libraries,
            "calls": CALLS,
            "repeats": 2,
        },
        **table,
    )


def check(cell: CallCell, record: CellRecord) -> None:
    evidence = record.evidence
    assert record.status == "ok", (cell.id, record.reason)
    assert evidence is not None
    assert evidence.symbol == str(cell.point)
    assert len(set(record.samples)) == 1
    if cell.probe == "none":
        assert evidence.probe_bytes == evidence.original_bytes
        return
    kind = probes()[cell.probe]
    assert evidence.probe_bytes == "cc" + evidence.original_bytes[2:]
    assert evidence.hits == evidence.calls == COUNTED_CALLS
    # The program's own call of malloc(), before the others, takes a trap as well.
    assert evidence.int3 == (None if str(cell.point) == MALLOC else COUNTED_CALLS * (kind.int3_per_hit or 0))
    assert evidence.recorded == (COUNTED_CALLS if cell.handler == "record" else None)
    assert evidence.restored


@pytest.mark.parametrize(("kernel", "handler"), MACHINES)
def test_a_function_of_the_c_library_and_one_of_a_user_s(
    ready: ReadyGuest, workshop: BuildContext, kernel: str, handler: str
) -> None:
    rows = ["none", "uprobe-event", "bpf-uprobe", *([] if kernel == EVERY_DAY else ["uretprobe-event"])]
    boot = boot_with([MALLOC, OWN], rows, kernel, handlers=[handler])
    ready = prepared_for(ready, workshop, boot)
    for cell in boot.cells:
        check(cell, measured_call(ready, cell))
    ready.guest.check_console()


@pytest.mark.nightly("test_uprobes.py has a static point every day, in a program")
@pytest.mark.parametrize("point", [WANTED, PASSED])
def test_static_points(ready: ReadyGuest, workshop: BuildContext, point: str) -> None:
    boot = boot_with([point], ["none", "uprobe-event"])
    ready = prepared_for(ready, workshop, boot)
    for cell in boot.cells:
        check(cell, measured_call(ready, cell))


@contextmanager
def attached(ready: ReadyGuest, workshop: BuildContext, point: str) -> Iterator[tuple[EventAttachment, CallSetup]]:
    """A uprobe's event at a point, and what calls it, which is in the guest."""
    boot = boot_with([point], ["uprobe-event"])
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
