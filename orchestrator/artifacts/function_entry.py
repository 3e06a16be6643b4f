# SPDX-License-Identifier: GPL-2.0-only
"""Where a function's own code begins, after an endbr and the function tracer's nop or call.

A probe "at the function's entry" goes there: 0, 4, 5 or 9 bytes after the symbol. It depends on the function as well
as on the kernel: a function that is only called directly has no endbr, and one that is notrace has no nop.
"""

from __future__ import annotations

from orchestrator.arch import CALL
from orchestrator.artifacts.kernel_code import KernelCode

LONGEST = 9
"""Bytes to look at: an endbr and the function tracer's call or nop."""


ENDBR_BYTES, TRACER_BYTES = 4, 5


# endbr64, endbr32, and the nops with which kernels since 5.18 replace an endbr that nothing jumps to: an older and a
# newer gen_endbr_poison() of arch/x86/include/asm/ibt.h.
_ENDBR = frozenset(bytes.fromhex(code) for code in ("f30f1efa", "f30f1efb", "660f1f00", "0f1f40d6"))


NOPS5 = tuple(bytes.fromhex(code) for code in ("0f1f440000", "3e8d742600", "6666666690", "3e8d442000"))
"""Where the function tracer's call or a static branch's jump is not: today's nops of x86_64 and i386 first.

Before Linux 5.13 (commit a89dfde3dc3c) the kernel chose by CPU as it booted: NOP5_ATOMIC of P6, GENERIC, K8 and K7 in
arch/x86/include/asm/nops.h.
"""


def entry_places(code: bytes) -> set[int]:
    """Offsets at which nothing of a function has run yet; ``code`` is from memory, with the function tracer off."""
    endbr = _endbr_bytes(code)
    traced = code[endbr : endbr + TRACER_BYTES] in NOPS5
    return {0, endbr, endbr + TRACER_BYTES if traced else endbr}


def entry_offset(code: KernelCode, symbol: str) -> int | None:
    """Bytes from a kernel function's symbol to its own code; None unless exactly one function has the name."""
    start, fentry = code.function(symbol), code.function("__fentry__")
    if start is None:
        return None
    first = code.read(start, LONGEST)
    if not first:
        return None
    endbr = _endbr_bytes(first)
    # Before the kernel starts, the tracer's nop is still the call that the compiler emitted.
    call = first[endbr : endbr + TRACER_BYTES]
    target = start + endbr + TRACER_BYTES + int.from_bytes(call[1:], "little", signed=True)
    calls_tracer = call[:1] == bytes([CALL]) and fentry is not None and (target - fentry) % (1 << 32) == 0
    return endbr + TRACER_BYTES if calls_tracer else max(entry_places(first))


def tracer_place(entry: int) -> int:
    """The offset of the function tracer's nop, after any endbr, given the offset of the function's own code."""
    return entry - TRACER_BYTES if entry >= TRACER_BYTES else entry


def _endbr_bytes(code: bytes) -> int:
    return ENDBR_BYTES if code[:ENDBR_BYTES] in _ENDBR else 0
