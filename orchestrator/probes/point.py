# SPDX-License-Identifier: GPL-2.0-only
"""Places to probe: as experiments name them, as guests have them, and whether the kernel's image allows them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.artifacts.function_entry import NOPS5, entry_places
from orchestrator.artifacts.kernel_code import FUNCTION_TYPES, KernelCode
from orchestrator.artifacts.machine_code import Instruction, Memory, decoded
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

    Without a ``file`` it is in the kernel, else in the program that makes the calls or in a library linked with it.
    ``offset`` is in bytes, None for the function itself; ``is_whole``: each instruction of the function. ``found_by``
    is the entry of ``points`` that a guest resolved to it, None if the experiment names it.
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


# Checking a probe point before a boot, as far as the kernel's image (or a module's file) allows.
#
# The guest decides the rest: functions that must not be probed, and places that the kernel patches as it boots.

_NAMES_SHOWN = 3
_MOST_GUESSES = 5000
"""Limit of names compared with a misspelt one; comparing all of a kernel's would take seconds."""


def wrong_point_reason(code: KernelCode, symbol: str, offset: int | None) -> str | None:
    """Why a kernel's image lacks a point or, without an ``offset``, a function; None if it may have it."""
    functions = [match for match in code.named(symbol) if match.type in FUNCTION_TYPES]
    if len(functions) > 1:
        places = ", ".join(f"{function.address:#x}" for function in functions)
        return f"it has {len(functions)} functions {symbol} ({places}): the name is ambiguous"
    if not functions and code.named(symbol):
        return f"{symbol} is data, not a function"
    if not functions:
        names = functions_like(symbol, code)
        guess = f"; did you mean {' or '.join(names)}?" if names else ""
        return f"it has no function {symbol} of its own{guess}"
    start = functions[0].address
    if code.is_in(start, ".init"):
        when = "the module has been loaded" if code.is_module else "the kernel has booted"
        return f"{symbol} is __init: its memory is freed when {when}"
    if code.is_in(start, ".exit"):
        module, built_in = "it runs when the module is unloaded, behind all calls", "the kernel drops it as it boots"
        return f"{symbol} is __exit: {module if code.is_module else built_in}"
    reason = _no_code_reason(code, symbol, start)
    return reason or (_wrong_offset_reason(code, symbol, start, offset) if offset else None)


def _no_code_reason(code: KernelCode, symbol: str, start: int) -> str | None:
    """Why no code of a function is executed: the compiler names the nops before a function."""
    if not code.is_module and ".text" in code.sections and not code.is_in(start, ".text"):
        return f"{symbol} is not a function: it is outside of the kernel's text"
    behind = code.following(start)
    instructions = [] if behind is None else list(decoded(code.read(start, behind - start), start, code.word))
    if behind is None or not instructions or instructions[-1].end != behind or not all(map(is_padding, instructions)):
        return None
    before = next((name for name in code.names_at(behind) if symbol.endswith(name)), None)
    what = "padding" if before is None else f"padding before {before}"
    return f"{symbol} has no instruction: its {behind - start:#x} bytes are {what}"


def functions_like(symbol: str, *codes: KernelCode) -> Sequence[str]:
    """Up to three functions similar to a name, first those that contain it, such as ``vfs_read.cold``."""
    names = {function.name for code in codes for function in code.symbols if function.type in FUNCTION_TYPES}
    within = sorted((name for name in names if symbol in name), key=lambda name: (len(name), name))
    alike = sorted(name for name in names if name[:4] == symbol[:4])[:_MOST_GUESSES]
    close = difflib.get_close_matches(symbol, alike, n=_NAMES_SHOWN, cutoff=0.6)
    return list(dict.fromkeys([*close[:1], *within, *close]))[:_NAMES_SHOWN]


def _wrong_offset_reason(code: KernelCode, symbol: str, start: int, offset: int) -> str | None:
    end = code.following(start) or start
    size = end - start
    if offset >= size:
        return f"{symbol}+{offset:#x} is beyond the end of {symbol}, which has {size:#x} bytes"
    place = start + offset
    instructions = list(decoded(code.read(start, size), start, code.word))
    for before, instruction, after in zip([None, *instructions], instructions, [*instructions[1:], None], strict=False):
        if instruction.address < place < instruction.end:
            if code.is_patched(instruction.address, instruction.end):
                return None
            near = [f"+{near.address - start:#x}" for near in (before, instruction, after) if near is not None]
            return (
                f"{symbol}+{offset:#x} is inside the instruction at +{instruction.address - start:#x} "
                f"({instruction.size} bytes): "
                f"instructions begin at {', '.join(near)}"
            )
    last = next((instruction for instruction in reversed(instructions) if not is_padding(instruction)), None)
    if instructions and instructions[-1].end == end and last is not None and place > last.address:
        return (
            f"{symbol}+{offset:#x} is beyond the end of {symbol}: behind its last instruction, at "
            f"+{last.address - start:#x}, is padding"
        )
    return None


def is_padding(instruction: Instruction) -> bool:
    """Whether it is a nop or an int3; i386 also pads with a lea of a register to itself."""
    if instruction.name == "lea" and isinstance(instruction.operands[1], Memory):
        return instruction.operands[1].base == instruction.operands[0] and instruction.operands[1].displacement == 0
    return instruction.name in {"nop", "int3"}
