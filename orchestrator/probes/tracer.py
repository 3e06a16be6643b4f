# SPDX-License-Identifier: GPL-2.0-only
"""What does the function tracer call at a function? Its own list and the code that it has patched must agree."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX, Symbols

TRACED_FUNCTIONS = "/sys/kernel/tracing/enabled_functions"
KPROBES_HANDLER = "kprobe_ftrace_handler"
"""What the tracer calls for a kprobe."""
ALL_USERS = "ftrace_ops_list_func"
"""The tracer's function that calls all of its users, for each traced function."""

BPF_TRAMPOLINE = "a trampoline of BPF's"
_BPF_TRAMPOLINE = "bpf_trampoline_"
"""What kallsyms lists it as, with a number behind it and ``[bpf]`` as its module (bpf_trampoline_update())."""

CALL_BYTES = 5
_ENTRIES = {"ftrace_regs_caller": "ftrace_regs_call", "ftrace_caller": "ftrace_call"}
"""The tracer's entries that all users share, and the place of the call in each."""
_LINE = re.compile(
    r"^(\S{1,200})( \[\w{1,60}\])? \((\d{1,6})\)(.{0,1000})(?:\n\tdirect(\(jmp\))?-->(.{0,300}))?", re.MULTILINE
)
_FUNCTION = r"\S{1,200}?\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w{1,60}\])?"
_TRAMPOLINE = re.compile(rf"tramp: (0x[0-9a-f]{{1,16}}|{_FUNCTION}) \(({_FUNCTION})\)(?: ->({_FUNCTION}))?")
_GRAPH, _OFFSET = re.compile(r"\{([^{}]{1,400})\}"), re.compile(r"\+0x[0-9a-f]+/0x[0-9a-f]+")
_PLACE = re.compile(r"(\S+?)\+(0x[0-9a-f]+)/0x[0-9a-f]+ (\[\w+\])")
_A_TRAMPOLINE = "ftrace_trampoline\t[__builtin__ftrace]"
"""What /proc/kallsyms lists at each trampoline (ftrace_get_trampoline_kallsym() of kernel/trace/ftrace.c)."""


@dataclass(frozen=True)
class Traced:
    """A function as the tracer lists it: its users, and how many functions are traced in all.

    A user may have a trampoline of its own (on x86_64): its address, and the functions that it is for and that it calls
    (``ftrace_func [lab_ftrace]``), which are the same unless the tracer has put a guard between them. In place of the
    address is the symbol of an init function where a module's was before its memory was freed: the tracer remembers it.

    ``direct`` is the symbol that the function calls directly, as the kernel writes it, or jumps to. ``graph`` has what
    the function graph tracer calls for its users, which are one user here: ``ent:fprobe_entry ret:fprobe_return``.
    """

    users: int
    functions: int
    trampoline: int | str | None = None
    callees: frozenset[str] = frozenset()
    direct: str | None = None
    jumps: bool = False
    graph: tuple[str, ...] = ()


def find_traced(listing: str, names: Collection[str], module: str | None = None) -> Traced | None:
    """A function of the kernel itself, or of a ``module``, by its names, in the tracer's list of functions.

    None where it is not traced.

    A line of Linux 6.1 (t_show() of kernel/trace/ftrace.c) has the number of users, "R" where registers are saved, and
    the trampoline: "getname (1) R   tramp: 0xffffffffc020e000 (kprobe_ftrace_handler+0x0/0x1b0) ->kprobe_ftrace_...".
    What a function calls directly has a line of its own behind it; since Linux 6.19 it may be jumped to.
    """
    mine, functions = [], 0
    listed = "" if module is None else f" [{module}]"
    for name, owner, users, rest, jumps, direct in (line.groups() for line in _LINE.finditer(listing)):
        functions += 1
        if name in names and (owner or "") == listed:
            mine.append((int(users), rest, direct, jumps is not None))
    if not mine:
        return None
    users = sum(count for count, *_ in mine)
    direct, jumps = mine[0][2:] if len(mine) == 1 else (None, False)
    trampolines = [found for _, rest, *_ in mine for found in _TRAMPOLINE.findall(rest)]
    if len(trampolines) != 1:
        return Traced(users, functions, direct=direct, jumps=jumps)
    graph = tuple(_OFFSET.sub("", user) for _, rest, *_ in mine for user in _GRAPH.findall(rest))
    ((address, *callees),) = trampolines
    trampoline = int(address, 16) if address.startswith("0x") else address
    called = frozenset(map(_without_offset, filter(None, callees)))
    return Traced(users, functions, trampoline, called, direct, jumps, graph)


def called_by_tracer(guest: Guest, symbols: Symbols, traced: Traced, target: int) -> str:
    """The function that a traced function's call leads to, by way of ``target``; a module's with its name behind it.

    Raises EvidenceError when the call leads elsewhere than into the tracer's trampoline.
    """
    if traced.trampoline is not None:
        if not _is_at(guest, traced.trampoline, target):
            listed = traced.trampoline if isinstance(traced.trampoline, str) else f"{traced.trampoline:#x}"
            raise EvidenceError(f"the call leads to {target:#x}, and its trampoline is at {listed}")
        graph = f" for {' and '.join(traced.graph)}" if traced.graph else ""
        return " by way of ".join(sorted(traced.callees)) + graph
    for entry, place in _ENTRIES.items():
        if target == symbols.address(entry):
            return _called_at(guest, symbols, symbols.address(place))
    raise EvidenceError(f"the call leads to {target:#x}, which is no entry of the function tracer")


def direct_trampoline(guest: Guest, target: int) -> str:
    """The trampoline that a traced function calls directly: BPF's, or a module's with its name behind it.

    Else it is the address: what the function calls is nothing that may be called so.
    """
    # Read anew: trampolines come and go.
    listing = guest.get(KALLSYMS, largest=KALLSYMS_MAX).decode("ascii", errors="replace")
    line = re.search(rf"^0*{target:x} \S (\S+)\t\[(\w+)\]$", listing, re.MULTILINE)
    if line is None:
        return f"{target:#x}"
    symbol, owner = line.groups()
    is_bpf = owner == "bpf" and symbol.startswith(_BPF_TRAMPOLINE)
    return BPF_TRAMPOLINE if is_bpf else f"{symbol} [{owner}]"


def called_for_fprobe(symbols: Symbols, side: str) -> str:
    """What ``called_by_tracer`` must find for an fprobe with a handler at that side, by a kernel's functions.

    Linux 6.14 put fprobes on the function graph tracer (commit 4346ba160409), 6.19 those without a return back.
    """
    if symbols.functions("fprobe_handler"):
        return "fprobe_handler"
    if symbols.functions("fprobe_ftrace_entry") and side == "entry":
        return "fprobe_ftrace_entry"
    entry = "fprobe_fgraph_entry" if symbols.functions("fprobe_fgraph_entry") else "fprobe_entry"
    return f"ftrace_graph_func for ent:{entry} ret:fprobe_return"


def _is_at(guest: Guest, trampoline: int | str, target: int) -> bool:
    """Whether a trampoline, as the tracer lists it, is where a call leads."""
    if isinstance(trampoline, int):
        return trampoline == target
    # Read anew: trampolines come and go.
    listing = guest.get(KALLSYMS, largest=KALLSYMS_MAX).decode("ascii", errors="replace")
    place = _PLACE.fullmatch(trampoline)
    if place is None:
        return False
    symbol, offset, owner = place.groups()
    lines = re.findall(rf"^([0-9a-f]+) \S {re.escape(symbol)}\t{re.escape(owner)}$", listing, re.MULTILINE)
    is_trampoline = re.search(rf"^0*{target:x} \S {re.escape(_A_TRAMPOLINE)}$", listing, re.MULTILINE)
    return is_trampoline is not None and target in {int(address, 16) + int(offset, 16) for address in lines}


def _called_at(guest: Guest, symbols: Symbols, address: int) -> str:
    code = guest.read_memory(address, CALL_BYTES)
    target = address + CALL_BYTES + int.from_bytes(code[1:], "little", signed=True)
    names = symbols.names(target)
    if code[0] != 0xE8 or not names:
        raise EvidenceError(f"the function tracer's own call at {address:#x} is {code.hex(' ')}, and leads nowhere")
    return next((name for name in (KPROBES_HANDLER, ALL_USERS) if name in names), min(names))


def _without_offset(function: str) -> str:
    name, _, rest = function.partition("+")
    _, bracket, module = rest.partition(" [")
    return name + bracket + module
