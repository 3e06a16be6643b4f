# SPDX-License-Identifier: GPL-2.0-only
"""Does every call leave one event with its call, and is a missing or foreign event detected?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from elsewhere import ELSEWHERE
from gettimeofday import gettimeofday
from module_maker import ModuleMaker

from orchestrator.artifacts.module_source import ModuleSource, Value, render
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.benchmarks import Entry, benchmarks
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError, GuestError
from orchestrator.probes.arming import ModuleAttachment, module_attached
from orchestrator.probes.attachment import Called
from orchestrator.probes.events import Event, EventKind, check_events, check_order, read_events
from orchestrator.probes.point import find_entry
from orchestrator.run.ready_guest import ReadyGuest

CALLS = 1000
SLOTS = 4096
KINDS = ["kprobe", "kprobe-optimized", "jprobe", "djprobe"]
on_the_three_kernels = pytest.mark.parametrize(
    "kernel",
    [
        pytest.param("debian-686", marks=[pytest.mark.guest(timing="instructions"), ELSEWHERE]),
        pytest.param("lab-i386-up", marks=pytest.mark.guest(kernel="lab-i386-up", timing="instructions")),
        pytest.param(
            "lab-x86_64-smp",
            marks=[
                pytest.mark.kernels("lab-x86_64-smp"),
                pytest.mark.guest(kernel="lab-x86_64-smp", smp=2, timing="tcg"),
            ],
        ),
    ],
)


@contextmanager
def probing(
    ready: ReadyGuest, kernel: Kernel, modules: ModuleMaker, kind: str, entry: Entry = "auto"
) -> Iterator[ModuleAttachment]:
    """The probe at gettimeofday's entry."""
    symbol, offset = place_on(kernel, entry)
    point = find_entry(ready.guest, ready.symbols, symbol, offset)
    values: dict[str, Value] = {"symbol": symbol, "offset": offset, "single_step": int(kind == "kprobe")}
    module = modules.rendered(probes()[kind].template or "", values)
    with module_attached(ready.guest, probes()[kind], module, point, ready.symbols) as attachment:
        attachment.wait_until_armed()
        yield attachment


def place_on(kernel: Kernel, entry: Entry = "auto") -> tuple[str, int]:
    return benchmarks()["gtodbench"].symbols[kernel.spec.arch][entry], kernel.spec.entry_offset


def call(ready: ReadyGuest, calls: int, entry: Entry = "auto") -> Called:
    return gettimeofday(ready.artifacts.kernel.spec.arch, entry).call(ready.guest, calls, caller=None, time_limit=60)


@on_the_three_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_leaves_its_event(
    ready: ReadyGuest, guest_kernel: Kernel, modules: ModuleMaker, kernel: str, kind: str
) -> None:
    with probing(ready, guest_kernel, modules, kind) as attachment:
        attachment.set_handler("record")
        called = call(ready, CALLS)
        attachment.set_handler("noop")
        call(ready, CALLS)
        events = read_events(ready.guest, attachment.module_name)
        assert (events.written, events.lost) == (CALLS, 0)
        assert events.word_size == (4 if guest_kernel.spec.arch == "i386" else 8)
        assert check_events(events, probes()[kind], called, attachment.point, ready.symbols) == CALLS
        assert {event.event for event in events} == {EventKind.of(probes()[kind])}
        # As on a second pass, which begins with nothing of the first.
        attachment.set_handler("record")
        called = call(ready, 7)
        attachment.set_handler("noop")
        events = read_events(ready.guest, attachment.module_name)
        assert check_events(events, probes()[kind], called, attachment.point, ready.symbols) == 7
    ready.guest.check_console()
    assert ready.guest.run(["ls", f"/sys/kernel/debug/{attachment.module_name}"]).status != 0


@pytest.mark.kernels("lab-x86_64-smp")
@pytest.mark.guest(kernel="lab-x86_64-smp", timing="instructions")
def test_a_32_bit_call_of_a_64_bit_kernel_passes_its_own_registers(
    ready: ReadyGuest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    with probing(ready, guest_kernel, modules, "jprobe", "int80") as attachment:
        attachment.set_handler("record")
        called = call(ready, CALLS, "int80")
        attachment.set_handler("noop")
        events = read_events(ready.guest, attachment.module_name)
        assert check_events(events, probes()["jprobe"], called, attachment.point, ready.symbols) == CALLS


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_a_kprobe_records_the_registers_of_the_probed_function(
    ready: ReadyGuest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    """An i386 system call's function has its one parameter, the user's registers, above its return address."""
    with probing(ready, guest_kernel, modules, "kprobe") as attachment:
        attachment.set_handler("record")
        call(ready, 1)
        attachment.set_handler("noop")
        (event,) = read_events(ready.guest, attachment.module_name)
    address, _, pair, caller, *unused = event.args
    assert address == attachment.point.address
    assert unused == [0, 0]
    # A call of the retpoline, five bytes long, goes to the function by way of the table.
    assert ready.guest.read_memory(caller - 5, 1) == b"\xe8"
    # They are at the upper end of the task's stack of 8 KiB.
    assert pair & 0x1FFF > 0x1F00
    assert pair & 0xFFFFFFFF > 0xC0000000


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_a_full_ring_keeps_the_newest_and_counts_the_lost(
    ready: ReadyGuest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    with probing(ready, guest_kernel, modules, "djprobe") as attachment:
        attachment.set_handler("record")
        called = call(ready, 5000)
        attachment.set_handler("noop")
        events = read_events(ready.guest, attachment.module_name)
        assert (events.written, events.lost) == (5000, 904)
        times = [event.tsc for event in events]
        assert len(times) == SLOTS
        assert times == sorted(times)
        with pytest.raises(EvidenceError, match=r"^904 of 5000 events were overwritten before they were read$"):
            check_events(events, probes()["djprobe"], called, attachment.point, ready.symbols)


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_events_that_are_not_these_calls_are_found_out(
    ready: ReadyGuest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    with probing(ready, guest_kernel, modules, "jprobe") as attachment:
        attachment.set_handler("record")
        first = call(ready, 10)
        second = call(ready, 10)
        attachment.set_handler("noop")
        events = read_events(ready.guest, attachment.module_name)
    kind, point, symbols = probes()["jprobe"], attachment.point, ready.symbols
    assert events.written == 20
    # Events of different callers are distinguished by their process.
    assert check_events(events, kind, first, point, symbols) == check_events(events, kind, second, point, symbols) == 10
    ours = tuple(event for event in events if event.pid in first.pids)
    (ring,) = events.rings
    right = dataclasses.replace(events, rings=(dataclasses.replace(ring, events=ours, written=10),))
    assert check_events(right, kind, first, point, symbols) == 10
    assert check_events(right, kind, second, point, symbols) == 0
    for arguments in ((first.arguments[0] + 4, 0), (first.arguments[0], 1)):
        wrong = dataclasses.replace(first, arguments=arguments)
        with pytest.raises(EvidenceError):
            check_events(right, kind, wrong, point, symbols)
    with pytest.raises(EvidenceError, match=r"^argument 0 of an event is "):
        check_events(right, kind, first, dataclasses.replace(point, address=point.address + 1), symbols)


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_hits_in_interrupts_may_come_before_the_hit_that_they_interrupt(
    ready: ReadyGuest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    """A timer hits the probe at every tick, in whatever the tick interrupts; here a handler is slow to read the TSC."""
    kind, (symbol, offset) = probes()["djprobe"], place_on(guest_kernel)
    point = find_entry(ready.guest, ready.symbols, symbol, offset)
    timer = modules.rogue("timer_hit")
    ready.guest.put(timer.file, "/tmp/timer_hit.ko")
    with module_attached(
        ready.guest, kind, modules.built(slow_to_read_the_tsc(symbol, offset)), point, ready.symbols
    ) as attachment:
        attachment.wait_until_armed()
        ready.guest.succeed(["insmod", "/tmp/timer_hit.ko", f"called={ready.symbols.address(symbol):#x}"])
        attachment.set_handler("record")
        called = call(ready, CALLS)
        attachment.set_handler("noop")
        ready.guest.succeed(["rmmod", timer.name])
        events = read_events(ready.guest, attachment.module_name)
    (ring,) = events.rings
    nested = [after for before, after in pairwise(ring.events) if after.tsc < before.tsc]
    assert 0 < len(nested) < CALLS // 100
    # They are of the task that they interrupt.
    assert {event.pid for event in nested} == called.pids
    other_called = dataclasses.replace(called, pids=frozenset())
    assert check_events(events, kind, other_called, point, ready.symbols) == 0
    # In a handler that runs with interrupts off there are none.
    with pytest.raises(EvidenceError, match="they are out of order"):
        check_order(dataclasses.replace(ring, events=tuple(map(as_kprobe, ring.events))))


def slow_to_read_the_tsc(symbol: str, offset: int) -> ModuleSource:
    """A djprobe that takes some 200,000 instructions between an event's slot and its TSC."""
    source = render("djprobe", {"symbol": symbol, "offset": offset})
    reads = "\tslot->tsc = rdtsc();\n"
    assert source.files["ring.h"].count(reads) == 1
    # Five ticks in 1000 calls. (cpu_relax() would end QEMU's block each time, which is 50 times slower.)
    slow = "\tfor (unsigned int turn = 0; turn < 50000; turn++)\n\t\tbarrier();\n"
    return ModuleSource(source.name, {**source.files, "ring.h": source.files["ring.h"].replace(reads, slow + reads)})


def as_kprobe(event: Event) -> Event:
    return dataclasses.replace(event, event=EventKind.KPROBE)


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_a_module_knows_three_handlers_and_records_only_when_asked(
    ready: ReadyGuest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    with probing(ready, guest_kernel, modules, "kprobe") as attachment:
        assert attachment.parameter("handler") == "noop"
        with pytest.raises(GuestError):
            read_events(ready.guest, attachment.module_name)
        with pytest.raises(GuestError):
            ready.guest.put(b"everything", f"/sys/module/{attachment.module_name}/parameters/handler")
        attachment.set_handler("count")
        call(ready, 12)
        assert attachment.parameter("handler") == "count"
        assert attachment.hits() == 12
        attachment.set_handler("noop")
        call(ready, 12)
        assert attachment.hits() == 12
        attachment.set_handler("record")
        assert attachment.hits() == 0
        called = call(ready, 12)
        assert attachment.parameter("handler") == "record"
        assert attachment.hits() == 0
        attachment.set_handler("noop")
        events = read_events(ready.guest, attachment.module_name)
        assert check_events(events, probes()["kprobe"], called, attachment.point, ready.symbols) == 12


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_a_module_that_is_refused_leaves_no_rings_behind(ready: ReadyGuest, modules: ModuleMaker) -> None:
    module = modules.probe("kprobe", "sys_gettimeofday_2005", 0)
    target = f"/tmp/{module.name}.ko"
    ready.guest.put(module.file, target)
    refused = ready.guest.run(["insmod", target, "handler=record"])
    assert refused.status != 0
    assert "no such symbol" in ready.guest.run(["dmesg"]).text
    assert ready.guest.run(["ls", f"/sys/kernel/debug/{module.name}"]).status != 0
    ready.guest.check_console()


@pytest.mark.kernels("lab-x86_64-smp")
@pytest.mark.guest(kernel="lab-x86_64-smp", smp=2, timing="tcg")
@pytest.mark.parametrize("kind", ["kprobe", "jprobe", "djprobe"])
def test_two_cpus_record_side_by_side(ready: ReadyGuest, guest_kernel: Kernel, modules: ModuleMaker, kind: str) -> None:
    calls = 3000
    script = f"taskset 1 gtodbench -c {calls} & taskset 2 gtodbench -c {calls} && wait"
    with probing(ready, guest_kernel, modules, kind) as attachment:
        attachment.set_handler("record")
        ready.guest.succeed(["sh", "-c", script])
        attachment.set_handler("noop")
        events = read_events(ready.guest, attachment.module_name)
    assert events.lost == 0
    assert [ring.written for ring in events.rings] == [calls, calls]
    for ring in events.rings:
        assert len({event.pid for event in ring.events}) == 1
        assert all(before.tsc < after.tsc for before, after in pairwise(ring.events))
    assert len({event.pid for event in events}) == 2
    assert {event.args[0] for event in events} == {attachment.point.address}
    ready.guest.check_console()
