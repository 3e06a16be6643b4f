# SPDX-License-Identifier: GPL-2.0-only
"""The code that a marker adds to a function, and the annotated disassembly.

The marker's own instructions are those from the load of its immediate value or flag to the branch on it. The likely
path runs while no probe is connected: from the function's entry to its return, no conditional branch taken. The
unlikely path is all other reachable code, wherever the compiler put it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import capstone

from orchestrator.benchmarks.markers.codesize.object_file import Function, ObjectFile
from orchestrator.catalog.kernels import Arch
from orchestrator.errors import EvidenceError

_MODES: Mapping[Arch, int] = {"i386": capstone.CS_MODE_32, "x86_64": capstone.CS_MODE_64}
MARKER_DATA = "__marker_data"
"""The section of the markers' names, formats, probes and flags."""
_IMMEDIATE = b"\xb0\x00"
"""mov $0, %al, which loads the immediate value."""
_LIKELY, _UNLIKELY = " ", "|"
"""Marks of the two paths in the listing."""
_ENDS = ("ret", "retq", "retl", "ud2", "int3")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its offset and code, its text, the name it refers to, and a branch's target.

    ``reads`` is the number of bytes of memory that it reads.
    """

    at: int
    code: bytes
    text: str
    refers: str | None
    reads: int
    target: int | None
    conditional: bool
    ends: bool

    @property
    def behind(self) -> int:
        """The offset of the next one."""
        return self.at + len(self.code)


@dataclass(frozen=True)
class Paths:
    """A function's code by path, in bytes, and its listing.

    ``marker`` is the marker's own bytes in the likely path, ``flag`` the bytes of memory that it reads; both are 0
    without a marker.
    """

    likely: int
    unlikely: int
    marker: int
    flag: int
    listing: Sequence[str]


def paths(found: ObjectFile, name: str) -> Paths:
    """The paths of a function of the object. Raises EvidenceError for one that is missing or cannot be followed."""
    function = found.functions.get(name)
    if function is None:
        raise EvidenceError(f"the object has no function {name}")
    code = {one.at: one for one in _instructions(function, found.arch)}
    likely = _likely(code, name)
    # Padding may follow the function's return; no path reaches it.
    unlikely = _reachable(code, likely)
    cold = found.functions.get(f"{name}.cold")
    beyond = sum(len(one.code) for one in _instructions(cold, found.arch)) if cold else 0
    listing = [
        _line(one, _UNLIKELY if one.at in unlikely else _LIKELY)
        for one in code.values()
        if one.at in likely or one.at in unlikely
    ]
    if cold:
        listing += [_line(one, _UNLIKELY) for one in _instructions(cold, found.arch)]
    marker = _marker([code[at] for at in likely])
    return Paths(
        likely=sum(map(len, likely.values())),
        unlikely=sum(map(len, unlikely.values())) + beyond,
        marker=sum(len(one.code) for one in marker),
        flag=sum(one.reads for one in marker if one.refers == MARKER_DATA),
        listing=listing,
    )


def _marker(likely: Sequence[Instruction]) -> Sequence[Instruction]:
    """The marker itself among the instructions of the likely path."""
    start = next(
        (n for n, one in enumerate(likely) if one.code == _IMMEDIATE or one.refers == MARKER_DATA), len(likely)
    )
    end = next((n for n, one in enumerate(likely) if n > start and one.conditional), None)
    return likely[start : end + 1] if end is not None else []


def _instructions(function: Function, arch: Arch) -> Iterator[Instruction]:
    machine = capstone.Cs(capstone.CS_ARCH_X86, _MODES[arch])
    machine.syntax = capstone.CS_OPT_SYNTAX_ATT
    machine.detail = True
    for one in machine.disasm(function.code, 0):
        at, size, mnemonic, operands = one.address, one.size, one.mnemonic, one.op_str
        refers = next((word for place, word in function.references.items() if at <= place < at + size), None)
        branch = mnemonic.startswith("j")
        inside = branch and refers is None and re.fullmatch(r"(0x)?[0-9a-f]+", operands) is not None
        yield Instruction(
            at=at,
            code=function.code[at : at + size],
            text=f"{mnemonic} {operands}".strip(),
            refers=refers,
            reads=sum(
                o.size for o in one.operands if o.type == capstone.x86.X86_OP_MEM and o.access & capstone.CS_AC_READ
            ),
            target=int(operands, 16) if inside else None,
            conditional=branch and mnemonic != "jmp",
            ends=mnemonic in _ENDS or (mnemonic == "jmp" and not inside),
        )


def _likely(code: Mapping[int, Instruction], name: str) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at in code and at not in found:
        one = code[at]
        found[at] = one.code
        if one.ends:
            return found
        at = one.target if one.target is not None and not one.conditional else one.behind
    raise EvidenceError(f"the way through {name} comes to no return")


def _reachable(code: Mapping[int, Instruction], likely: Mapping[int, bytes]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    waiting = [code[at].target for at in likely if code[at].conditional]
    while waiting:
        at = waiting.pop()
        if at is None or at in likely or at in found or at not in code:
            continue
        one = code[at]
        found[at] = one.code
        if one.target is not None:
            waiting.append(one.target)
        if not one.ends and not (one.target is not None and not one.conditional):
            waiting.append(one.behind)
    return found


def _line(one: Instruction, mark: str) -> str:
    notes = [f"<{one.refers}>"] if one.refers else []
    if one.code == _IMMEDIATE:
        notes.append("<-- immediate value")
    elif one.text.startswith(("movzbl", "movzb", "movb", "cmpb")) and one.refers == MARKER_DATA:
        notes.append("<-- load of the flag")
    elif one.text.startswith("call"):
        notes.append("<-- call" if one.refers is None or one.refers == MARKER_DATA else "")
    return f"{one.at:4x}: {one.code.hex(' '):<30} {mark} {one.text} {' '.join(notes)}".rstrip()
