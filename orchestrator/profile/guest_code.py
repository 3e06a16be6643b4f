# SPDX-License-Identifier: GPL-2.0-only
"""The code of a running guest, with the module that is or was loaded in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from orchestrator.artifacts.modules import Module
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.module_symbols import ModuleCode, module_code
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX, ModuleMemory, Symbols
from orchestrator.profile.places import GENERATED, CodeRange, Function, Places

_BEHIND_NAMES = "\x7f"
_HALF = 1 << 63
_SPLITS = 0xF0000000
"""Where a 32-bit kernel may begin (CONFIG_VMSPLIT_*): at a multiple of 256 MiB, its text 16 MiB behind."""
_MADE = {
    r"bpf_prog_[0-9a-f]{16}_(\S+)": "BPF program {}",
    r"bpf_prog_[0-9a-f]{16}": "a BPF program without a name",
    r"bpf_trampoline_\d+": "BPF trampoline",
    r"bpf_dispatcher_\w+": "BPF dispatcher",
    r"kprobe_insn_page": "kprobe's slot",
    r"kprobe_optinsn_page": "optimised kprobe's detour",
    r"ftrace_trampoline": "function tracer's trampoline",
}
"""What the kernel lists of code that it makes, and what that is here: the same name in each boot, without a number."""
_OF_KERNEL = re.compile(r"^([0-9a-f]{8,16}) \S (\S+)\t\[(?:bpf|__builtin__\w+)\]$", re.MULTILINE)
_FARTHEST = 1 << 16
"""Bytes behind a symbol that may be its own: the kernel does not list where such code ends."""


@dataclass(frozen=True)
class OwnModule:
    """A module that the kernel's own list of symbols does not have: where its memory begins, and its code."""

    name: str
    start: int
    code: ModuleCode


def code_of(guest: Guest, symbols: Symbols, module: Module | None, program: str) -> Places:
    """Its functions: those of ``symbols``, and of the ``module`` that was loaded since they were read.

    Raises EvidenceError where the guest's lists make no sense.
    """
    modules = ModuleMemory.all_of(guest)
    own = None
    if module is not None and module.name in modules:
        own = OwnModule(module.name, modules[module.name].start, module_code(guest, module.name, module.file))
    # Read anew, and only where there is such code: it comes and goes.
    made = cache(lambda: listed_code(guest.get(KALLSYMS, largest=KALLSYMS_MAX)))
    return replace(places_of(symbols, modules.values(), own, program), made_at=lambda address: made_at(made(), address))


def listed_code(listing: bytes) -> Sequence[tuple[int, str]]:
    """The addresses of code that the kernel has made and lists (``/proc/kallsyms``), and what it is, in order."""
    lines = _OF_KERNEL.findall(listing.decode("ascii", errors="replace"))
    return sorted((int(address, 16), _title(symbol)) for address, symbol in lines)


def _title(symbol: str) -> str:
    """What a symbol of such code stands for; one that is not known stands for itself."""
    matches = ((re.fullmatch(pattern, symbol), title) for pattern, title in _MADE.items())
    return next((title.format(*match.groups()) for match, title in matches if match), symbol)


def made_at(made: Sequence[tuple[int, str]], address: int) -> str:
    """What begins last at an address or before it."""
    at = bisect_right(made, (address, _BEHIND_NAMES)) - 1
    return made[at][1] if at >= 0 and address - made[at][0] < _FARTHEST else GENERATED


def places_of(symbols: Symbols, modules: Iterable[ModuleMemory], own: OwnModule | None, program: str) -> Places:
    """The functions of ``symbols`` and of ``own``, one of the ``modules``. Raises EvidenceError as ``code_of``."""
    start, end = symbols.anywhere("_stext"), symbols.anywhere("_etext")
    if start is None or end is None:
        raise EvidenceError("the guest's kernel does not list where its text is (_stext, _etext)")
    known = [] if own is None else sorted((address, name) for name, address in own.code.functions.items())
    ranges = [CodeRange(start, end), *(CodeRange(one.start, one.end) for one in modules)]
    if own is not None:
        ranges = [one for one in ranges if one.start != own.start] + [CodeRange(own.start, own.code.end)]

    def function_at(address: int) -> Function | None:
        if own is not None and own.start <= address < own.code.end:
            at = bisect_right(known, (address, _BEHIND_NAMES)) - 1
            return Function(*known[at], own.name) if at >= 0 else None
        found = symbols.function_at(address)
        return None if found is None else Function(*found)

    return Places(
        function_at=function_at,
        ranges=ranges,
        kernel_start=kernel_start(start),
        program=program,
    )


def kernel_start(text: int) -> int:
    """The lowest address of a kernel whose text begins at an address: below it are programs."""
    return _HALF if text >= _HALF else text & _SPLITS
