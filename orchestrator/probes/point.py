# SPDX-License-Identifier: GPL-2.0-only
"""A place in the guest's kernel to probe, and its original bytes."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.artifacts.function_entry import FTRACE_NOPS, entry_places
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import Symbols

SHOWN_BYTES = 16
"""Bytes looked at from the probe point on: the longest x86 instruction has 15."""

_SHORT_NOP = bytes.fromhex("6690")
_BRANCH_BYTES = 5
"""A static branch that is not taken is a nop as long as the jump that would take it: two bytes or five."""


@dataclass(frozen=True)
class ProbePoint:
    """A probe point and its original bytes.

    ``is_entry``: nothing of the function has run before it. ``is_called_directly``: it is in the function that a
    workload's calls enter first, with the arguments that they passed.
    """

    symbol: str
    offset: int
    address: int
    original: bytes
    is_entry: bool = True
    is_called_directly: bool = True

    @property
    def name(self) -> str:
        """As the kernel writes it: ``symbol+0x5``."""
        return f"{self.symbol}+{self.offset:#x}" if self.offset else self.symbol


def find_point(guest: Guest, symbols: Symbols, symbol: str, offset: int, *, at_entry: bool = True) -> ProbePoint:
    """The probe point in a running guest, before anything is probed.

    Raises EvidenceError for an unknown symbol, an offset behind the function's end, or ``at_entry`` for one that is no
    place for a probe at a function's entry: that is the function tracer's nop or the first instruction behind it, and
    behind any endbr.
    """
    start = symbols.address(symbol)
    size = symbols.size(symbol)
    if offset >= size:
        raise EvidenceError(f"{symbol}+{offset:#x} is behind the end of {symbol}, which has {size:#x} bytes")
    code = guest.read_memory(start, SHOWN_BYTES)
    places = entry_places(code)
    if offset not in places and at_entry:
        allowed = ", ".join(f"+{place:#x}" for place in sorted(places))
        raise EvidenceError(
            f"{symbol}+{offset:#x} is not at the function's entry: its code begins {code.hex(' ')}, so {allowed} are",
            hint=f"name the place with its offset: {symbol}+{max(places):#x}",
        )
    original = guest.read_memory(start + offset, SHOWN_BYTES)
    return ProbePoint(symbol, offset, start + offset, original, is_entry=offset in places)


def find_hook(guest: Guest, address: int) -> ProbePoint:
    """The pointer of the static hook at the system-call entry. Raises EvidenceError where the hook is in use."""
    size = 8 if address >= 1 << 32 else 4
    original = guest.read_memory(address, size)
    if any(original):
        raise EvidenceError(f"the hook at {address:#x} is in use: it holds {original.hex(' ')}")
    return ProbePoint("lab_syscall_hook", 0, address, original)


def find_static_branch(guest: Guest, address: int) -> ProbePoint:
    """The static branch that leads to the tracepoint sys_enter. Raises EvidenceError where it is probed."""
    original = guest.read_memory(address, _BRANCH_BYTES)
    if not original.startswith((*FTRACE_NOPS, _SHORT_NOP)):
        raise EvidenceError(f"there is no nop at {address:#x}, where the tracepoint's static branch is to be")
    return ProbePoint("trace_sys_enter", 0, address, original)
