# SPDX-License-Identifier: GPL-2.0-only
"""Executed instructions by class, such as segment loads, traps and locked instructions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile
from typing import get_args

from pydantic import TypeAdapter

from orchestrator.arch import ARCHITECTURES, INT3
from orchestrator.artifacts.machine_code import decoded
from orchestrator.catalog.data import read
from orchestrator.profile.stored.cell_profile import ZERO, CellProfile
from orchestrator.results.contract import ExecutedClasses, InstructionClass


@lru_cache(maxsize=1)
def instruction_classes() -> Mapping[str, frozenset[str]]:
    """The names of instructions, in Intel's syntax, by class, in the order in which classes are printed."""
    return TypeAdapter(dict[str, frozenset[str]]).validate_python(read("instruction_classes.yaml"))


SEGMENT_LOADS = "segment loads"


LOCKED = "locked"


LOADS, STORES, TAKEN = "loads", "stores", "taken branches"


_FAR_LOADS = frozenset({"lds", "les", "lfs", "lgs", "lss"})


_LOCK = 0xF0


_PREFIXES = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, _LOCK, 0xF2, 0xF3})


_BRANCHES = frozenset({"call", "ret", "loop", "loope", "loopne", "lcall", "ljmp", "retf"})


def per_call(profile: CellProfile) -> Mapping[str, Fraction]:
    """How many instructions of each class a call executes; loads and stores count accesses.

    Loads, stores and taken branches are included if the guest has counted them. An instruction may be in several
    classes. What an exception pushes is not counted as a store: QEMU does not show it to a plugin.
    """
    names = [*instruction_classes(), SEGMENT_LOADS, LOCKED]
    if profile.has_details:
        names += [LOADS, STORES, TAKEN]
    sums: Counter[str] = Counter()
    word = ARCHITECTURES[profile.arch].word
    for instruction in profile.instructions:
        classes, is_branch = _classes(instruction.code, word)
        sums.update(dict.fromkeys(classes, instruction.executed))
        sums.update(
            {LOADS: instruction.loads, STORES: instruction.stores, TAKEN: instruction.taken if is_branch else 0}
        )
    return {name: Fraction(sums[name], profile.calls) for name in names}


def executed_classes(profile: CellProfile) -> ExecutedClasses:
    """The classes that modelled time is computed from, as a guest counts them that counts only these."""
    classes = per_call(profile)
    int3 = sum(instruction.executed for instruction in profile.instructions if instruction.code == f"{INT3:02x}")
    traps: dict[InstructionClass, Fraction] = {
        "int3": Fraction(int3, profile.calls),
        "other traps": classes["traps"] - Fraction(int3, profile.calls),
    }
    names: tuple[InstructionClass, ...] = get_args(InstructionClass)
    counts = {name: int(traps.get(name, classes.get(name, ZERO)) * profile.calls) for name in names}
    return ExecutedClasses(calls=profile.calls, instructions=profile.executed, classes=counts)


@lru_cache(maxsize=65536)
def _classes(code: str, word: int) -> tuple[frozenset[str], bool]:
    content = bytes.fromhex(code)
    # Capstone decodes neither endbr on i386 nor a lone prefix; such code belongs to no class.
    instruction = next(decoded(content, 0, word), None)
    if instruction is None:
        return frozenset(), False
    first = instruction.operands[0] if instruction.operands else None
    return frozenset(
        _classes_of(content, instruction.name, first, instruction.operands)
    ), instruction.name in _BRANCHES or instruction.name[0] == "j"


def _classes_of(content: bytes, name: str, first: object, operands: tuple[object, ...]) -> Iterator[str]:
    yield from (instruction_class for instruction_class, names in instruction_classes().items() if name in names)
    if name == "mov" and isinstance(first, str) and first[:2] in ("cr", "dr"):
        yield "serialising"
    if (name in ("mov", "pop") and first in {"cs", "ds", "es", "fs", "gs", "ss"}) or name in _FAR_LOADS:
        yield SEGMENT_LOADS
    touches_memory = any(not isinstance(operand, str | int) for operand in operands)
    prefixes = takewhile(lambda byte: byte in _PREFIXES, content)
    if _LOCK in prefixes or (name == "xchg" and touches_memory):
        yield LOCKED
