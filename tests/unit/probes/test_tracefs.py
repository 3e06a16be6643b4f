# SPDX-License-Identifier: GPL-2.0-only
"""Is it found out whom the function tracer calls at a function, from its list and the code that it has patched?"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import pytest
from guest_with_files import guest_with
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.arch import Arch
from orchestrator.catalog.probes import Handler, probe_kind, probes
from orchestrator.errors import CommandFailed, EvidenceError, GuestError, LabError, PlaceRefused, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Called
from orchestrator.probes.event_attachment import EventAttachment, definition_of, event_attached
from orchestrator.probes.evidence import Observation, check_armed, check_called, check_same, followed
from orchestrator.probes.function_graph import FunctionGraph, GraphedCall
from orchestrator.probes.graph_attachment import GraphAttachment, graph_attached
from orchestrator.probes.place import Place
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.traced_functions import (
    BPF_TRAMPOLINE,
    Traced,
    called_by_tracer,
    check_trampoline,
    direct_trampoline,
    find_traced,
)
from orchestrator.probes.tracefs import (
    INSTANCE,
    Definition,
    TracedEvent,
    TraceEvent,
    define,
    number_field,
    profiled,
    traced_event,
)

NAME = "__x64_sys_gettimeofday"


KPROBES, GRAPH = frozenset({"kprobe_ftrace_handler"}), frozenset({"ftrace_graph_func"})


# Lines as Debian's kernels 6.1 print them.
LISTS = {
    f"{NAME} (1) R    \n": Traced(1, 1),
    f"{NAME} (2) R    \t ->arch_ftrace_ops_list_func+0x0/0x1d0\n": Traced(2, 1),
    f"{NAME} (1) R    \ttramp: 0xffffffffc020e000 (kprobe_ftrace_handler+0x0/0x1b0) "
    "->kprobe_ftrace_handler+0x0/0x1b0\n": Traced(1, 1, 0xFFFFFFFFC020E000, KPROBES),
    f"{NAME} (1) R   D\ttramp: ftrace_regs_caller+0x0/0x6e (call_direct_funcs+0x0/0x30)\n"
    "\tdirect-->trampoline_noop+0x0/0x30 [lab_ftrace_direct]\n": Traced(
        1,
        1,
        "ftrace_regs_caller+0x0/0x6e",
        frozenset({"call_direct_funcs"}),
        "trampoline_noop+0x0/0x30 [lab_ftrace_direct]",
    ),
    f"{NAME} (1) R   D\t\n\tdirect-->bpf_trampoline_6442453466+0x0/0x1000\ngetname (1)      \n": Traced(
        1, 2, direct="bpf_trampoline_6442453466+0x0/0x1000"
    ),
    "getname (1)      \n"
    f"{NAME} (1)      \ttramp: 0xffffffffc0210000 (ftrace_func+0x0/0x10 [lab_ftrace]) "
    "->ftrace_func+0x0/0x10 [lab_ftrace]\n": Traced(1, 2, 0xFFFFFFFFC0210000, frozenset({"ftrace_func [lab_ftrace]"})),
    f"{NAME} (1)      \ttramp: 0xffffffffc0210000 (f+0x0/0x10 [m]) ->ftrace_ops_assist_func+0x0/0xf0\n": Traced(
        1, 1, 0xFFFFFFFFC0210000, frozenset({"f [m]", "ftrace_ops_assist_func"})
    ),
    f"{NAME} (1)      \ttramp: lab_ftrace_init+0x0/0x1000 [lab_ftrace] (ftrace_record+0x0/0x90 [lab_ftrace]) "
    "->ftrace_record+0x0/0x90 [lab_ftrace]\n": Traced(
        1, 1, "lab_ftrace_init+0x0/0x1000 [lab_ftrace]", frozenset({"ftrace_record [lab_ftrace]"})
    ),
    # As Linux 6.18 and 7.3 print them.
    f"{NAME} (1)            \ttramp: 0xffffffffc0220000 (ftrace_graph_func+0x0/0x60) ->ftrace_graph_func+0x0/0x60\t"
    "subops: {ent:fprobe_entry+0x0/0x2a0 ret:fprobe_return+0x0/0x160}\n": Traced(
        1, 1, 0xFFFFFFFFC0220000, GRAPH, graph=("ent:fprobe_entry ret:fprobe_return",)
    ),
    f"{NAME} (1)            \ttramp: 0xffffffffc0220000 (ftrace_graph_func+0x0/0x70) ->ftrace_graph_func+0x0/0x70\t"
    "subops: {ent:graph_entry+0x0/0x10 ret:graph_return+0x0/0x130} {ent:mine+0x0/0x20 [mine] ret:0x0}\n": Traced(
        1, 1, 0xFFFFFFFFC0220000, GRAPH, graph=("ent:graph_entry ret:graph_return", "ent:mine [mine] ret:0x0")
    ),
    f"{NAME} (1) R   D\t\n\tdirect(jmp)-->bpf_trampoline_6442453466+0x0/0x1000\n": Traced(
        1, 1, direct="bpf_trampoline_6442453466+0x0/0x1000", jumps=True
    ),
}


@pytest.mark.parametrize("listing", LISTS)
def test_a_function_is_found_in_the_tracer_s_list(listing: str) -> None:
    assert find_traced(listing, {NAME, "__ia32_sys_gettimeofday"}) == LISTS[listing]


def test_a_function_of_a_module_is_found_by_its_module() -> None:
    listing = f"{NAME} (1) R    \n{NAME} [mine] (2) R    \n"
    assert find_traced(listing, {NAME}, "mine") == Traced(2, 2)
    assert find_traced(listing, {NAME}) == Traced(1, 2)
    assert find_traced(listing, {NAME}, "other") is None


@pytest.mark.parametrize(
    "listing", ["", "getname (1)      \n", f"{NAME} [mine] (1)      \n", f"{NAME}\n", f"x{NAME} (1)\n"]
)
def test_other_functions_are_not_taken_for_it(listing: str) -> None:
    assert find_traced(listing, {NAME}) is None


def test_a_function_is_listed_under_one_of_its_names() -> None:
    symbols = Symbols(b"c108b120 T __ia32_sys_getpid\nc108b120 t __do_sys_getpid\nc108b120 t module_function\t[mine]\n")
    assert symbols.names(0xC108B120) == {"__ia32_sys_getpid", "__do_sys_getpid"}
    assert symbols.names(0x108B120) == symbols.names(0xC108B121) == frozenset()
    assert find_traced("__do_sys_getpid (1) R    \n", symbols.names(0xC108B120)) == Traced(1, 1)


SYMBOLS = Symbols(
    b"c10596e4 T ftrace_caller\nc105970b T ftrace_call\nc1059728 T ftrace_regs_caller\nc1059761 T ftrace_regs_call\n"
    b"c105b900 T kprobe_ftrace_handler\nc115b230 T arch_ftrace_ops_list_func\nc115b230 T ftrace_ops_list_func\n"
    b"c115c000 t other\n"
)


@dataclass
class ListingGuest:
    """A guest whose /proc/kallsyms has these lines."""

    there: str

    def get(self, path: str, **_: object) -> bytes:
        assert path == "/proc/kallsyms"
        return self.there.encode()


FREED = "ffffffffa0005000 T lab_ftrace_init\t[lab_ftrace]\n"


TRAMPOLINE = "ffffffffa0005000 t ftrace_trampoline\t[__builtin__ftrace]\n"


@pytest.mark.parametrize(("there", "leads"), [(FREED + TRAMPOLINE, True), (FREED, False), (TRAMPOLINE, False)])
def test_a_trampoline_in_memory_that_an_init_function_had_is_found(there: str, leads: bool) -> None:
    guest = cast(Guest, ListingGuest(there))
    traced = Traced(1, 1, "lab_ftrace_init+0x0/0x1000 [lab_ftrace]", frozenset({"ftrace_record [lab_ftrace]"}))
    if leads:
        assert called_by_tracer(guest, SYMBOLS, traced, 0xFFFFFFFFA0005000) == "ftrace_record [lab_ftrace]"
    else:
        with pytest.raises(EvidenceError, match=r"leads to 0xffffffffa0005000, and its trampoline is at lab_ftrace_"):
            called_by_tracer(guest, SYMBOLS, traced, 0xFFFFFFFFA0005000)


@pytest.mark.parametrize(
    ("target", "called"),
    [
        (0xFFFFFFFFA0001000, "trampoline_noop [lab_ftrace_direct]"),
        (0xFFFFFFFFA0001001, "0xffffffffa0001001"),
        (0xFFFFFFFFA0002000, BPF_TRAMPOLINE),
        (0xFFFFFFFFA0003000, "bpf_trampoline_1 [mine]"),
        (0xFFFFFFFF81000000, "0xffffffff81000000"),
    ],
)
def test_a_trampoline_that_is_called_directly_belongs_to_bpf_or_a_module(target: int, called: str) -> None:
    listing = (
        "ffffffff81000000 T ftrace_caller\n"
        "ffffffffa0001000 t trampoline_noop\t[lab_ftrace_direct]\n"
        "ffffffffa0002000 t bpf_trampoline_6442493456\t[bpf]\n"
        "ffffffffa0003000 t bpf_trampoline_1\t[mine]\n"
    )
    assert direct_trampoline(cast(Guest, ListingGuest(listing)), target) == called


def test_symbols_are_read_again_where_the_call_or_the_list_has_changed() -> None:
    guest = ListingGuest("")
    known: dict[tuple[bytes, Traced], str] = {}

    def called(listed: str, live: bytes = LIVE) -> str | None:
        seen = Observation(live, "[TRACED]", traced=Traced(1, 1, direct=listed))
        kind = probes()["ftrace-direct"]
        return followed(cast(Guest, guest), SYMBOLS, kind, POINT, seen, known).called

    target = POINT.address + 5 + int.from_bytes(LIVE[1:5], "little")
    guest.there = f"{target:x} t bpf_trampoline_1\t[bpf]\n"
    assert called("bpf_trampoline_1+0x0/0x1000") == BPF_TRAMPOLINE
    guest.there = f"{target:x} t mine\t[mine]\n{target + 1:x} t other\t[mine]\n"
    assert called("bpf_trampoline_1+0x0/0x1000") == BPF_TRAMPOLINE
    assert called("mine+0x0/0x10 [mine]") == "mine [mine]"
    elsewhere = bytes([LIVE[0], LIVE[1] + 1]) + LIVE[2:]
    assert called("bpf_trampoline_1+0x0/0x1000", elsewhere) == "other [mine]"


IMAGE, PROGRAM = 0xFFFFFFFFA0002000, 0xFFFFFFFFC0001234


@dataclass
class TrampolineGuest:
    """A guest whose trampoline calls a program after some of its bytes, and ends with a call that is cut off."""

    program: int

    def read_memory(self, address: int, size: int) -> bytes:
        assert address == IMAGE
        start = b"\x55\xe8\x48\x89\xe5"
        called = self.program - IMAGE - len(start) - 5
        return (start + b"\xe8" + called.to_bytes(4, "little", signed=True)).ljust(size - 2, b"\xcc") + b"\xe8\x00"


@pytest.mark.parametrize(
    ("listed", "program", "problem"),
    [
        ("bpf_trampoline_6442493456+0x0/0x66", PROGRAM, None),
        ("bpf_trampoline_6442493456+0x0/0x1000", PROGRAM, None),
        (
            "bpf_trampoline_6442493456+0x0/0x66",
            PROGRAM + 1,
            "nothing calls the BPF program at 0xffffffffc000123d or 0xffffffffc0001234",
        ),
        ("bpf_trampoline_6442493456+0x8/0x66", PROGRAM, "which is no trampoline of BPF's"),
        ("trampoline_noop+0x0/0x66 [lab_ftrace_direct]", PROGRAM, "which is no trampoline of BPF's"),
        (None, PROGRAM, "which is no trampoline of BPF's"),
    ],
)
def test_a_trampoline_of_bpf_has_to_call_the_program(listed: str | None, program: int, problem: str | None) -> None:
    guest, traced = cast(Guest, TrampolineGuest(program)), Traced(1, 1, direct=listed)
    if problem is None:
        check_trampoline(guest, traced, IMAGE, [PROGRAM + 9, PROGRAM])
        return
    with pytest.raises(EvidenceError, match=f"{problem}$"):
        check_trampoline(guest, traced, IMAGE, [PROGRAM + 9, PROGRAM])


@dataclass
class PatchedGuest:
    """A guest in whose kernel the tracer's shared entries call these functions."""

    calls: dict[int, int]

    def read_memory(self, address: int, size: int) -> bytes:
        assert size == 5
        return b"\xe8" + (self.calls[address] - address - 5).to_bytes(4, "little", signed=True)


@pytest.mark.parametrize(
    ("target", "called"),
    [(0xC1059728, "kprobe_ftrace_handler"), (0xC10596E4, "ftrace_ops_list_func"), (0xC105B900, None)],
)
def test_a_call_is_followed_through_the_shared_entries(target: int, called: str | None) -> None:
    guest = cast(Guest, PatchedGuest({0xC1059761: 0xC105B900, 0xC105970B: 0xC115B230}))
    if called is not None:
        assert called_by_tracer(guest, SYMBOLS, Traced(1, 1), target) == called
        return
    with pytest.raises(EvidenceError, match=r"^the call leads to 0xc105b900, which is no entry of the function tracer"):
        called_by_tracer(guest, SYMBOLS, Traced(1, 1), target)


def test_a_shared_entry_that_leads_nowhere_is_noticed() -> None:
    guest = cast(Guest, PatchedGuest({0xC1059761: 0xC105B901, 0xC105970B: 0xC115C000}))
    with pytest.raises(EvidenceError, match=r"^the function tracer's own call at 0xc1059761 is e8 .* leads nowhere"):
        called_by_tracer(guest, SYMBOLS, Traced(1, 1), 0xC1059728)
    assert called_by_tracer(guest, SYMBOLS, Traced(1, 1), 0xC10596E4) == "other"


def test_a_call_must_lead_to_the_listed_trampoline() -> None:
    traced = Traced(1, 1, 0xFFFFFFFFC020E000, KPROBES)
    guest = cast(Guest, PatchedGuest({}))
    assert called_by_tracer(guest, SYMBOLS, traced, 0xFFFFFFFFC020E000) == "kprobe_ftrace_handler"
    with pytest.raises(EvidenceError, match=r"^the call leads to 0xffffffffc020f000, and its trampoline is at 0x"):
        called_by_tracer(guest, SYMBOLS, traced, 0xFFFFFFFFC020F000)


POINT = ProbePoint(NAME, 0, 0xFFFFFFFF81150DF0, bytes.fromhex("0f1f440000") + bytes(11))


LIVE = bytes.fromhex("e8b6887a0c") + bytes(11)


ONE_KPROBE = Observation(LIVE, "[FTRACE]", 1, Traced(1, 1), "kprobe_ftrace_handler")


ONE_HANDLER = Observation(LIVE, "[TRACED]", 1, Traced(1, 1), "ftrace_func [lab_ftrace]")


ONE_FPROBE = Observation(LIVE, "[TRACED]", 1, Traced(1, 1), "fprobe_handler")


ONE_TRAMPOLINE = Observation(LIVE, "[TRACED]", 1, Traced(1, 1), "trampoline_noop [lab_ftrace_direct]")


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("kprobe-ftrace", ONE_KPROBE),
        ("kretprobe-ftrace", ONE_KPROBE),
        ("ftrace", ONE_HANDLER),
        ("fprobe", ONE_FPROBE),
        ("fprobe-exit", ONE_FPROBE),
        ("ftrace-direct", ONE_TRAMPOLINE),
    ],
)
def test_a_traced_function_has_one_user(kind: str, seen: Observation) -> None:
    check_armed(probes()[kind], POINT, seen, "now")
    two = replace(seen, traced=Traced(2, 1))
    with pytest.raises(EvidenceError, match=f"^now, the function tracer has 2 users of {NAME}, not one"):
        check_armed(probes()[kind], POINT, two, "now")
    with pytest.raises(EvidenceError, match=f"^now, the function tracer's users of {NAME} became 2, from 1"):
        check_same(probes()[kind], seen, two, POINT, "now")
    with pytest.raises(EvidenceError, match=f"^now, the function tracer came to call other at {NAME}, and no longer "):
        check_same(probes()[kind], seen, replace(seen, called="other"), POINT, "now")


@pytest.mark.parametrize(
    ("kind", "called", "functions", "right"),
    [
        ("kprobe-ftrace", "kprobe_ftrace_handler", 2, True),
        ("kprobe-ftrace", "ftrace_ops_assist_func by way of kprobe_ftrace_handler", 2, True),
        ("kprobe-ftrace", "ftrace_ops_assist_func by way of other", 1, False),
        ("kprobe-ftrace", "ftrace_ops_list_func", 1, False),
        ("kprobe-ftrace", "ftrace_func [lab_ftrace]", 1, False),
        ("ftrace", "ftrace_count [lab_ftrace]", 2, True),
        ("ftrace", "ftrace_func [other]", 1, False),
        ("ftrace", "ftrace_func [lab_ftrace] by way of ftrace_ops_assist_func", 1, False),
        ("ftrace", "ftrace_ops_assist_func by way of ftrace_func [lab_ftrace]", 1, False),
        ("ftrace", "ftrace_ops_list_func", 1, True),
        ("ftrace", "ftrace_ops_list_func", 2, False),
        ("ftrace", "function_trace_call", 1, False),
        ("fprobe", "fprobe_handler", 2, True),
        ("fprobe", "ftrace_ops_list_func", 1, True),
        ("fprobe", "ftrace_ops_list_func", 2, False),
        ("fprobe", "fprobe_kprobe_handler", 1, False),
        ("fprobe", "ftrace_func [lab_ftrace]", 1, False),
        ("ftrace-direct", "trampoline_noop [lab_ftrace]", 2, True),
        ("ftrace-direct", "trampoline_noop [other]", 1, False),
        ("ftrace-direct", "ftrace_ops_list_func", 1, False),
        ("ftrace-direct", BPF_TRAMPOLINE, 1, False),
        ("ftrace-direct", "0xffffffff81000000", 1, False),
        ("bpf-fentry", BPF_TRAMPOLINE, 2, True),
        ("bpf-fentry", "ftrace_ops_assist_func by way of kprobe_ftrace_handler", 1, False),
        ("bpf-fentry", "trampoline_noop [lab_ftrace]", 1, False),
    ],
)
def test_the_tracer_must_call_the_probe_s_handler(kind: str, called: str, functions: int, right: bool) -> None:
    seen = replace(ONE_KPROBE, called=called, traced=Traced(1, functions))
    with contextlib.nullcontext() if right else pytest.raises(EvidenceError, match=r"^now, the function tracer calls "):
        check_called(probes()[kind], POINT, seen, "lab_ftrace", "now", WITH_FPROBES["fprobe_handler"])


WITH_FPROBES = {
    functions: Symbols("".join(f"c105b900 t {name}\n" for name in functions.split()).encode())
    for functions in (
        "fprobe_handler",
        "fprobe_entry fprobe_return",
        "fprobe_ftrace_entry fprobe_fgraph_entry fprobe_return",
    )
}


BY_GRAPH = "ftrace_graph_func for ent:{} ret:fprobe_return"


@pytest.mark.parametrize(
    ("functions", "at_entry", "at_return"),
    [
        ("fprobe_handler", "fprobe_handler", "fprobe_handler"),
        ("fprobe_entry fprobe_return", BY_GRAPH.format("fprobe_entry"), BY_GRAPH.format("fprobe_entry")),
        (
            "fprobe_ftrace_entry fprobe_fgraph_entry fprobe_return",
            "fprobe_ftrace_entry",
            BY_GRAPH.format("fprobe_fgraph_entry"),
        ),
    ],
)
def test_an_fprobe_has_the_path_of_its_kernel_and_no_other(functions: str, at_entry: str, at_return: str) -> None:
    paths = {at_entry, at_return, "fprobe_handler", "fprobe_ftrace_entry", "ftrace_graph_func"}
    paths |= {BY_GRAPH.format("trace_graph_entry"), BY_GRAPH.format("fprobe_entry") + " and ent:other ret:other"}
    returning = ("fprobe-exit", "bpf-kretprobe-multi", "bpf-kprobe-session")
    for kind, right in {"fprobe": at_entry, **dict.fromkeys(returning, at_return)}.items():
        for called in paths:
            seen = replace(ONE_FPROBE, called=called)
            wrong = pytest.raises(EvidenceError, match=f"calls {re.escape(called)} at {NAME}, not {re.escape(right)}")
            with contextlib.nullcontext() if called == right else wrong:
                check_called(probes()[kind], POINT, seen, "", "now", WITH_FPROBES[functions])


@pytest.mark.parametrize("jumps", [False, True])
def test_a_direct_call_is_entered_as_the_kernel_lists_it(jumps: bool) -> None:
    jump = b"\xe9" + LIVE[1:]
    seen = Observation(jump if jumps else LIVE, "[TRACED]", traced=Traced(1, 1, direct="f", jumps=jumps))
    check_armed(probes()["bpf-fexit"], POINT, seen, "now")
    with pytest.raises(EvidenceError, match=rf"^now, the kernel lists a (jump|call) at {NAME}, and there is e[89] "):
        check_armed(probes()["bpf-fexit"], POINT, replace(seen, live=LIVE if jumps else jump), "now")


# Is what tracefs says of an event read in full, and anything else an error of the cell?

FOLDER = f"{INSTANCE}/events/lab/probe"


HISTOGRAM = """\
# event histogram
#
# trigger info: hist:keys=common_pid:vals=hitcount:sort=hitcount:size=4096 [active]
#

{ common_pid:         94 } hitcount:          1
{ common_pid:          1 } hitcount:         40

Totals:
    Hits: 41
    Entries: 2
    Dropped: 0
"""


STATS = "entries: 1\noverrun: 0\ncommit overrun: 0\nbytes: 20\noldest event ts: 1\nnow ts: 2\ndropped events: 0\n"


LINE = "           agent-1       [000] ..Zff      1433: probe: (vfs_read+0x5/0x310 <ffffffff813669e5>)"


def event(**files: str) -> TraceEvent:
    paths = {
        "hist": f"{FOLDER}/hist",
        "stats": f"{INSTANCE}/per_cpu/cpu0/stats",
        "trace": f"{INSTANCE}/per_cpu/cpu0/trace",
    }
    return TraceEvent(guest_with({paths[name]: text.encode() for name, text in files.items()}), "lab/probe")


def test_hits_are_counted_by_thread() -> None:
    assert event(hist=HISTOGRAM).counts() == {94: 1, 1: 40}
    assert (
        event(hist=HISTOGRAM.replace("{", "#{").replace(": 41", ": 0").replace("Entries: 2", "Entries: 0")).counts()
        == {}
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Hits: 41", "Hits: 42"),
        ("Entries: 2", "Entries: 3"),
        ("{ common_pid:         94 } hitcount:          1\n", ""),
        ("Totals:", ""),
    ],
)
def test_a_histogram_that_has_not_got_all_is_refused(before: str, after: str) -> None:
    with pytest.raises(EvidenceError, match=r"^the histogram of the event cannot be read"):
        event(hist=HISTOGRAM.replace(before, after)).counts()


def test_a_histogram_that_has_dropped_hits_is_refused() -> None:
    with pytest.raises(EvidenceError, match=r"has dropped 3 hits$"):
        event(hist=HISTOGRAM.replace("Dropped: 0", "Dropped: 3")).counts()


def test_what_was_recorded_is_read() -> None:
    said = "probe: (vfs_read+0x5/0x310 <ffffffff813669e5>)"
    assert event(stats=STATS, trace=f"# tracer: nop\n#\n{LINE}\n").recorded() == [TracedEvent(0, 1433, 1, said)]
    spaced = LINE.replace("agent-1 ", "a-b [000] c-77 ")
    assert traced_event(spaced).pid == 77


@pytest.mark.parametrize("lost", ["overrun: 0", "commit overrun: 0", "dropped events: 0", "overrun"])
def test_a_buffer_that_has_lost_events_is_refused(lost: str) -> None:
    with pytest.raises(EvidenceError, match=r"^the buffer of CPU 0 has lost events"):
        event(stats=STATS.replace(lost, f"{lost}1"), trace=LINE).recorded()


@pytest.mark.parametrize("trace", ["", f"{LINE}\n{LINE}\n", LINE.replace("[000]", "[001]")])
def test_events_that_are_not_as_many_as_the_buffer_says_are_refused(trace: str) -> None:
    with pytest.raises(EvidenceError, match=r"events of CPU 0 can be read, and its buffer says"):
        event(stats=STATS, trace=trace).recorded()


@given(st.text(max_size=200))
def test_any_line_is_an_event_or_refused(line: str) -> None:
    with contextlib.suppress(EvidenceError):
        assert traced_event(line).said


def test_hits_that_the_kernel_skipped_are_read() -> None:
    file = "/sys/kernel/tracing/kprobe_profile"
    line = b"  probe                                                     21               4\n"
    assert profiled(guest_with({file: line}), "kprobe") == [21, 4]
    for listing in (b"", b"  another          1     0\n", b"  probe  1  1\n  probe  2  2\n"):
        with pytest.raises(EvidenceError, match=r"does not list the probe"):
            profiled(guest_with({file: listing}), "kprobe")


def test_a_definition_is_what_perf_probe_writes() -> None:
    entry = ProbePoint("vfs_read", 5, 0xC1000005, b"")
    assert definition_of(probes()["kprobe-event"], replace(entry, offset=0)).text == "p:lab/probe vfs_read"
    assert definition_of(probes()["kprobe-event"], entry).text == "p:lab/probe vfs_read+5"
    assert definition_of(probes()["kretprobe-event"], entry).text == "r:lab/probe vfs_read"


def test_events_of_fprobes_tracepoints_and_events_are_dynamic() -> None:
    entry = ProbePoint("vfs_read", 4, 0xC1000004, b"")
    texts = {
        "fprobe-event": "f:lab/probe vfs_read",
        "fprobe-exit-event": "f:lab/probe vfs_read%return",
        "tprobe": "t:lab/probe sys_enter",
        "tprobe.sched_switch": "t:lab/probe sched_switch",
        "eprobe": "e:lab/probe raw_syscalls/sys_enter",
        "eprobe.sched.sched_switch": "e:lab/probe sched/sched_switch",
    }
    for name, text in texts.items():
        definition = definition_of(probe_kind(name), entry)
        assert (definition.text, definition.listing) == (text, "/sys/kernel/tracing/dynamic_events")


# Is each call that the function graph tracer has recorded read, with its thread, and anything else an error?

GRAPHED = """# tracer: function_graph
#
# CPU  TASK/PID         DURATION                  FUNCTION CALLS
# |     |    |           |   |                     |   |   |   |
 0)  agent-61     |   1.203 us    |  vfs_read();
 ------------------------------------------
 0)   agent-61     =>   callben-72
 ------------------------------------------

 0)  callben-72   | + 10.521 us   |  vfs_read(file=0xffff888003a40000, buf=0x0, count=0x0); /* = 0x0 */
 0)  a-b 3-77     |   0.521 us    |  vfs_read(); /* = -22 */
"""


def graph(trace: str, entries: int, option: str | None = None, says: Mapping[str, str] = {}) -> FunctionGraph:
    files = {
        "buffer_size_kb": "7 (expanded: 1408)\n",
        "trace_clock": "local [global] counter\n",
        "current_tracer": "function_graph\n",
        "tracing_thresh": "1000000000\n",
        **dict.fromkeys(("options/funcgraph-proc", f"options/{option}"), "1\n"),
        **dict.fromkeys(("set_ftrace_filter", "tracing_on", "trace"), ""),
        **says,
        "per_cpu/cpu0/stats": STATS.replace("entries: 1", f"entries: {entries}"),
        "per_cpu/cpu0/trace": trace,
    }
    content = {f"/sys/kernel/tracing/{name}": text.encode() for name, text in files.items()}
    return FunctionGraph(guest_with(content), "vfs_read", option)


def test_calls_of_the_function_graph_tracer_are_read() -> None:
    assert graph(GRAPHED, 6).recorded() == [
        GraphedCall(0, 61, "vfs_read", "", None),
        GraphedCall(0, 72, "vfs_read", "file=0xffff888003a40000, buf=0x0, count=0x0", "= 0x0"),
        GraphedCall(0, 77, "vfs_read", "", "= -22"),
    ]
    interrupt = """ 0)  <idle>-0     |   ==========> |
 0)  <idle>-0     |   1.000 us    |  tick [mine](); /* ret=0x1 */
 0)  <idle>-0     |   <========== |
"""
    assert graph(interrupt, 2).recorded() == [GraphedCall(0, 0, "tick", "", "ret=0x1")]


@pytest.mark.parametrize("line", ["vfs_read() {", "vfs_read(file=0x0) {", "}", "} /* vfs_read */", "} /* f ret=0x0 */"])
def test_a_call_within_a_call_is_refused_by_its_name(line: str) -> None:
    with pytest.raises(EvidenceError, match=r"^a call on CPU 0 was not over as the function was called again\n"):
        graph(f"{GRAPHED} 0)  a-b 3-77     |               |  {line}\n", 6).recorded()


def test_the_function_graph_tracer_is_undone_whatever_fails() -> None:
    put: list[tuple[str, bytes]] = []

    class RefusingGuest:
        def get(self, path: str, **_: object) -> bytes:
            return b"[global] counter" if path.endswith("clock") else b"7 (expanded: 1408)"

        def put(self, content: bytes, target: str) -> None:
            put.append((target.removeprefix("/sys/kernel/tracing/"), content))
            if content == b"nop":
                raise GuestError("cannot write current_tracer")

    with pytest.raises(GuestError, match=r"^cannot write current_tracer"):
        FunctionGraph(cast(Guest, RefusingGuest()), "vfs_read", "funcgraph-args").stop()
    assert put == [
        ("current_tracer", b"nop"),
        ("tracing_thresh", b"0"),
        ("options/funcgraph-proc", b"0"),
        ("options/funcgraph-args", b"0"),
        ("set_ftrace_filter", b""),
        ("buffer_size_kb", b"1408"),
        ("trace_clock", b"global"),
        ("tracing_on", b"1"),
    ]


def graphed(
    called: str, says: Mapping[str, str] = {}, *, option: str | None = None, entries: int = 0
) -> GraphAttachment:
    place = SimpleNamespace(point=POINT, observe=lambda: replace(ONE_FPROBE, called=called))
    kind = probes()["function-graph" if option is None else f"function-graph-{option.removeprefix('funcgraph-')}"]
    traced = graph("", entries, option, says)
    return GraphAttachment(cast(Guest, None), kind, cast(Place, place), traced)


LISTED = "ftrace_graph_func for ent:trace_graph_entry ret:trace_graph_"


def test_the_function_graph_tracer_does_what_it_is_told() -> None:
    for called in ("ftrace_graph_func", f"{LISTED}thresh_return"):
        attachment = graphed(called)
        assert (attachment.observe().called, attachment.renewal()) == (called, None)
    for wrong, complaint in (
        (
            graphed(f"{LISTED}return"),
            r"calls ftrace_graph_func for .*, not ent:trace_graph_entry ret:trace_graph_thresh",
        ),
        (graphed(f"{LISTED}thresh_return", option="funcgraph-args"), r", not ent:trace_graph_entry_args ret:"),
        (graphed("ftrace_graph_func", {"tracing_thresh": "0"}), r"^the kernel's tracing_thresh is '0', not 1000000000"),
        (
            graphed("ftrace_graph_func", {"current_tracer": "nop"}),
            r"^the kernel's current_tracer is 'nop', not function_g",
        ),
        (
            graphed("ftrace_graph_func", {"options/funcgraph-args": "0"}, option="funcgraph-args"),
            r"^the kernel's options/funcgraph-args is '0', not 1",
        ),
        (graphed("ftrace_graph_func", entries=2), r"^the buffer of CPU 0 has 2 events, and none was to be recorded"),
    ):
        with pytest.raises(EvidenceError, match=complaint):
            wrong.observe()
    recording = graphed(f"{LISTED}return", {"tracing_thresh": "0"}, entries=2)
    recording.set_handler("record")
    assert recording.observe()
    assert recording.renewal() is not None


@pytest.mark.parametrize(("probe", "attached"), [("fprobe-event", event_attached), ("function-graph", graph_attached)])
def test_a_name_of_several_functions_is_unsupported_where_it_is_all_that_counts(
    probe: str, attached: Callable[..., AbstractContextManager[object]]
) -> None:
    shared = replace(POINT, shared_with=["mine"])
    refused = pytest.raises(
        UnsupportedError, match=rf"^{probe} is at each function of a name, and mine has a {NAME}, to"
    )
    with refused, attached(guest_with({}), probes()[probe], shared, SYMBOLS):
        pass


@pytest.mark.parametrize(
    ("trace", "entries"),
    [
        (GRAPHED, 5),
        (GRAPHED, 8),
        (GRAPHED.replace(" 0)  a-b", " 1)  a-b"), 6),
        (f"{GRAPHED}something\n", 6),
    ],
)
def test_a_call_that_is_not_whole_is_refused(trace: str, entries: int) -> None:
    with pytest.raises(EvidenceError, match=r"^\d calls on CPU 0 can be read, and its buffer says \d events"):
        graph(trace, entries).recorded()


@pytest.mark.parametrize(
    ("called", "right"),
    [
        ("ftrace_graph_func", True),
        ("ftrace_graph_func for ent:trace_graph_entry ret:trace_graph_return", True),
        ("ftrace_graph_func for ent:trace_graph_entry ret:trace_graph_thresh_return", True),
        ("ftrace_graph_func for ent:trace_graph_entry_args ret:trace_graph_return", False),
        ("ftrace_graph_func for ent:fprobe_fgraph_entry ret:fprobe_return", False),
        ("ftrace_graph_func for ent:trace_graph_entry ret:trace_graph_return and ent:other ret:other", False),
        ("ftrace_ops_list_func", False),
    ],
)
def test_the_function_graph_tracer_is_alone_at_its_function(called: str, right: bool) -> None:
    seen = replace(ONE_FPROBE, called=called)
    refused = pytest.raises(EvidenceError, match=r"not the function graph tracer alone$")
    with contextlib.nullcontext() if right else refused:
        check_called(probes()["function-graph"], POINT, seen, "", "now", WITH_FPROBES["fprobe_handler"])


# Are values that an event fetches, and the stacks behind events, there as they were asked for?


@pytest.mark.parametrize(
    ("probe", "arch", "handler", "fetched"),
    [
        ("kprobe-event", "x86_64", "fetch-4", "a1=%di a2=%si a3=%dx a4=%cx"),
        ("kprobe-event", "i386", "fetch-2", "a1=%ax a2=%dx"),
        ("kretprobe-event", "x86_64", "fetch-2", "a1=$retval a2=$retval"),
        ("fprobe-event", "x86_64", "fetch-1", "a1=$arg1"),
        ("tprobe", "x86_64", "fetch-2", "a1=$arg1 a2=$arg1"),
        ("eprobe", "x86_64", "fetch-1", "a1=$FIELD"),
        ("uprobe-event", "i386", "fetch-2", "a1=+4(%sp) a2=+8(%sp)"),
        ("uprobe-event", "x86_64", "fetch-string", "text=$comm:string"),
        ("kprobe-event", "x86_64", "record", ""),
    ],
)
def test_what_an_event_fetches(probe: str, arch: Arch, handler: Handler, fetched: str) -> None:
    kind = probes()[probe].fetching(handler, arch)
    assert " ".join(kind.fetched) == fetched
    if kind.site != "program":
        text = definition_of(kind, ProbePoint("vfs_read", 0, 0xC1000000, b"")).text
        assert (
            text
            == f"{definition_of(probes()[probe], ProbePoint('vfs_read', 0, 0xC1000000, b'')).text} {fetched}".strip()
        )


PLACE = "probe: (vfs_read+0x5/0x310 <ffffffff81000005>)"


def recording(handler: Handler, *lines: str) -> EventAttachment:
    """An event that was recorded, in so many lines of the buffer."""
    kind = probes()["kprobe-event"].fetching(handler, "x86_64")
    entries = sum(not line.startswith(" =>") for line in lines)
    files = {
        f"{INSTANCE}/per_cpu/cpu0/stats": STATS.replace("entries: 1", f"entries: {entries}"),
        f"{INSTANCE}/per_cpu/cpu0/trace": "".join(f"{line}\n" for line in lines),
        "/sys/kernel/tracing/kprobe_profile": "  probe      1      0\n",
        **dict.fromkeys((f"{INSTANCE}/trace", f"{INSTANCE}/tracing_on", f"{INSTANCE}/options/stacktrace"), ""),
    }
    guest = guest_with({name: text.encode() for name, text in files.items()})
    point = ProbePoint("vfs_read", 5, 0xFFFFFFFF81000005, b"")
    place = cast(Place, SimpleNamespace(point=point))
    attachment = EventAttachment(guest, kind, TraceEvent(guest, "lab/probe"), place)
    attachment.set_handler("stack" if handler == "stack" else "record")
    return attachment


def hits(attachment: EventAttachment) -> tuple[int, int]:
    return attachment.recorded(Called("syscall", 1, frozenset({1})), ENTERED, None)


def said(text: str, number: int = 1433) -> str:
    return f"           agent-1       [000] ..Zff      {number}: {text}"


def test_events_have_what_they_fetch() -> None:
    assert hits(recording("fetch-2", said(f"{PLACE} a1=0x0 a2=0xffff888003a40000"))) == (1, 0)
    assert hits(recording("fetch-1", said(f"{PLACE} a1=-22"))) == (1, 0)
    assert hits(recording("fetch-string", said(f'{PLACE} text="call bench"'))) == (1, 0)
    for handler, values in (
        ("fetch-2", " a1=0x0"),
        ("fetch-2", ""),
        ("fetch-1", " a2=0x0"),
        ("fetch-1", " a1=0x0 b=1"),
        ("fetch-1", ' a1="call"'),
        ("fetch-string", " text=(fault)"),
        ("fetch-string", " text=0xffff888003a40b40"),
    ):
        with pytest.raises(EvidenceError, match=r"^an event has not fetched (a1|a1, a2|text)\n"):
            hits(recording(cast(Handler, handler), said(f"{PLACE}{values}")))
    with pytest.raises(EvidenceError, match=r"^an event is not of vfs_read\+0x5\n"):
        hits(recording("record", said(f"{PLACE} a1=0x0")))


FORMAT = """name: sched_switch
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:__data_loc char[] name;\toffset:8;\tsize:4;\tsigned:0;
\tfield:char prev_comm[16];\toffset:12;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:28;\tsize:4;\tsigned:1;
"""


@pytest.mark.parametrize(("text", "field"), [(FORMAT, "prev_pid"), (FORMAT.replace("pid_t prev_pid", "x y[1]"), None)])
def test_an_event_is_asked_for_a_field_that_is_a_number(text: str, field: str | None) -> None:
    files = {"available_events": "sched:sched_switch\n", "events/sched/sched_switch/format": text}
    guest = guest_with({f"/sys/kernel/tracing/{name}": content.encode() for name, content in files.items()})
    assert number_field(guest, "sched.sched_switch") == field


LOG = """[    1.0] trace_kprobe: error: This function returns 'void' type
  Command: r:lab/probe kfree a1=$retval
{:>{}}
"""


@pytest.mark.parametrize(("caret", "refused"), [(len("  Command: r:"), PlaceRefused), (42, UnsupportedError)])
def test_a_value_that_the_kernel_does_not_fetch_is_unsupported(caret: int, refused: type[LabError]) -> None:
    class RefusingGuest:
        def get(self, path: str, **_: object) -> bytes:
            assert path == "/sys/kernel/tracing/error_log"
            return LOG.format("^", caret).encode()

        def succeed(self, argv: object) -> None:
            raise CommandFailed("sh ended with status 1")

    definition = Definition("kprobe", "r", "kfree", ("a1=$retval",))
    with pytest.raises(
        LabError, match=r"^the kernel refuses the event .*: This function returns 'void' type\n"
    ) as info:
        define(cast(Guest, RefusingGuest()), definition)
    assert type(info.value) is refused


FRAMES = (
    " => vfs_read <ffffffff81000005>",
    " => do_syscall_64 <ffffffff81000105>",
    " => entry_SYSCALL_64_after_hwframe <ffffffff82000076>",
)
ENTERED = Symbols(
    b"ffffffff81000100 T do_syscall_64\nffffffff82000000 T __entry_text_start\nffffffff82001000 T __entry_text_end\n"
)


def test_each_event_has_the_stack_behind_it() -> None:
    stack = said("<stack trace>", 1434)
    assert hits(recording("stack", said(PLACE), stack, *FRAMES)) == (1, 0)
    assert hits(recording("stack", said(PLACE), stack, FRAMES[0], FRAMES[2])) == (1, 0)
    for lines in (
        (said(PLACE),),
        (said(PLACE), stack),
        (said(PLACE), stack.replace("<stack", "<user stack"), *FRAMES),
        (said(PLACE), said(PLACE, 1434)),
        (stack, *FRAMES, said(PLACE, 1435)),
        (said(PLACE), stack.replace("agent-1 ", "agent-2 "), *FRAMES),
        (said(PLACE), stack, *FRAMES, said(PLACE, 1435)),
    ):
        with pytest.raises(EvidenceError, match=r"event has no trace of the stack behind it"):
            hits(recording("stack", *lines))
    for frames in (FRAMES[1:], FRAMES[:2], FRAMES[:1], FRAMES[2:]):
        with pytest.raises(EvidenceError, match=r"^a stack is not from vfs_read\+0x5 to the kernel's entry\n"):
            hits(recording("stack", said(PLACE), stack, *frames))
