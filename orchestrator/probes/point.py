# SPDX-License-Identifier: GPL-2.0-only
"""Places to probe: as experiments name them, as guests have them, and whether the kernel's image allows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.artifacts.function_entry import NOPS5, entry_places
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import Symbols

SHOWN_BYTES = 16
"""Bytes read from the probe point on: the longest x86 instruction has 15."""

_BRANCH_BYTES = 5
"""A static branch that is not taken is a nop with the length of its jump: two bytes or five."""


PROGRAM = "program"
"""The file name for points in the program that makes the calls."""


@dataclass(frozen=True)
class Point:
    """A place to probe, as an experiment names it: ``SYMBOL``, ``SYMBOL+BYTES``, ``SYMBOL+*``; ``FILE:`` before it.

    Without a ``file`` it is in the kernel, else in the program that makes the calls or in a library linked with it, or
    in a program or library of the image, by its path or its library's name. ``offset`` is in bytes, None for the
    function itself; ``is_whole``: each instruction of the function. ``found_by`` is the entry of ``points`` that a
    guest resolved to it, None if the experiment names it.
    """

    symbol: str
    offset: int | None = None
    file: str | None = None
    is_whole: bool = False
    found_by: str | None = None

    @classmethod
    def of(cls, text: str) -> Point:
        # The kernel's points have no colon; a static one's, FILE:PROVIDER:NAME, has two.
        file, colon, place = text.partition(":")
        symbol, plus, offset = (place if colon else text).partition("+")
        is_whole = offset == "*"
        return cls(symbol, int(offset, 0) if plus and not is_whole else None, file if colon else None, is_whole)

    @property
    def library(self) -> str | None:
        return None if self.file == PROGRAM else self.file

    @property
    def is_in_path(self) -> bool:
        """Whether its file is named by a path in the image."""
        return self.file is not None and self.file.startswith("/")

    def __str__(self) -> str:
        offset = "+*" if self.is_whole else "" if self.offset is None else f"+{self.offset:#x}"
        return f"{self.file}:{self.symbol}{offset}" if self.file else f"{self.symbol}{offset}"


@dataclass(frozen=True)
class ProbePoint:
    """A probe point and its original bytes.

    ``aliases`` are all names of the function: the kernel lists getpid's as ``__do_sys_getpid``. ``is_entry``: nothing
    of the function has run before it. ``is_called_directly``: it is in the function that a workload's calls enter
    first, with the arguments that they passed. ``module`` has the function, if the kernel itself lacks it; modules in
    ``shared_with`` have another function of the same name as the kernel's.
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
        """How to name a place ``offset`` bytes after the symbol to the kernel: an address if the name is not unique.

        Kernels since 6.6 and 6.1.60 make no event at such a name (number_of_same_symbols()).
        """
        if not self.shared_with:
            return self.symbol, offset
        return f"{self.address - self.offset + offset:#x}", 0

    @property
    def name(self) -> str:
        """As the kernel writes it: ``symbol+0x5``."""
        return f"{self.symbol}+{self.offset:#x}" if self.offset else self.symbol

    def is_at(self, address: int) -> bool:
        return address == self.address

    def is_callers(self, address: int, symbols: Symbols) -> bool:
        """Whether the function can have been called from an address: in the kernel's text, or in a module's.

        A kernel function may be called by the modules that were loaded for the calls.
        """
        module = symbols.module(address)
        if module is None:
            return symbols.address("_stext") <= address < symbols.address("_etext")
        return self.module is not None or module in symbols.modules


def find_entry(guest: Guest, symbols: Symbols, symbol: str, offset: int) -> ProbePoint:
    """The probe point at a function's entry in a running guest, before anything is probed.

    That is the function tracer's nop or the first instruction after it, behind any endbr. Raises EvidenceError for an
    unknown symbol and for any other offset.
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
    """The probe point in a function of a running guest. Raises EvidenceError if unknown or beyond the end."""
    start, size = symbols.address(symbol), symbols.size(symbol)
    if offset >= size:
        raise EvidenceError(f"{symbol}+{offset:#x} is beyond the end of {symbol}, which has {size:#x} bytes")
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
    """The pointer of the static hook at the system-call entry. Raises EvidenceError if the hook is in use."""
    size = 8 if address >= 1 << 32 else 4
    original = guest.read_memory(address, size)
    if any(original):
        raise EvidenceError(f"the hook at {address:#x} is in use: it holds {original.hex(' ')}")
    return ProbePoint("lab_syscall_hook", 0, address, original)


def find_static_branch(guest: Guest, address: int, tracepoint: str) -> ProbePoint:
    """The static branch that leads to a tracepoint. Raises EvidenceError if it is probed."""
    original = guest.read_memory(address, _BRANCH_BYTES)
    if not original.startswith((*NOPS5, bytes.fromhex("6690"))):
        raise EvidenceError(f"there is no nop at {address:#x}, where the tracepoint's static branch is to be")
    return ProbePoint(f"trace_{tracepoint}", 0, address, original)
