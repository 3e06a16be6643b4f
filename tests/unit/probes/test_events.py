# SPDX-License-Identifier: GPL-2.0-only
"""Is what a module has recorded read back as it is, or not at all, and does every event have to stand for a call?"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog.probes import ProbeKind, probe_kind, probes
from orchestrator.errors import EvidenceError
from orchestrator.paths import data_dir
from orchestrator.probes.attachment import Called
from orchestrator.probes.events import (
    Event,
    EventKind,
    Events,
    Ring,
    check_events,
    check_order,
    parse_ring,
    write_csv,
)
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols

Args = tuple[int, ...]
Recorded = tuple[int, EventKind, int, Args]

U64 = st.integers(0, 2**64 - 1)
EVENTS = st.tuples(U64, st.sampled_from(EventKind), st.integers(0, 2**32 - 1), st.tuples(*[U64] * 6))


def packed(event: Recorded) -> bytes:
    tsc, number, pid, args = event
    return struct.pack("<QII6Q", tsc, number, pid, *args)


def ring_bytes(events: Sequence[Recorded], *, cpu: int = 0, slots: int = 8, word: int = 4) -> bytes:
    """What the module shows of a CPU that has recorded these events, one after the other."""
    held = [b"\0" * 64] * slots
    for number, event in enumerate(events):
        held[number % slots] = packed(event)
    return struct.pack("<8sIIIHHQ", b"labring", 1, cpu, slots, 64, word, len(events)) + b"".join(held)


# --- reading --------------------------------------------------------------------------------------


@given(st.lists(EVENTS, max_size=20), st.sampled_from([1, 2, 8]), st.integers(0, 1023), st.sampled_from([4, 8]))
def test_the_newest_events_are_read_in_their_order(events: Sequence[Recorded], slots: int, cpu: int, word: int) -> None:
    ring = parse_ring(ring_bytes(events, cpu=cpu, slots=slots, word=word), cpu)
    assert ring.events == tuple(Event(cpu, *event) for event in events[-slots:])
    assert (ring.written, Events((ring,)).lost, ring.word_size) == (len(events), max(0, len(events) - slots), word)


ONE = [(7, EventKind.JPROBE, 28, (1, 2, 3, 4, 5, 6))]
GOOD = ring_bytes(ONE)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "it has 0 bytes"),
        (GOOD[:31], "it has 31 bytes"),
        (b"\0" * 32, "it begins with 00 00"),
        (b"L" + GOOD[1:], "it begins with 4c 61"),
        (GOOD[:8] + b"\2" + GOOD[9:], "it begins with"),
        (ring_bytes(ONE, cpu=1), "it begins with"),
        (ring_bytes(ONE, word=2), "it begins with"),
        (GOOD[:20] + b"\x48" + GOOD[21:], "it begins with"),
        (GOOD[:16] + b"\0" + GOOD[17:], "0 slots, and has 544 bytes"),
        (GOOD[:16] + b"\4" + GOOD[17:], "4 slots, and has 544 bytes"),
        (GOOD[:16] + b"\xff\xff\xff\xff" + GOOD[20:], "4294967295 slots"),
        (ring_bytes(ONE, slots=6), "6 slots"),
        (ring_bytes([], slots=1 << 17), "131072 slots"),
        (GOOD[:-1], "8 slots, and has 543 bytes"),
        (GOOD + b"\0", "8 slots, and has 545 bytes"),
        (GOOD[:24] + b"\0" + GOOD[25:], "more events than the 0 that"),
        (GOOD[:-1] + b"\1", "more events than the 1 that"),
        (GOOD[:24] + b"\2" + GOOD[25:], "unknown kind 0"),
        (GOOD[:24] + b"\xff" * 8 + GOOD[32:], "unknown kind 0"),
        (GOOD[:40] + b"\x0b" + GOOD[41:], "unknown kind 11"),
    ],
)
def test_anything_but_a_whole_ring_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(EvidenceError, match=f"^what the module recorded on CPU 0 cannot be read: .*{complaint}"):
        parse_ring(content, 0)


@given(st.lists(st.tuples(st.integers(0, len(GOOD)), st.binary(max_size=2)), max_size=3))
def test_a_damaged_ring_is_read_or_refused(damage: list[tuple[int, bytes]]) -> None:
    content = GOOD
    for place, inserted in damage:
        content = content[:place] + inserted + content[place + 1 :]
    try:
        ring = parse_ring(content, 0)
    except EvidenceError:
        return
    assert len(ring.events) == min(ring.written, 8)
    assert all(len(event.args) == 6 for event in ring.events)


def test_the_kinds_are_the_modules_own() -> None:
    header = (data_dir("kmods") / "lib" / "ring.h").read_text()
    listed = re.search(r"enum lab_event \{(.*?)\}", header, re.DOTALL)
    assert listed is not None
    assert re.findall(r"LAB_EVENT_(\w+)", listed[1]) == [kind.name for kind in EventKind]
    assert re.findall(r"= (\d+)", listed[1]) == ["1"] == [str(int(min(EventKind)))]
    assert list(EventKind) == list(range(1, len(EventKind) + 1))


def test_every_kind_of_probe_has_its_event() -> None:
    kinds = {name: EventKind.of(kind) for name, kind in probes().items() if kind.template is not None}
    assert kinds["kprobe-optimized"] is EventKind.KPROBE
    assert kinds["jprobe"] is EventKind.JPROBE
    assert kinds["djprobe"] is EventKind.DJPROBE
    assert kinds["fprobe"] is EventKind.FPROBE
    assert kinds["fprobe-exit"] is EventKind.KRETPROBE
    assert kinds["ftrace-direct"] is EventKind.FTRACE
    assert kinds["hook"] is kinds["tracepoint"] is EventKind.SYSCALL
    assert EventKind.of(probe_kind("tracepoint.sched_switch")) is EventKind.TRACEPOINT


# --- checking -------------------------------------------------------------------------------------

SYMBOLS = Symbols(
    b"c1000000 T _stext\nc1484720 T _etext\nc1470000 T __entry_text_start\nc1471000 T entry_INT80_32\n"
    b"c1472000 T __entry_text_end\nc1002400 T ret_from_fork\nc1003000 T do_int80_syscall_32\n"
    b"c108c7a0 T __ia32_sys_gettimeofday\n"
)
POINT = ProbePoint("__ia32_sys_gettimeofday", 0, 0xC108C7A0, bytes(16))
CALLED = Called("sysenter", 3, frozenset({28}), number=78, arguments=(0x8050228, 0, 0, 0, 0, 0), result=0)
CALLER, ENTRY = 0xC100240C, 0xC14710F9
FIRST: dict[EventKind, Args] = {
    EventKind.KPROBE: (POINT.address, 0xC01E3FB40000004E, 0xC01E3FB4C01E3F94, CALLER, 0, 0),
    EventKind.DJPROBE: (POINT.address, 0xC01E3FB40000004E, 0xC01E3FB4C01E3F94, CALLER, 0, 0),
    EventKind.FPROBE: (POINT.address, 0xC01E3FB40000004E, 0xC01E3FB4C01E3F94, CALLER, 0, 0),
    EventKind.JPROBE: (POINT.address, 0x8050228, 0, 0, 0, 0),
    EventKind.KRETPROBE: (POINT.address, 0, CALLER, 0, 0, 0),
    EventKind.SYSCALL: (78, 0x8050228, 0, 4, 5, 6),
    EventKind.FTRACE: (POINT.address, CALLER, 0, 0, 0, 0),
}


def probe(event: EventKind) -> ProbeKind:
    """A kind of probe that records such events, whether or not the catalogue has it."""
    return probes()["kprobe"].model_copy(update={"records": event.name.lower()})


def recorded(event: EventKind, *, word: int = 4) -> Events:
    """What the calls leave on two CPUs, the first of which has gone by before the second has begun."""
    made = [Event(0, 100, event, 28, FIRST[event]), Event(0, 101, event, 28, FIRST[event])]
    other_event = Event(1, 50, event, 28, FIRST[event])
    return Events((Ring(tuple(made), 2, word), Ring((other_event,), 1, word)))


def changed(events: Events, cpu: int, number: int, change: Callable[[Event], Event]) -> Events:
    """The same, but for one event."""
    rings = list(events.rings)
    inside = list(rings[cpu].events)
    inside[number] = change(inside[number])
    rings[cpu] = dataclasses.replace(rings[cpu], events=tuple(inside))
    return Events(tuple(rings))


def with_argument(number: int, value: int) -> Callable[[Event], Event]:
    return lambda event: dataclasses.replace(event, args=(*event.args[:number], value, *event.args[number + 1 :]))


def checked(events: Events, event: EventKind, called: Called = CALLED) -> int:
    return check_events(events, probe(event), called, POINT, SYMBOLS)


@pytest.mark.parametrize("event", FIRST)
def test_one_event_for_every_call_is_right(event: EventKind) -> None:
    assert checked(recorded(event), event) == 3


@pytest.mark.parametrize("event", FIRST)
def test_nothing_recorded_is_reported(event: EventKind) -> None:
    assert checked(Events((Ring((), 0, 4),)), event) == 0


@pytest.mark.parametrize("event", FIRST)
def test_events_that_were_overwritten_are_noticed(event: EventKind) -> None:
    first, second = recorded(event).rings
    overwritten = Events((dataclasses.replace(first, written=906), second))
    assert (overwritten.written, overwritten.lost) == (907, 904)
    with pytest.raises(EvidenceError, match=r"^904 of 907 events were overwritten before they were read$"):
        checked(overwritten, event)


WITH_INTERRUPTS_ON = [EventKind.DJPROBE, EventKind.KRETPROBE, EventKind.FTRACE, EventKind.FPROBE]
OUT_OF_ORDER = r"^an event follows one of TSC \d+ on its CPU: they are out of order"


@pytest.mark.parametrize("event", FIRST)
@pytest.mark.parametrize("tsc", [100, 99, 0])
def test_events_out_of_order_are_noticed(event: EventKind, tsc: int) -> None:
    events = changed(recorded(event), 0, 1, lambda found: dataclasses.replace(found, tsc=tsc))
    if event in WITH_INTERRUPTS_ON and tsc < 100:
        assert checked(events, event) == 3
        events = changed(events, 0, 1, lambda found: dataclasses.replace(found, pid=29))
    with pytest.raises(EvidenceError, match=r"^an event follows one of TSC 100 on its CPU: they are out of order"):
        checked(events, event)


Handler = list["Handler"]
"""A handler that records, and what interrupts it between its slot and its TSC, one after the other."""

HANDLERS: st.SearchStrategy[Handler] = st.recursive(
    st.just([]), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=4
)


def contexts(handler: Handler) -> int:
    return 1 + max(map(contexts, handler), default=0)


def interrupted(handler: Handler) -> int:
    return bool(handler) + sum(map(interrupted, handler))


@dataclasses.dataclass
class Recording:
    """A CPU that records: a handler takes a slot, and reads the TSC when what interrupted it has done so."""

    tscs: list[int] = dataclasses.field(default_factory=list)
    clock: int = 0

    def record(self, handler: Handler) -> None:
        slot = len(self.tscs)
        self.tscs.append(0)
        for inner in handler:
            self.record(inner)
        self.clock += 1
        self.tscs[slot] = self.clock


def tscs_of(handlers: Sequence[Handler]) -> list[int]:
    """What these handlers leave behind, one after the other, between enough others for so many interruptions."""
    cpu = Recording()
    for handler in [*handlers, *[[]] * (100 * sum(map(interrupted, handlers)))]:
        cpu.record(handler)
    return cpu.tscs


def ring_of(tscs: Sequence[int], event: EventKind = EventKind.DJPROBE, pids: Mapping[int, int] | None = None) -> Ring:
    made = [Event(0, tsc, event, (pids or {}).get(slot, 28), (0,) * 6) for slot, tsc in enumerate(tscs)]
    return Ring(tuple(made), len(made), 4)


@given(st.lists(HANDLERS.filter(lambda handler: contexts(handler) <= 4), max_size=4))
def test_what_interrupts_a_handler_may_have_an_earlier_time(handlers: list[Handler]) -> None:
    tscs = tscs_of(handlers)
    for event in WITH_INTERRUPTS_ON:
        check_order(ring_of(tscs, event))
    for event in set(FIRST) - set(WITH_INTERRUPTS_ON):
        if tscs != sorted(tscs):
            with pytest.raises(EvidenceError, match=OUT_OF_ORDER):
                check_order(ring_of(tscs, event))


@given(st.lists(HANDLERS, min_size=1, max_size=4), st.data())
def test_an_interrupt_has_the_task_that_it_interrupts(handlers: list[Handler], data: st.DataObject) -> None:
    tscs = tscs_of([[[]], *handlers])
    later = [slot for slot in range(1, len(tscs)) if tscs[slot] < tscs[slot - 1]]
    with pytest.raises(EvidenceError, match=OUT_OF_ORDER):
        check_order(ring_of(tscs, pids={data.draw(st.sampled_from(later)): 29}))


@given(st.integers(4, 300), st.data())
def test_two_events_that_changed_places_are_noticed(size: int, data: st.DataObject) -> None:
    """Unless they are so close that an interrupt may have come between them."""
    one = data.draw(st.integers(0, size - 4))
    other = data.draw(st.integers(one + 3, size - 1))
    tscs = list(range(size))
    tscs[one], tscs[other] = tscs[other], tscs[one]
    with pytest.raises(EvidenceError, match=OUT_OF_ORDER):
        check_order(ring_of(tscs))


@given(st.integers(2, 300), st.data())
def test_a_time_that_comes_twice_is_noticed(size: int, data: st.DataObject) -> None:
    tscs = list(range(size))
    one = data.draw(st.integers(0, size - 2))
    tscs[data.draw(st.integers(one + 1, size - 1))] = tscs[one]
    with pytest.raises(EvidenceError, match=OUT_OF_ORDER):
        check_order(ring_of(tscs))


def test_handlers_are_nested_no_deeper_than_contexts_are() -> None:
    deepest: Handler = [[[[]]]]
    check_order(ring_of(tscs_of([deepest])))
    with pytest.raises(EvidenceError, match=OUT_OF_ORDER):
        check_order(ring_of(tscs_of([[deepest]])))


@pytest.mark.parametrize("size", [4, 100, 400])
def test_not_every_event_can_have_been_interrupted(size: int) -> None:
    for pairs in range(2 + size // 100):
        tscs = list(range(size))
        for number in range(pairs):
            tscs[2 * number], tscs[2 * number + 1] = 2 * number + 1, 2 * number
        if pairs <= 1 + size // 100:
            check_order(ring_of(tscs))
    with pytest.raises(EvidenceError, match=f"^{pairs + 1} of {size} events on CPU 0 have a higher TSC than the next"):
        check_order(ring_of([*tscs[: 2 * pairs], 2 * pairs + 1, 2 * pairs, *range(2 * pairs + 2, size)]))


@pytest.mark.parametrize("event", FIRST)
def test_events_of_another_kind_are_noticed(event: EventKind) -> None:
    stranger = EventKind.JPROBE if event is not EventKind.JPROBE else EventKind.KPROBE
    events = changed(recorded(event), 1, 0, lambda found: dataclasses.replace(found, event=stranger))
    with pytest.raises(EvidenceError, match=f"^an event is of the kind {stranger.name}, not {event.name}"):
        checked(events, event)


@pytest.mark.parametrize("event", FIRST)
def test_another_process_s_events_do_not_count(event: EventKind) -> None:
    events = changed(recorded(event), 1, 0, lambda found: dataclasses.replace(found, pid=29, args=(5,) * 6))
    assert checked(events, event) == 2


@pytest.mark.parametrize(
    ("event", "place", "depth", "outermost", "complaint"),
    [
        (EventKind.KPROBE, POINT.address, 5, ENTRY, None),
        (EventKind.KPROBE, POINT.address, 5, CALLER, None),
        (EventKind.KPROBE, POINT.address + 1, 5, ENTRY, r"^a stack is of 0xc108c7a1, not of 0xc108c7a0\n"),
        (EventKind.KPROBE, POINT.address, 2, ENTRY, r"^a stack of 2 functions ends at entry_INT80_32\+0xf9, not at t"),
        (EventKind.KPROBE, POINT.address, 5, 0xC1003010, r"ends at do_int80_syscall_32\+0x10, not at the entry into"),
        (EventKind.KPROBE, POINT.address, 5, 0xD0001000, r"^a stack of 5 functions ends at _etext\+0x"),
        (EventKind.SYSCALL, 78, 4, ENTRY, None),
        (EventKind.TRACEPOINT, 0, 4, ENTRY, None),
    ],
)
def test_a_stack_is_of_the_place_and_ends_in_the_kernel(
    event: EventKind, place: int, depth: int, outermost: int, complaint: str | None
) -> None:
    stack = Event(0, 100, EventKind.STACK, 28, (place, depth, outermost, 0, 0, 0))
    events = Events((Ring((stack,), 1, 4),))
    kind = probe_kind("tracepoint.sched_switch") if event is EventKind.TRACEPOINT else probe(event)
    refused = pytest.raises(EvidenceError, match=complaint)
    with contextlib.nullcontext() if complaint is None else refused:
        assert check_events(events, kind, CALLED, POINT, SYMBOLS, stacks=True) == 1
    with pytest.raises(EvidenceError, match=r"^an event is of the kind STACK, not "):
        check_events(events, kind, CALLED, POINT, SYMBOLS)


def test_a_hook_at_every_system_call_records_others_as_well() -> None:
    events = recorded(EventKind.SYSCALL)
    first = events.rings[0]
    other_pair = (
        Event(0, 102, EventKind.SYSCALL, 1, (78, 1, 2, 3, 4, 5)),
        Event(0, 103, EventKind.SYSCALL, 28, (4,) * 6),
    )
    more = Events((Ring((*first.events, *other_pair), 4, 4), events.rings[1]))
    assert checked(more, EventKind.SYSCALL) == 3
    fewer = changed(more, 0, 0, lambda event: dataclasses.replace(event, pid=1))
    assert checked(fewer, EventKind.SYSCALL) == 2


@pytest.mark.parametrize(
    ("event", "number", "complaint"),
    [
        *((event, 0, "argument 0 of an event is 0x1, not 0xc108c7a0") for event in FIRST if event != 5),
        (EventKind.KPROBE, 1, "argument 1 of an event is 0x1, and 0xc01e3fb40000004e in the one before"),
        (EventKind.KPROBE, 3, "was called from 0x1, which is not in the kernel's text"),
        (EventKind.KPROBE, 4, "argument 4 of an event is 0x1, and 0x0 in the one before"),
        (EventKind.DJPROBE, 2, "argument 2 of an event is 0x1, and 0xc01e3fb4c01e3f94 in the one before"),
        (EventKind.DJPROBE, 3, "was called from 0x1, which is not in the kernel's text"),
        (EventKind.FPROBE, 1, "argument 1 of an event is 0x1, and 0xc01e3fb40000004e in the one before"),
        (EventKind.FPROBE, 3, "was called from 0x1, which is not in the kernel's text"),
        *((EventKind.JPROBE, number, f"argument {number} of an event is 0x1, not ") for number in range(1, 6)),
        (EventKind.KRETPROBE, 1, "argument 1 of an event is 0x1, not 0x0"),
        (EventKind.KRETPROBE, 2, "was called from 0x1, which is not in the kernel's text"),
        (EventKind.SYSCALL, 1, "argument 1 of an event is 0x1, not 0x8050228"),
        (EventKind.SYSCALL, 2, "argument 2 of an event is 0x1, not 0x0"),
        (EventKind.FTRACE, 1, "was called from 0x1, which is not in the kernel's text"),
    ],
)
def test_a_wrong_argument_is_noticed(event: EventKind, number: int, complaint: str) -> None:
    with pytest.raises(EvidenceError, match=complaint):
        checked(changed(recorded(event), 0, 1, with_argument(number, 1)), event)


@pytest.mark.parametrize("event", [EventKind.KPROBE, EventKind.DJPROBE, EventKind.FPROBE])
@pytest.mark.parametrize("caller", [0xC0FFFFFF, 0xC1484720, 0])
def test_a_caller_outside_the_kernel_is_noticed(event: EventKind, caller: int) -> None:
    events = recorded(event)
    for cpu, number in ((0, 0), (0, 1), (1, 0)):
        events = changed(events, cpu, number, with_argument(3, caller))
    with pytest.raises(EvidenceError, match=f"was called from {caller:#x}, which is not in the kernel's text"):
        checked(events, event)


@pytest.mark.parametrize("event", [EventKind.KPROBE, EventKind.DJPROBE, EventKind.FPROBE])
def test_on_x86_64_what_lies_above_the_return_address_may_change(event: EventKind) -> None:
    events = recorded(event, word=8)
    for cpu, number in ((0, 0), (0, 1), (1, 0)):
        for place, value in enumerate((POINT.address, 0x60, 0xFFFFFFFFFFFFFFFF, 0, 2 * cpu + number, CALLER)):
            events = changed(events, cpu, number, with_argument(place, value))
    assert checked(events, event) == 3
    for number in (1, 2, 3):
        with pytest.raises(EvidenceError, match=f"^argument {number} of an event is 0x1, and "):
            checked(changed(events, 0, 1, with_argument(number, 1)), event)
    with pytest.raises(EvidenceError, match="was called from 0x1,"):
        checked(changed(events, 0, 1, with_argument(5, 1)), event)


def test_inside_a_function_less_is_known() -> None:
    """The stack's top is no return address there, and calls may come by different ways."""
    inside = dataclasses.replace(POINT, is_entry=False, is_called_directly=False)
    events = changed(recorded(EventKind.KPROBE), 0, 1, with_argument(3, 7))
    assert check_events(events, probe(EventKind.KPROBE), CALLED, inside, SYMBOLS) == 3
    wrong = changed(events, 0, 1, with_argument(0, 1))
    with pytest.raises(EvidenceError, match=r"^argument 0 of an event is 0x1"):
        check_events(wrong, probe(EventKind.KPROBE), CALLED, inside, SYMBOLS)


def test_what_a_user_s_own_module_records_is_its_own_affair() -> None:
    kind = probe(EventKind.KPROBE).model_copy(update={"file": Path("/own.c.j2")})
    events = changed(recorded(EventKind.JPROBE), 1, 0, lambda event: dataclasses.replace(event, pid=29, args=(5,) * 6))
    assert check_events(events, kind, CALLED, POINT, SYMBOLS) == 2


def test_rings_of_two_architectures_are_refused() -> None:
    four, eight = recorded(EventKind.KPROBE), recorded(EventKind.KPROBE, word=8)
    with pytest.raises(EvidenceError, match=r"registers of \[4, 8\] bytes$"):
        checked(Events((four.rings[0], eight.rings[1])), EventKind.KPROBE)


# --- keeping --------------------------------------------------------------------------------------


def test_events_are_kept_as_csv(tmp_path: Path) -> None:
    first = Event(0, 2927627497706, EventKind.KPROBE, 52, (0xC108C7A0, 0, 1, 0xFFFFFFFFFFFFFFFF, 4, 5))
    second = Event(1, 7, EventKind.KRETPROBE, 1, (0,) * 6)
    write_csv(Events((Ring((first,), 9, 4), Ring((second,), 1, 4))), tmp_path / "events.csv")
    assert (tmp_path / "events.csv").read_text() == (
        "cpu,tsc,event,pid,arg0,arg1,arg2,arg3,arg4,arg5\n"
        "0,2927627497706,kprobe,52,0xc108c7a0,0x0,0x1,0xffffffffffffffff,0x4,0x5\n"
        "1,7,kretprobe,1,0x0,0x0,0x0,0x0,0x0,0x0\n"
    )
