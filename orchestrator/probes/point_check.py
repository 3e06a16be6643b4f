# SPDX-License-Identifier: GPL-2.0-only
"""Checking a probe point before a boot, as far as the kernel's image (or a module's file) allows.

The guest decides the rest: functions that must not be probed, and places that the kernel patches as it boots.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from orchestrator.artifacts.kernel_code import FUNCTION_TYPES, KernelCode
from orchestrator.artifacts.machine_code import Instruction, Memory, decoded

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
