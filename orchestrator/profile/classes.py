# SPDX-License-Identifier: GPL-2.0-only
"""What kinds of instructions a profile has: traps, returns, locked ones, loads and stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache

from orchestrator.artifacts.instructions import decoded
from orchestrator.catalog.instruction_classes import instruction_classes
from orchestrator.profile.operands import WORDS
from orchestrator.results.profile import CellProfile

SEGMENT_LOADS = "segment loads"
LOCKED = "locked"
LOADS, STORES, TAKEN = "loads", "stores", "taken branches"

_SEGMENTS = frozenset({"cs", "ds", "es", "fs", "gs", "ss"})
_FAR_LOADS = frozenset({"lds", "les", "lfs", "lgs", "lss"})
_LOCK = 0xF0
_PREFIXES = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF2, 0xF3})
_BRANCHES = frozenset({"call", "ret", "loop", "loope", "loopne", "lcall", "ljmp", "retf"})


def per_call(profile: CellProfile) -> Mapping[str, Fraction]:
    """How many instructions of each class a call executes; loads and stores count accesses.

    Loads, stores and taken branches are there where the guest has counted them. An instruction may be in several
    classes. What an exception pushes is no store: QEMU does not show it to a plugin.
    """
    names = [*instruction_classes(), SEGMENT_LOADS, LOCKED]
    if profile.has_details:
        names += [LOADS, STORES, TAKEN]
    sums: Counter[str] = Counter()
    word = WORDS[profile.arch]
    for one in profile.instructions:
        classes, is_branch = _classes(one.code, word)
        sums.update(dict.fromkeys(classes, one.executed))
        sums.update({LOADS: one.loads, STORES: one.stores, TAKEN: one.taken if is_branch else 0})
    return {name: Fraction(sums[name], profile.calls) for name in names}


@lru_cache(maxsize=65536)
def _classes(code: str, word: int) -> tuple[frozenset[str], bool]:
    """The classes of an instruction, and whether it is a branch."""
    content = bytes.fromhex(code)
    # Capstone takes no endbr for i386 and no prefix alone; such code belongs to no class.
    one = next(decoded(content, 0, word), None)
    if one is None:
        return frozenset(), False
    first = one.operands[0] if one.operands else None
    return frozenset(_found(content, one.name, first, one.operands)), one.name in _BRANCHES or one.name[0] == "j"


def _found(content: bytes, name: str, first: object, operands: tuple[object, ...]) -> Iterator[str]:
    yield from (one for one, names in instruction_classes().items() if name in names)
    if name == "mov" and isinstance(first, str) and first[:2] in ("cr", "dr"):
        yield "serialising"
    if (name in ("mov", "pop") and first in _SEGMENTS) or name in _FAR_LOADS:
        yield SEGMENT_LOADS
    touches_memory = any(not isinstance(operand, str | int) for operand in operands)
    if _LOCK in _prefixes(content) or (name == "xchg" and touches_memory):
        yield LOCKED


def _prefixes(content: bytes) -> Iterator[int]:
    for byte in content:
        if byte not in _PREFIXES and byte != _LOCK:
            return
        yield byte
