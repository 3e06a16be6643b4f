# SPDX-License-Identifier: GPL-2.0-only
"""Is a probe in the program that makes the calls exact and proved, and does each silent failure fail its cell?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from earlier_programs import check_earlier_programs
from elsewhere import ELSEWHERE
from experiment_boot import boot_of, boot_of_calls, measured_call, prepared_for

from orchestrator.arch import INT3
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.guest_programs import bpf_tool
from orchestrator.artifacts.program_code import find_in_program
from orchestrator.artifacts.user_programs import compiled_workload
from orchestrator.benchmarks.calls.call_programs import COUNTED_CALLS, Calls, user_function
from orchestrator.benchmarks.calls.copied_programs import OWN_PROGRAM
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import Handler, probes
from orchestrator.errors import EvidenceError, NotEntered
from orchestrator.paths import data_dir
from orchestrator.probes.bpf_attachment import bpf_attached
from orchestrator.probes.bpf_program import AttachTarget, attach
from orchestrator.probes.event_attachment import EventAttachment, event_attached
from orchestrator.probes.tracefs import INSTANCE
from orchestrator.probes.user_point import UserPoint, observe_program
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

INNER = Path(__file__).with_name("workloads") / "inner.c"
CONFIG = data_dir("configs") / "uprobes.yaml"
KINDS = [name for name, kind in probes().items() if kind.site == "program"]
SINGLE_STEP = 1
"""The vector of the debug exception: an instruction that is single-stepped out of line ends in one."""
CPUS = {"debian-686": "pentium4", "debian-amd64": "xeon-e5410"}
MACHINES = [
    pytest.param(
        "debian-686",
        marks=[pytest.mark.guest(kernel="debian-686", cpu="pentium4", timing="instructions"), ELSEWHERE],
    ),
    pytest.param("debian-amd64", marks=pytest.mark.guest(kernel="debian-amd64", timing="instructions")),
]
EVERY_DAY = "debian-amd64"
EVERY_HANDLER = ("uprobe-event",)
"""Kinds that are measured with each handler every day; the others are on the other kernels."""
LIMIT = 60.0
BY_COST = ("none", "bpf-uprobe", "uprobe-event", "bpf-uretprobe", "uretprobe-event")
"""Behind the same breakpoint a program that does nothing costs less than an event without output."""
HANDLERS_BY_COST: dict[bool, tuple[Handler, ...]] = {
    True: ("noop", "count", "record"),
    False: ("noop", "record", "count"),
}
"""Of BPF programs and of events: a histogram costs more than the buffer."""

pytestmark = pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions")


@pytest.mark.parametrize("kernel", MACHINES)
def test_every_kind_with_each_handler(ready: ReadyGuest, workshop: BuildContext, kernel: str) -> None:
    boot = boot_of_calls(
        kernels=[kernel],
        machines=[{"cpu": CPUS[kernel]}],
        probes=["none", *KINDS],
        handlers=["noop", "count", "record"],
        points=["program:inner"],
        benchmark={"name": "workload", "file": str(INNER), "calls": 100, "repeats": 2},
    )
    ready = prepared_for(ready, workshop, boot)
    cells = [
        cell for cell in boot.cells if kernel != EVERY_DAY or cell.handler == "noop" or cell.probe in EVERY_HANDLER
    ]
    records = {(cell.probe, cell.handler): measured_call(ready, cell) for cell in cells}
    for probe, handler in list(records):
        reason = why_not(kernel, probe)
        if reason is None:
            check(probe, handler, records[probe, handler])
        else:
            assert reason in (records.pop((probe, handler)).reason or "")
    assert order(records, "noop") == list(BY_COST)
    for probe in EVERY_HANDLER if kernel == EVERY_DAY else BY_COST[1:]:
        handlers = HANDLERS_BY_COST[probes()[probe].program is not None]
        values = [records[probe, handler].value or 0.0 for handler in handlers]
        assert sorted(set(values)) == values
    ready.guest.check_console()


def why_not(kernel: str, probe: str) -> str | None:
    """A part of the reason where Debian's kernel does not support a kind at this function."""
    since = probes()[probe].since
    if since is not None and not since.is_in(kernels()[kernel].version):
        return f"Linux has this since {since}"
    return None


@pytest.mark.guest(kernel="debian-amd64@7.3", cpu="xeon-e5410", timing="instructions")
@pytest.mark.nightly("every uprobe at every nop, on a newer kernel, which has to be fetched")
def test_uprobes_are_optimised_at_one_nop_alone(ready: ReadyGuest, workshop: BuildContext) -> None:
    """The others take a breakpoint trap a hit there, and no kind is measured as another."""
    boot = boot_of(CONFIG, "kernels=[debian-amd64@7.3]")
    ready = prepared_for(ready, workshop, boot)
    for cell in boot.cells:
        record, kind = measured_call(ready, cell), probes()[cell.probe]
        is_optimised = str(cell.point).endswith("10")
        if cell.probe == "none" or is_optimised == (kind.mechanism == "call"):
            assert (record.status, record.reason) == ("ok", None)
            check_traps_and_bytes(record, is_optimised=is_optimised and cell.probe != "none")
        else:
            assert (record.status, "the kernel optimises" in (record.reason or "")) == ("unsupported", is_optimised)


@pytest.mark.guest(kernel="debian-amd64@7.3", cpu="xeon-e5410", timing="instructions")
@pytest.mark.nightly("one cell more on a newer kernel, which has to be fetched")
def test_a_nop_that_no_call_reaches_is_not_blamed_on_the_kernel(ready: ReadyGuest, workshop: BuildContext) -> None:
    boot = boot_of_calls(
        kernels=["debian-amd64@7.3"],
        machines=[{"cpu": "xeon-e5410"}],
        probes=["none", "bpf-uprobe-optimized"],
        points=["program:never_called"],
        benchmark={"name": "workload", "file": str(data_dir("configs") / "nops.c"), "calls": 100, "repeats": 2},
    )
    ready = prepared_for(ready, workshop, boot)
    with pytest.raises(NotEntered, match=r"^1000 calls were made and the probe's handler ran 0 times$"):
        measured_call(ready, boot.cells[-1])


def check_traps_and_bytes(record: CellRecord, *, is_optimised: bool) -> None:
    evidence = record.evidence
    assert evidence is not None
    is_probed = evidence.mechanism != "none"
    assert (evidence.hits, evidence.int3) == (
        (COUNTED_CALLS, 0 if is_optimised else COUNTED_CALLS) if is_probed else (0, 0)
    )
    live = bytes.fromhex(evidence.probe_bytes)
    assert live.startswith(bytes.fromhex("488d642480e8")) == is_optimised
    assert (live[0] == INT3) == (is_probed and not is_optimised)


def check(probe: str, handler: str, record: CellRecord, point: str = "program:inner") -> None:
    kind, evidence = probes()[probe], record.evidence
    assert record.status == "ok", (probe, record.reason)
    assert evidence is not None
    assert evidence.symbol == point
    if probe == "none":
        assert evidence.probe_bytes == evidence.original_bytes
        return
    assert evidence.probe_bytes == "cc" + evidence.original_bytes[2:]
    assert evidence.hits == evidence.calls == COUNTED_CALLS
    assert evidence.int3 == COUNTED_CALLS * (kind.int3_per_hit or 0)
    assert evidence.recorded == (COUNTED_CALLS if handler == "record" else None)
    assert evidence.restored
    assert len(set(record.samples)) == 1


def order(records: Mapping[tuple[str, Handler], CellRecord], handler: Handler) -> list[str]:
    rows = [probe for probe, of in records if of == handler]
    return sorted(rows, key=lambda probe: records[probe, handler].value or 0.0)


# --- what goes wrong in silence -------------------------------------------------------------------


@pytest.fixture
def program(workshop: BuildContext) -> Path:
    """The compiled workload."""
    return compiled_workload(workshop, "x86_64", INNER).file


@pytest.fixture
def calls(ready: ReadyGuest, program: Path) -> Calls:
    """Calls of the workload, which is in the guest."""
    made = user_function(program, calls=100)
    made.prepare(ready.guest)
    return made


def point_in(program: Path, symbol: str) -> UserPoint:
    place = find_in_program(program, symbol, 0)
    return UserPoint(symbol, 0, place.address, place.code, program=OWN_PROGRAM, file_offset=place.file_offset)


@contextmanager
def attached(ready: ReadyGuest, program: Path, symbol: str = "inner") -> Iterator[EventAttachment]:
    point = point_in(program, symbol)
    with event_attached(ready.guest, probes()["uprobe-event"], point, ready.symbols) as attachment:
        yield attachment


@pytest.mark.usefixtures("calls")
def test_a_uprobe_in_a_file_that_is_not_the_one_that_runs_is_found(ready: ReadyGuest, program: Path) -> None:
    """The file was replaced by one of its name and its bytes: the page that has the uprobe is never mapped."""
    with attached(ready, program) as attachment:
        attachment.wait_until_armed()
        ready.guest.succeed(["cp", OWN_PROGRAM, f"{OWN_PROGRAM}.new"])
        ready.guest.succeed(["mv", f"{OWN_PROGRAM}.new", OWN_PROGRAM])
        with pytest.raises(EvidenceError, match=r"^after enabling, program:inner is not armed by a uprobe's int3"):
            attachment.wait_until_armed()


OF_A_KPROBE = pytest.mark.nightly("an event in the kernel goes wrong so every day, in test_events_and_programs.py")


@OF_A_KPROBE
@pytest.mark.usefixtures("calls")
def test_an_event_that_is_enabled_softly_only_is_found(ready: ReadyGuest, program: Path) -> None:
    with attached(ready, program) as attachment:
        attachment.wait_until_armed()
        ready.guest.put(b"hist:keys=common_pid", f"{INSTANCE}/events/lab/probe/trigger")
        ready.guest.put(b"0", f"{INSTANCE}/events/lab/probe/enable")
        with pytest.raises(EvidenceError, match=r"^the kernel shows the event at program:inner as '0\*', not '1'"):
            attachment.observe()


@OF_A_KPROBE
def test_events_that_the_buffer_lost_are_found(ready: ReadyGuest, program: Path, calls: Calls) -> None:
    with attached(ready, program) as attachment:
        ready.guest.put(b"4", f"{INSTANCE}/buffer_size_kb")
        attachment.set_handler("record")
        called = calls.call(ready.guest, 2000, caller=None, time_limit=LIMIT)
        attachment.set_handler("noop")
        with pytest.raises(EvidenceError, match=r"^the buffer of CPU 0 has lost events"):
            attachment.recorded(called, ready.symbols, None)


def test_hits_that_never_came_to_the_buffer_are_found(ready: ReadyGuest, program: Path, calls: Calls) -> None:
    """Somebody switches the buffer off: the kernel's own count of hits goes on."""
    with attached(ready, program) as attachment:
        attachment.set_handler("record")
        called = calls.call(ready.guest, 100, caller=None, time_limit=LIMIT)
        ready.guest.put(b"0", f"{INSTANCE}/tracing_on")
        calls.call(ready.guest, 50, caller=None, time_limit=LIMIT)
        attachment.set_handler("noop")
        with pytest.raises(
            EvidenceError, match=r"^the kernel has counted 150 hits of the uprobe, and the buffer has 100"
        ):
            attachment.recorded(called, ready.symbols, None)


@pytest.mark.usefixtures("calls")
def test_a_second_program_at_the_place_is_found(ready: ReadyGuest, workshop: BuildContext, program: Path) -> None:
    kind, point = probes()["bpf-uprobe"], point_in(program, "inner")
    with bpf_attached(ready.guest, kind, bpf_tool(workshop, "x86_64"), point, ready.symbols) as attachment:
        attachment.wait_until_armed()
        second = attach(ready.guest, "lab-second", "noop", AttachTarget(kind, point.program, point.file_offset))
        with pytest.raises(
            EvidenceError, match=r"^after attaching, the kernel has 2 uprobes at program:inner, not one"
        ):
            attachment.wait_until_armed()
        second.detach()


@pytest.mark.usefixtures("calls")
def test_a_file_that_was_changed_is_found(ready: ReadyGuest, program: Path) -> None:
    point = point_in(program, "inner")
    text = f"printf '\\314' | dd of={OWN_PROGRAM} bs=1 seek={point.file_offset} conv=notrunc"
    ready.guest.succeed(["sh", "-c", text])
    with pytest.raises(EvidenceError, match=r"^the file of /tmp/workload has cc .* at program:inner, not the original"):
        observe_program(ready.guest, point)


@pytest.mark.parametrize(("symbol", "steps"), [("inner", 100), ("workload", 0)])
def test_an_instruction_is_single_stepped_or_emulated(
    ready: ReadyGuest, program: Path, calls: Calls, symbol: str, steps: int
) -> None:
    """``inner`` begins with a mov, ``workload`` with a call, which the kernel emulates."""
    with attached(ready, program, symbol), ready.guest.counted_interrupts(3) as traps:
        calls.call(ready.guest, 100, caller=None, time_limit=LIMIT)
    assert traps[SINGLE_STEP] == steps


def test_only_processes_of_an_earlier_program_are_ended(ready: ReadyGuest, tmp_path: Path) -> None:
    check_earlier_programs(ready.guest, tmp_path)
