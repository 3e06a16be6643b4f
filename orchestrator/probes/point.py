# SPDX-License-Identifier: GPL-2.0-only
"""A place in the guest's kernel to probe, and its original bytes."""

from __future__ import annotations

from collections.abc import Sequence
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

    ``aliases`` are all names of the function: the kernel lists getpid's as ``__do_sys_getpid``.
    ``is_entry``: nothing of the function has run before it. ``is_called_directly``: it is in the function that a
    workload's calls enter first, with the arguments that they passed. ``module`` has the function, where the kernel
    itself has not; those of ``shared_with`` have another of the name beside the kernel's.
    """

    symbol: str
    offset: int
    address: int
    original: bytes
    is_entry: bool = True
    is_called_directly: bool = True
    aliases: frozenset[str] = frozenset()
    module: str | None = None
    shared_with: Sequence[str] = ()

    def place(self, offset: int) -> tuple[str, int]:
        """What the kernel is told of a place ``offset`` bytes behind the symbol: an address where that is shared.

        Kernels since 6.6 and 6.1.60 make no event at a name that is not unique (number_of_same_symbols()).
        """
        if not self.shared_with:
            return self.symbol, offset
        return f"{self.address - self.offset + offset:#x}", 0

    @property
    def name(self) -> str:
        """As the kernel writes it: ``symbol+0x5``."""
        return f"{self.symbol}+{self.offset:#x}" if self.offset else self.symbol

    def is_at(self, address: int) -> bool:
        """Whether a hit can have come from an address."""
        return address == self.address

    def is_callers(self, address: int, symbols: Symbols) -> bool:
        """Whether the function can have been called from an address: the kernel's text, or a module's.

        One of the kernel itself is called by those modules that were loaded for the calls, which may be what calls it.
        """
        module = symbols.module(address)
        if module is None:
            return symbols.in_text(address)
        return self.module is not None or module in symbols.modules


def find_entry(guest: Guest, symbols: Symbols, symbol: str, offset: int) -> ProbePoint:
    """The probe point at a function's entry in a running guest, before anything is probed.

    That is the function tracer's nop or the first instruction behind it, and behind any endbr. Raises EvidenceError for
    an unknown symbol and for any other offset.
    """
    point = find_place(guest, symbols, symbol, offset)
    if not point.is_entry:
        code = guest.read_memory(symbols.address(symbol), SHOWN_BYTES)
        places = sorted(entry_places(code))
        allowed = ", ".join(f"+{place:#x}" for place in places)
        raise EvidenceError(
            f"{symbol}+{offset:#x} is not at the function's entry: its code begins {code.hex(' ')}, so {allowed} are",
            hint=f"name the place with its offset: {symbol}+{places[-1]:#x}",
        )
    return point


def find_place(guest: Guest, symbols: Symbols, symbol: str, offset: int) -> ProbePoint:
    """The probe point anywhere in a function of a running guest, before anything is probed.

    Raises EvidenceError for an unknown symbol and for an offset behind the function's end.
    """
    start, size = symbols.address(symbol), symbols.size(symbol)
    if offset >= size:
        raise EvidenceError(f"{symbol}+{offset:#x} is behind the end of {symbol}, which has {size:#x} bytes")
    is_entry = offset in entry_places(guest.read_memory(start, SHOWN_BYTES))
    original = guest.read_memory(start + offset, SHOWN_BYTES)
    module = symbols.module(start)
    return ProbePoint(
        symbol,
        offset,
        start + offset,
        original,
        is_entry=is_entry,
        aliases=symbols.names(start),
        module=module,
        shared_with=symbols.sharing(symbol) if module is None else (),
    )


def find_hook(guest: Guest, address: int) -> ProbePoint:
    """The pointer of the static hook at the system-call entry. Raises EvidenceError where the hook is in use."""
    size = 8 if address >= 1 << 32 else 4
    original = guest.read_memory(address, size)
    if any(original):
        raise EvidenceError(f"the hook at {address:#x} is in use: it holds {original.hex(' ')}")
    return ProbePoint("lab_syscall_hook", 0, address, original)


def find_static_branch(guest: Guest, address: int, tracepoint: str) -> ProbePoint:
    """The static branch that leads to a tracepoint. Raises EvidenceError where it is probed."""
    original = guest.read_memory(address, _BRANCH_BYTES)
    if not original.startswith((*FTRACE_NOPS, _SHORT_NOP)):
        raise EvidenceError(f"there is no nop at {address:#x}, where the tracepoint's static branch is to be")
    return ProbePoint(f"trace_{tracepoint}", 0, address, original)
