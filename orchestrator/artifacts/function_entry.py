# SPDX-License-Identifier: GPL-2.0-only
"""Where a function's own code begins, behind an endbr and what the function tracer has at its start.

A probe "at the function's entry" goes there: 0, 4, 5 or 9 bytes behind the symbol. Which it is depends on the
function as well as on the kernel: one that is only called directly has no endbr, one that is notrace no nop.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from elftools.elf.elffile import ELFFile

from orchestrator.elf import DAMAGED

LONGEST = 9
"""Bytes to look at: an endbr and a call or nop of the function tracer's."""

ENDBR_BYTES, TRACER_BYTES = 4, 5

# endbr64, endbr32, and the nops that kernels since 5.18 put in place of an endbr that nothing jumps to: an older and a
# newer gen_endbr_poison() of arch/x86/include/asm/ibt.h.
_ENDBR = frozenset(bytes.fromhex(code) for code in ("f30f1efa", "f30f1efb", "660f1f00", "0f1f40d6"))

FTRACE_NOPS = (bytes.fromhex("0f1f440000"), bytes.fromhex("3e8d742600"))
"""The five-byte nops that stand for a disabled call of the function tracer, x86_64's and i386's."""

_CALL = 0xE8


def entry_places(code: bytes) -> set[int]:
    """Where nothing of a function has run yet, in bytes behind its symbol: its code begins at the last of them.

    ``code`` is from memory, the function tracer being off.
    """
    endbr = _endbr_bytes(code)
    traced = code[endbr : endbr + TRACER_BYTES] in FTRACE_NOPS
    return {0, endbr, endbr + TRACER_BYTES if traced else endbr}


@lru_cache(maxsize=4096)
def entry_offset_in(tree: Path, symbol: str) -> int | None:
    """Bytes before the code of a function of the kernel that was built in ``tree``.

    None where that cannot be known: the tree has no vmlinux, or the kernel not one such function.
    """
    try:
        listing = (tree / "System.map").read_text(encoding="ascii", errors="replace")
        with (tree / "vmlinux").open("rb") as file:
            start, fentry = _address(listing, symbol), _address(listing, "__fentry__")
            code = _read(ELFFile(file), start) if start is not None else b""
    except (OSError, *DAMAGED):
        return None
    if start is None or len(code) < LONGEST:
        return None
    endbr = _endbr_bytes(code)
    # Before the kernel has started, the tracer's nop is the call that the compiler made.
    call = code[endbr : endbr + TRACER_BYTES]
    target = start + endbr + TRACER_BYTES + int.from_bytes(call[1:], "little", signed=True)
    calls_tracer = call[0] == _CALL and fentry is not None and (target - fentry) % (1 << 32) == 0
    return endbr + TRACER_BYTES if calls_tracer else max(entry_places(code))


def _endbr_bytes(code: bytes) -> int:
    return ENDBR_BYTES if code[:ENDBR_BYTES] in _ENDBR else 0


def _address(listing: str, symbol: str) -> int | None:
    found = re.findall(rf"^([0-9a-f]{{8,16}}) [tTwW] {re.escape(symbol)}$", listing, re.MULTILINE)
    return int(found[0], 16) if len(found) == 1 else None


def _read(vmlinux: ELFFile, address: int) -> bytes:
    """The bytes that the image has at a virtual address; none where it has nothing there."""
    for segment in vmlinux.iter_segments("PT_LOAD"):
        behind = address - segment["p_vaddr"]
        if 0 <= behind < segment["p_filesz"]:
            vmlinux.stream.seek(segment["p_offset"] + behind)
            return bytes(vmlinux.stream.read(LONGEST))
    return b""
