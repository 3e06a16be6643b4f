# SPDX-License-Identifier: GPL-2.0-only
"""Where a function's own code begins, behind an endbr and what the function tracer has at its start.

A probe "at the function's entry" goes there: 0, 4, 5 or 9 bytes behind the symbol. Which it is depends on the
function as well as on the kernel: one that is only called directly has no endbr, one that is notrace no nop.
"""

from __future__ import annotations

from orchestrator.artifacts.kernel_code import KernelCode

LONGEST = 9
"""Bytes to look at: an endbr and a call or nop of the function tracer's."""

ENDBR_BYTES, TRACER_BYTES = 4, 5

# endbr64, endbr32, and the nops that kernels since 5.18 put in place of an endbr that nothing jumps to: an older and a
# newer gen_endbr_poison() of arch/x86/include/asm/ibt.h.
_ENDBR = frozenset(bytes.fromhex(code) for code in ("f30f1efa", "f30f1efb", "660f1f00", "0f1f40d6"))

FTRACE_NOPS = (bytes.fromhex("0f1f440000"), bytes.fromhex("3e8d742600"))
"""The five-byte nops that stand for a disabled call of the function tracer, x86_64's and i386's."""

_CALL = b"\xe8"


def entry_places(code: bytes) -> set[int]:
    """Where nothing of a function has run yet, in bytes behind its symbol: its code begins at the last of them.

    ``code`` is from memory, the function tracer being off.
    """
    endbr = _endbr_bytes(code)
    traced = code[endbr : endbr + TRACER_BYTES] in FTRACE_NOPS
    return {0, endbr, endbr + TRACER_BYTES if traced else endbr}


def entry_offset(code: KernelCode, symbol: str) -> int | None:
    """Bytes before the code of a function of the kernel; None where it has not one such function."""
    start, fentry = code.function(symbol), code.function("__fentry__")
    if start is None:
        return None
    first = code.read(start, LONGEST)
    if not first:
        return None
    endbr = _endbr_bytes(first)
    # Before the kernel has started, the tracer's nop is the call that the compiler made.
    call = first[endbr : endbr + TRACER_BYTES]
    target = start + endbr + TRACER_BYTES + int.from_bytes(call[1:], "little", signed=True)
    calls_tracer = call[:1] == _CALL and fentry is not None and (target - fentry) % (1 << 32) == 0
    return endbr + TRACER_BYTES if calls_tracer else max(entry_places(first))


def tracer_place(entry: int) -> int:
    """Where the function tracer's nop is, which is behind any endbr, for code that begins ``entry`` bytes in."""
    return entry - TRACER_BYTES if entry >= TRACER_BYTES else entry


def _endbr_bytes(code: bytes) -> int:
    return ENDBR_BYTES if code[:ENDBR_BYTES] in _ENDBR else 0
