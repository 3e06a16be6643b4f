# SPDX-License-Identifier: GPL-2.0-only
"""What the function tracer calls at a function. Its own list and the code that it has patched must agree."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.arch import CALL
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX, Symbols

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
