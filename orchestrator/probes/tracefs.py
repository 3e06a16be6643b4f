# SPDX-License-Identifier: GPL-2.0-only
"""A guest's tracefs: events made as perf probe and trace-cmd make them, and the function tracer.

The lab uses its own instance of tracefs (``instances/lab``), with its own buffer, clock and switches. Removing the
instance disables all its events.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from orchestrator.arch import CALL
from orchestrator.catalog.data import did_you_mean
from orchestrator.errors import CommandFailed, EvidenceError, PlaceRefused, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value, whole_number
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX, Symbols

TRACEFS = "/sys/kernel/tracing"
INSTANCE = f"{TRACEFS}/instances/lab"

_NAME = "probe"
_EVENT = f"lab/{_NAME}"
_HISTOGRAM = "hist:keys=common_pid:size=4096"

_BUFFER_KB = "1024"
"""The buffer of each CPU. The 1000 recorded calls of a counting pass take 20 KiB."""
_PROFILE_MAX = 1 << 16
_EVENTS_MAX = 1 << 20
"""Bytes; a Debian kernel lists 1,900 events in 60 KB."""

_NUMBER_FIELD = re.compile(r"^\tfield:[^;\[]{1,100}\b(?!common_)(\w{1,100});\toffset:\d+;\tsize:[1248];", re.MULTILINE)
"""``field:long id; offset:8; size:8; signed:1;``: no array, and no text elsewhere (``__data_loc char[]``)."""
_COUNTED = re.compile(r"^\{ common_pid: +(\d{1,10}) \} hitcount: +(\d{1,20})$", re.MULTILINE)
_TOTALS = re.compile(r"^Totals:\n    Hits: (\d{1,20})\n    Entries: (\d{1,20})\n    Dropped: (\d{1,20})$", re.MULTILINE)
_PROFILED = {
    "kprobe": re.compile(rf"^ +{_NAME} +(\d{{1,20}}) +(\d{{1,20}})$", re.MULTILINE),
    "uprobe": re.compile(rf"^ +\S+ +{_NAME} +(\d{{1,20}})$", re.MULTILINE),
}


@dataclass(frozen=True)
class Definition:
    """An event of ``kprobe_events``, ``uprobe_events`` or ``dynamic_events``, in their syntax.

    Its kind is ``p`` at a place or ``r`` at a return, and of dynamic ones ``f`` of an fprobe, ``t`` at a tracepoint or
    ``e`` at another event.
    """

    listed: str
    kind: str
    place: str
    fetched: tuple[str, ...] = ()

    @property
    def listing(self) -> str:
        return f"{TRACEFS}/{self.listed}_events"

    @property
    def text(self) -> str:
        return " ".join([f"{self.kind}:{_EVENT}", self.place, *self.fetched])


class TracedEvent(NamedTuple):
    """An event read back: its CPU, its number by the clock, its thread, its text, and the stack that was traced."""

    cpu: int
    number: int
    pid: int
    said: str
    stack: tuple[str, ...] = ()


_FRAME = " => "


class TraceEvent:
    """One event in a guest's instance."""

    def __init__(self, guest: Guest, event: str) -> None:
        self._guest = guest
        self._folder = f"{INSTANCE}/events/{event}"

    def switch(self, *, on: bool) -> None:
        """Enable or disable the event; a histogram then keeps it soft-enabled: hit, with nothing recorded."""
        self._guest.put(b"1" if on else b"0", f"{self._folder}/enable")

    def state(self) -> str:
        """The kernel's state of it: ``0`` or ``1``; ``0*`` if soft-enabled, for a histogram alone."""
        return kernel_value(self._guest, f"{self._folder}/enable")

    def record(self, *, on: bool) -> None:
        self._guest.put(b"1" if on else b"0", f"{INSTANCE}/tracing_on")

    def count(self, *, on: bool) -> None:
        """Start counting anew, or stop and drop the counts. A paused histogram continues counting (Linux 6.1)."""
        self._guest.put((_HISTOGRAM if on else f"!{_HISTOGRAM}").encode(), f"{self._folder}/trigger")

    def counts(self) -> dict[int, int]:
        text = self._guest.get(f"{self._folder}/hist", largest=1 << 20).decode("ascii", errors="replace")
        totals = _TOTALS.search(text)
        counts = {int(pid): int(hits) for pid, hits in _COUNTED.findall(text)}
        if totals is None or (len(counts), sum(counts.values())) != (int(totals[2]), int(totals[1])):
            raise EvidenceError("the histogram of the event cannot be read", detail=text.splitlines()[-8:])
        if int(totals[3]):
            raise EvidenceError(f"the histogram of the event has dropped {totals[3]} hits")
        return counts

    def trace_stacks(self, *, on: bool, user: bool) -> None:
        """Record the kernel's or the program's stack with each event."""
        self._guest.put(b"1" if on else b"0", f"{INSTANCE}/options/{'userstacktrace' if user else 'stacktrace'}")

    def empty(self) -> None:
        self._guest.put(b"", f"{INSTANCE}/trace")

    def recorded(self) -> Sequence[TracedEvent]:
        events: list[TracedEvent] = []
        for cpu, entries, lines in _buffers(self._guest, INSTANCE):
            of_cpu: list[TracedEvent] = []
            for line in lines:
                if line.startswith(_FRAME) and of_cpu:
                    of_cpu[-1] = of_cpu[-1]._replace(stack=(*of_cpu[-1].stack, line.removeprefix(_FRAME).strip()))
                else:
                    of_cpu.append(traced_event(line))
            if len(of_cpu) != entries or any(event.cpu != cpu for event in of_cpu):
                raise EvidenceError(f"{len(of_cpu)} events of CPU {cpu} can be read, and its buffer says {entries}")
            events += of_cpu
        return events

    def recorded_with_stacks(self, *, user: bool) -> Sequence[TracedEvent]:
        """Each event with its stack, which the buffer has as an event of its own behind it."""
        events, heading = self.recorded(), "<user stack trace>" if user else "<stack trace>"
        pairs = list(zip(events[::2], events[1::2], strict=False))
        for event, stack in pairs:
            if stack.said != heading or stack.pid != event.pid or not stack.stack:
                raise EvidenceError("an event has no trace of the stack behind it", detail=[str(event), str(stack)])
        if len(events) % 2:
            raise EvidenceError("the last event has no trace of the stack behind it", detail=[str(events[-1])])
        return [event._replace(stack=stack.stack) for event, stack in pairs]


def _buffers(guest: Guest, folder: str) -> Iterator[tuple[int, int | None, Sequence[str]]]:
    """Each CPU's number, the events in its buffer, and what it says. Raises EvidenceError if it has lost some."""
    for cpu in range(guest.machine.smp):
        lines = guest.get(f"{folder}/per_cpu/cpu{cpu}/stats").decode("ascii", errors="replace").splitlines()
        stats = {key: whole_number(value) for key, _, value in (line.partition(": ") for line in lines)}
        if any(stats.get(key) != 0 for key in ("overrun", "commit overrun", "dropped events")):
            raise EvidenceError(f"the buffer of CPU {cpu} has lost events", detail=[str(stats)])
        text = guest.get(f"{folder}/per_cpu/cpu{cpu}/trace", largest=16 << 20).decode("ascii", errors="replace")
        yield cpu, stats.get("entries"), [line for line in text.splitlines() if not line.startswith("#")]


_GRAPHED = re.compile(
    r"^ *(\d{1,5})\) +\S.{0,20}?-(\d{1,10}) +\|.{0,40}\|  ([\w.]{1,200})(?: \[\w{1,60}\])?"
    r"\((.{0,400})\);(?: +/\* (.{1,200}) \*/)?$"
)
"""A call by function_graph, with funcgraph-proc: `` 0)  bench-72   |   0.521 us    |  vfs_read(); /* = 0x0 */``."""
_SWITCH = re.compile(r"^ *-{20,}$|^ *\d{1,5}\) .{1,40} => .{1,40}$|^ *\d{1,5}\) .{1,40} (?:=+>|<=+) \|$|^$")
"""Lines between the calls of one thread and those of the next on a CPU, and around those that handle an interrupt."""
_IN_PARTS = re.compile(r"\) \{$|\|  +\}(?: /\* .{1,200} \*/)?$")
_NEVER = "1000000000"
"""A threshold in microseconds: no call takes so long, and neither its entry nor its return is recorded."""
_CLOCK = "counter"
"""The cost of other clocks depends on the time: some instructions of 5000 events on i386 (x86-tsc, local), and with
local, which costs 30 more per event, also on x86_64."""


class GraphedCall(NamedTuple):
    """A call recorded by the function graph tracer: its CPU and thread, the function, its arguments and result."""

    cpu: int
    pid: int
    function: str
    arguments: str
    result: str | None


class FunctionGraph:
    """The function graph tracer at one function. It is tracefs's own: before Linux 6.11 no instance can have it."""

    def __init__(self, guest: Guest, function: str, option: str | None) -> None:
        self._guest, self._function = guest, function
        self._options = [f"options/{name}" for name in ("funcgraph-proc", option) if name is not None]
        clock = re.search(r"\[(\S+)\]", self._get("trace_clock"))
        # "7 (expanded: 1408)": the kernel's own size as soon as a tracer is used.
        size = re.search(r"(\d+)\)?$", self._get("buffer_size_kb"))
        if clock is None or size is None:
            raise EvidenceError("the clock and the buffer of the guest's tracefs cannot be read")
        self._before = {
            "current_tracer": "nop",
            "tracing_thresh": "0",
            **dict.fromkeys(self._options, "0"),
            "set_ftrace_filter": "",
            "buffer_size_kb": size[1],
            "trace_clock": clock[1],
            "tracing_on": "1",
        }

    def start(self) -> None:
        """Trace the function, and record no call."""
        self._put("set_ftrace_filter", self._function)
        self._put("buffer_size_kb", _BUFFER_KB)
        self._put("trace_clock", _CLOCK)
        self.select(records=False)

    def select(self, *, records: bool) -> None:
        """Record each call, or let both sides run and record none. The tracer takes its options as it starts."""
        self._put("current_tracer", "nop")
        self._put("tracing_thresh", "0" if records else _NEVER)
        for option in self._options:
            self._put(option, "1")
        self._put("current_tracer", "function_graph")
        self._put("tracing_on", "1")
        self.empty()

    def empty(self) -> None:
        self._put("trace", "")

    def check(self, *, records: bool) -> None:
        """Raise EvidenceError unless the kernel shows what was selected, and has recorded nothing otherwise."""
        expected = {"current_tracer": "function_graph", "tracing_thresh": "0" if records else _NEVER}
        for file, text in (expected | dict.fromkeys(self._options, "1")).items():
            text_now = self._get(file)
            if text_now != text:
                raise EvidenceError(f"the kernel's {file} is {text_now[:40]!r}, not {text}")
        for cpu, entries, _ in () if records else _buffers(self._guest, TRACEFS):
            if entries != 0:
                raise EvidenceError(f"the buffer of CPU {cpu} has {entries} events, and none was to be recorded")

    def recorded(self) -> Sequence[GraphedCall]:
        """The calls so far, and none any more: what reads them may be what is traced."""
        self._put("tracing_on", "0")
        calls: list[GraphedCall] = []
        for cpu, entries, all_lines in _buffers(self._guest, TRACEFS):
            lines = [line for line in all_lines if not _SWITCH.match(line)]
            parts = [line for line in lines if _IN_PARTS.search(line)]
            if parts:
                raise EvidenceError(
                    f"a call on CPU {cpu} was not over as the function was called again", detail=parts[:4]
                )
            pairs = [(line, _GRAPHED.match(line)) for line in lines]
            wrong = [line for line, call in pairs if call is None or int(call[1]) != cpu]
            # The entry and the return have an event each.
            if wrong or 2 * len(pairs) != entries:
                raise EvidenceError(
                    f"{len(pairs)} calls on CPU {cpu} can be read, and its buffer says {entries} events",
                    detail=wrong[:4],
                )
            calls += [
                GraphedCall(cpu, int(match[2]), match[3], match[4], match[5]) for _, match in pairs if match is not None
            ]
        return calls

    def stop(self) -> None:
        """Undo everything; a failing step does not stop the others."""
        with contextlib.ExitStack() as last_first:
            for file, text in reversed(self._before.items()):
                last_first.callback(self._put, file, text)

    def _put(self, file: str, text: str) -> None:
        self._guest.put(text.encode(), f"{TRACEFS}/{file}")

    def _get(self, file: str) -> str:
        return kernel_value(self._guest, f"{TRACEFS}/{file}")


def make_instance(guest: Guest) -> None:
    """Make the instance, which records nothing yet. Raises CommandFailed."""
    # An instance inherits this option. With it the kernel has a probe of its own at sched_switch.
    guest.put(b"0", f"{TRACEFS}/options/record-cmd")
    guest.succeed(["mkdir", INSTANCE])
    guest.put(b"0", f"{INSTANCE}/tracing_on")
    guest.put(_BUFFER_KB.encode(), f"{INSTANCE}/buffer_size_kb")
    guest.put(_CLOCK.encode(), f"{INSTANCE}/trace_clock")
    guest.put(b"1", f"{INSTANCE}/options/sym-addr")


def define(guest: Guest, definition: Definition) -> TraceEvent:
    """Make the event. Raises PlaceRefused with the kernel's own reason; UnsupportedError for a value not fetched."""
    try:
        guest.succeed(["sh", "-c", 'echo "$0" >> "$1"', definition.text, definition.listing])
    except CommandFailed:
        log = guest.get(f"{TRACEFS}/error_log", largest=_PROFILE_MAX).decode("ascii", errors="replace").splitlines()
        reasons = [line.partition("error: ")[2] for line in log if "error: " in line]
        reason = reasons[-1][:200] if reasons else "it gives no reason"
        # The last two lines are the definition and, below the place that is wrong, a "^".
        values = "\n".join(log[-2:-1]).find(f" {definition.fetched[0]}") if definition.fetched else -1
        refused = UnsupportedError if 0 <= values < log[-1].find("^") else PlaceRefused
        raise refused(f"the kernel refuses the event {definition.text!r}: {reason}", detail=log[-3:]) from None
    return TraceEvent(guest, _EVENT)


def event_number(guest: Guest, name: str) -> int:
    """Perf's number of the kernel's own event ``SYSTEM.NAME``. Raises EvidenceError if it does not exist."""
    number = whole_number(kernel_value(guest, f"{TRACEFS}/events/{known_event(guest, name)}/id"))
    if number is None:
        raise EvidenceError(f"the guest's kernel does not say the number of its event {name}")
    return number


def systems_of(guest: Guest, name: str) -> Sequence[str]:
    """The systems that have an event of this name."""
    listed = guest.get(f"{TRACEFS}/available_events", largest=_EVENTS_MAX).decode("ascii", errors="replace")
    return [system for system, _, event in (line.partition(":") for line in listed.splitlines()) if event == name]


def number_field(guest: Guest, name: str) -> str | None:
    """The first field of the event ``SYSTEM.NAME`` that is a number; None if it has none. Raises EvidenceError."""
    text = guest.get(f"{TRACEFS}/events/{known_event(guest, name)}/format", largest=_PROFILE_MAX)
    match = _NUMBER_FIELD.search(text.decode("ascii", errors="replace"))
    return None if match is None else match[1]


def known_event(guest: Guest, name: str) -> str:
    """The path of the kernel's own event ``SYSTEM.NAME``. Raises EvidenceError if it does not exist."""
    listed = guest.get(f"{TRACEFS}/available_events", largest=_EVENTS_MAX).decode("ascii", errors="replace")
    events = [line.replace(":", ".", 1) for line in listed.splitlines()]
    if name not in events:
        raise EvidenceError(f"the guest's kernel has no event {name}", hint=did_you_mean(name, events))
    return name.replace(".", "/", 1)


def remove(guest: Guest, definition: Definition | None) -> None:
    """Remove the instance with its records, and an event that was made. Raises CommandFailed."""
    guest.succeed(["rmdir", INSTANCE])
    if definition is not None:
        guest.succeed(["sh", "-c", 'echo "$0" >> "$1"', f"-:{_EVENT}", definition.listing])


def profiled(guest: Guest, kind: Literal["kprobe", "uprobe"]) -> list[int]:
    """The kernel's counts for the event: its hits, and for a kprobe the hits without a handler run."""
    text = guest.get(f"{TRACEFS}/{kind}_profile", largest=_PROFILE_MAX).decode("utf-8", errors="replace")
    matches = list(_PROFILED[kind].finditer(text))
    if len(matches) != 1:
        raise EvidenceError(f"the kernel's profile of {kind} events does not list the probe", detail=text.splitlines())
    return [int(number) for number in matches[0].groups()]


def traced_event(line: str) -> TracedEvent:
    """An event from its line of ``trace``. Raises EvidenceError for any other line.

    ``callbench-72  [000] d..1.  1433: probe: (vfs_read+0x5/0x310 <ffffffff813669e5>)``
    """
    match = re.fullmatch(r"^.{0,60}-(\d{1,10}) +\[(\d{3,5})\] +\S{1,10} +(\d{1,20}): (.{1,400})$", line)
    if match is None:
        raise EvidenceError(f"a line of the trace is not an event: {line[:200]!r}")
    pid, cpu, number, said = match.groups()
    return TracedEvent(int(cpu), int(number), int(pid), said)


# What the function tracer calls at a function. Its own list and the code that it has patched must agree.

TRACED_FUNCTIONS = "/sys/kernel/tracing/enabled_functions"
KPROBES_HANDLER = "kprobe_ftrace_handler"
"""The function that the tracer calls for a kprobe."""
GUARDED_KPROBES_HANDLER = f"ftrace_ops_assist_func by way of {KPROBES_HANDLER}"
"""The same up to Linux 5.10, where users without a mark are guarded against recursion (before commit a25d036d939a)."""
ALL_USERS = "ftrace_ops_list_func"
"""The tracer's function that calls all of its users, for each traced function."""

BPF_TRAMPOLINE = "a trampoline of BPF's"
_BPF_TRAMPOLINE = "bpf_trampoline_"
"""Its name in kallsyms, followed by a number, with ``[bpf]`` as module (bpf_trampoline_update())."""
_LISTED_BPF_TRAMPOLINE = re.compile(rf"{_BPF_TRAMPOLINE}\d{{1,20}}\+0x0/(0x[0-9a-f]{{1,8}})(?: \[bpf\])?")
_LARGEST_TRAMPOLINE = 4096
"""Bytes: PAGE_SIZE (arch_prepare_bpf_trampoline())."""

CALL_BYTES = 5
_ENTRIES = {"ftrace_regs_caller": "ftrace_regs_call", "ftrace_caller": "ftrace_call"}
"""The tracer's entries that all users share, and the place of the call in each."""
_TRACED_LINE = re.compile(
    r"^(\S{1,200})( \[\w{1,60}\])? \((\d{1,6})\)(.{0,1000})(?:\n\tdirect(\(jmp\))?-->(.{0,300}))?", re.MULTILINE
)
_FUNCTION = r"\S{1,200}?\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w{1,60}\])?"
_TRAMPOLINE = re.compile(rf"tramp: (0x[0-9a-f]{{1,16}}|{_FUNCTION}) \(({_FUNCTION})\)(?: ->({_FUNCTION}))?")
_GRAPH, _OFFSET = re.compile(r"\{([^{}]{1,400})\}"), re.compile(r"\+0x[0-9a-f]+/0x[0-9a-f]+")
_A_TRAMPOLINE = "ftrace_trampoline\t[__builtin__ftrace]"
"""/proc/kallsyms at each trampoline (ftrace_get_trampoline_kallsym() of kernel/trace/ftrace.c)."""


@dataclass(frozen=True)
class Traced:
    """A function in the tracer's list: its users, and the number of all traced functions.

    A user may have a trampoline of its own (on x86_64): its address, and the functions that it is for and that it calls
    (``ftrace_func [lab_ftrace]``), which are the same unless the tracer has put a guard between them. The address may
    be the symbol of a module's former init function, whose memory was freed since: the tracer remembers it.

    ``direct`` is the symbol that the function calls directly, as the kernel writes it, or jumps to. ``graph`` is what
    the function graph tracer calls for its users, here one: ``ent:fprobe_entry ret:fprobe_return``.
    """

    users: int
    functions: int
    trampoline: int | str | None = None
    callees: frozenset[str] = frozenset()
    direct: str | None = None
    jumps: bool = False
    graph: tuple[str, ...] = ()


def find_traced(listing: str, names: Collection[str], module: str | None = None) -> Traced | None:
    """A function of the kernel or a ``module``, by its names, in the tracer's list; None if it is not traced.

    A line of Linux 6.1 (t_show() of kernel/trace/ftrace.c) has the number of users, "R" if registers are saved, and the
    trampoline: "getname (1) R   tramp: 0xffffffffc020e000 (kprobe_ftrace_handler+0x0/0x1b0) ->kprobe_ftrace_...".
    A direct call has the next line to itself; since Linux 6.19 it may be a jump.
    """
    mine, functions = [], 0
    listed = "" if module is None else f" [{module}]"
    for name, owner, users, rest, jumps, direct in (line.groups() for line in _TRACED_LINE.finditer(listing)):
        functions += 1
        if name in names and (owner or "") == listed:
            mine.append((int(users), rest, direct, jumps is not None))
    if not mine:
        return None
    users = sum(count for count, *_ in mine)
    direct, jumps = mine[0][2:] if len(mine) == 1 else (None, False)
    trampolines = [trampoline for _, rest, *_ in mine for trampoline in _TRAMPOLINE.findall(rest)]
    if len(trampolines) != 1:
        return Traced(users, functions, direct=direct, jumps=jumps)
    graph = tuple(_OFFSET.sub("", user) for _, rest, *_ in mine for user in _GRAPH.findall(rest))
    ((address, *callees),) = trampolines
    trampoline = int(address, 16) if address.startswith("0x") else address
    called = frozenset(_OFFSET.sub("", callee) for callee in callees if callee)
    return Traced(users, functions, trampoline, called, direct, jumps, graph)


def called_by_tracer(guest: Guest, symbols: Symbols, traced: Traced, target: int) -> str:
    """The function that a traced function's call reaches by way of ``target``; a module's is followed by the module.

    Raises EvidenceError if the call leads elsewhere than into the tracer's trampoline.
    """
    if traced.trampoline is not None:
        if not _is_at(guest, traced.trampoline, target):
            listed = traced.trampoline if isinstance(traced.trampoline, str) else f"{traced.trampoline:#x}"
            raise EvidenceError(f"the call leads to {target:#x}, and its trampoline is at {listed}")
        graph = f" for {' and '.join(traced.graph)}" if traced.graph else ""
        return " by way of ".join(sorted(traced.callees)) + graph
    for entry, place in _ENTRIES.items():
        if target == symbols.address(entry):
            address = symbols.address(place)
            code = guest.read_memory(address, CALL_BYTES)
            names = symbols.names(address + CALL_BYTES + int.from_bytes(code[1:], "little", signed=True))
            if code[0] != CALL or not names:
                what = f"the function tracer's own call at {address:#x} is {code.hex(' ')}, and leads nowhere"
                raise EvidenceError(what)
            return next((name for name in (KPROBES_HANDLER, ALL_USERS) if name in names), min(names))
    raise EvidenceError(f"the call leads to {target:#x}, which is no entry of the function tracer")


def direct_trampoline(guest: Guest, target: int) -> str:
    """The trampoline that a traced function calls directly: BPF's, or a module's followed by the module's name.

    Otherwise the address, as the function calls something unknown.
    """
    # Read anew: trampolines come and go.
    listing = guest.get(KALLSYMS, largest=KALLSYMS_MAX).decode("ascii", errors="replace")
    line = re.search(rf"^0*{target:x} \S (\S+)\t\[(\w+)\]$", listing, re.MULTILINE)
    if line is None:
        return f"{target:#x}"
    symbol, owner = line.groups()
    is_bpf = owner == "bpf" and symbol.startswith(_BPF_TRAMPOLINE)
    return BPF_TRAMPOLINE if is_bpf else f"{symbol} [{owner}]"


def check_trampoline(guest: Guest, traced: Traced, target: int, codes: Collection[int]) -> None:
    """Raise EvidenceError unless a traced function goes directly to a trampoline of BPF's that calls one of ``codes``.

    These are the addresses of BPF programs.
    """
    listed = _LISTED_BPF_TRAMPOLINE.fullmatch(traced.direct or "")
    if listed is None:
        raise EvidenceError(f"the function tracer lists {traced.direct}, which is no trampoline of BPF's")
    image = guest.read_memory(target, min(int(listed[1], 16), _LARGEST_TRAMPOLINE))
    ends = (call.end() for call in re.finditer(rb"\xe8(?=.{4})", image, re.DOTALL))
    called = {target + end + 4 + int.from_bytes(image[end : end + 4], "little", signed=True) for end in ends}
    if called.isdisjoint(codes):
        addresses = " or ".join(f"{code:#x}" for code in codes)
        raise EvidenceError(f"the call leads to {target:#x}, where nothing calls the BPF program at {addresses}")


def graph_sides(option: str | None, *, records: bool) -> str:
    """The functions that the function graph tracer calls at the entry and at the return, as the kernel lists it."""
    entry = "trace_graph_entry_args" if option == "funcgraph-args" else "trace_graph_entry"
    return f"ent:{entry} ret:trace_graph_{'return' if records else 'thresh_return'}"


def called_for_fprobe(symbols: Symbols, *, at_return: bool) -> str:
    """What ``called_by_tracer`` must find for an fprobe with an entry or exit handler, by the kernel's functions.

    Linux 6.14 moved fprobes to the function graph tracer (commit 4346ba160409), 6.19 moved those without an exit
    handler back.
    """
    if symbols.functions("fprobe_handler"):
        return "fprobe_handler"
    if symbols.functions("fprobe_ftrace_entry") and not at_return:
        return "fprobe_ftrace_entry"
    entry = "fprobe_fgraph_entry" if symbols.functions("fprobe_fgraph_entry") else "fprobe_entry"
    return f"ftrace_graph_func for ent:{entry} ret:fprobe_return"


def _is_at(guest: Guest, trampoline: int | str, target: int) -> bool:
    if isinstance(trampoline, int):
        return trampoline == target
    # Read anew: trampolines come and go.
    listing = guest.get(KALLSYMS, largest=KALLSYMS_MAX).decode("ascii", errors="replace")
    place = re.fullmatch(r"(\S+?)\+(0x[0-9a-f]+)/0x[0-9a-f]+ (\[\w+\])", trampoline)
    if place is None:
        return False
    symbol, offset, owner = place.groups()
    lines = re.findall(rf"^([0-9a-f]+) \S {re.escape(symbol)}\t{re.escape(owner)}$", listing, re.MULTILINE)
    is_trampoline = re.search(rf"^0*{target:x} \S {re.escape(_A_TRAMPOLINE)}$", listing, re.MULTILINE)
    return is_trampoline is not None and target in {int(address, 16) + int(offset, 16) for address in lines}
