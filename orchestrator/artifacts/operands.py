# SPDX-License-Identifier: GPL-2.0-only
"""The numbers in an instruction's text, jump targets and addresses among them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from orchestrator.artifacts.machine_code import disassembled

# Capstone writes numbers below ten without 0x. None of them is an absolute address.
_NUMBER = re.compile(r"(?P<rip>rip (?=[+-] [0-9]))?(?P<sign>[+-] ?)?(?<!\w)(?P<number>0x[0-9a-f]+|(?<=rip . )[0-9])\b")


_PER_CPU = re.compile(r"[fg]s:\[0x[0-9a-f]+\]")
"""Without a register the number is the place of a per-CPU variable; with one it may be a field's offset."""


class Operand(NamedTuple):
    """A number, from ``start`` to ``end`` of an instruction's text.

    ``relative`` ones count from the instruction's address; ``per-cpu`` is a variable's place; ``plain`` ones may be
    anything.
    """

    start: int
    end: int
    value: int
    kind: Literal["relative", "per-cpu", "plain"]


@lru_cache(maxsize=65536)
def operands(code: str, word: int) -> tuple[str, tuple[Operand, ...]]:
    """An instruction's text as if at address 0, and the numbers in it. Cached, as a profile repeats most codes."""
    text = disassembled(bytes.fromhex(code), 0, word)
    if text.startswith(".byte"):
        return text, ()
    branch = re.fullmatch(r"(?:.* )?(?:call|j[a-z]+|loop[a-z]*|xbegin) (?P<target>0x[0-9a-f]+|[0-9])", text)
    if branch is not None:
        return text, (Operand(branch.start("target"), len(text), int(branch["target"], 0), "relative"),)
    per_cpu = _PER_CPU.search(text)
    numbers = []
    for number in _NUMBER.finditer(text):
        value = int(number["number"], 0) * (-1 if (number["sign"] or "").startswith("-") else 1)
        if number["rip"]:
            # Drop the sign too: a target after the code in one kernel may be before it in another.
            numbers.append(Operand(number.start(), number.end(), value + len(code) // 2, "relative"))
        else:
            is_per_cpu = per_cpu is not None and per_cpu.start() < number.start() < per_cpu.end()
            numbers.append(Operand(number.start(), number.end(), value, "per-cpu" if is_per_cpu else "plain"))
    return text, tuple(numbers)
