# SPDX-License-Identifier: GPL-2.0-only
"""A cell's profile as it is stored: each instruction that its calls executed, by symbol.

One file for each cell, JSON compressed with gzip, in the run's folder ``profiles``. A cell's record has the file's name
and digest, and the figures that prove it.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from orchestrator.errors import LabError, UsageError
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellId, CellRecord, Phrase
from orchestrator.results.faults import storage_faults
from orchestrator.results.misses import CacheProfile, InstructionMisses, Misses, sum_of

FOLDER = "profiles"
LARGEST_FILE = 16 << 20
"""Bytes of a profile's file; one of a system call has ten thousand."""
_LARGEST_TEXT = 256 << 20

Place = Literal["kernel", "module", "user", "generated"]
Number = Annotated[int, Field(gt=-(2**63), lt=2**63)]
Offset = Annotated[int, Field(ge=0, lt=2**64)]
Code = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){0,15}$")]
FunctionName = Annotated[str, StringConstraints(pattern=r"^[ -~]+$", max_length=511)]
"""KSYM_NAME_LEN of include/linux/kallsyms.h is 512 since Linux 6.1."""
FunctionPlace = Annotated[str, StringConstraints(pattern=r"^[ -~]+$", max_length=800)]
Folded = Annotated[str, StringConstraints(pattern=r"^[ -~]+$", max_length=1 << 17)]
Unit = Literal["call", "run", "round", "probe"]

_PREFIX = "26|2e|36|3e|64|65|66|67"
_REPEATED = re.compile(rf"(?:{_PREFIX})*f[23](?:{_PREFIX}|f[23])*(?:4[0-9a-f])?(?:a[4-7a-f]|6[c-f])")
"""A string instruction with a prefix that repeats it, and REX before its opcode."""


class Instruction(NamedTuple):
    """An instruction ``offset`` bytes behind its symbol, and how often it was executed in all calls together.

    ``loads`` and ``stores`` are 0 where they were not counted, as ``taken`` (executions that went on elsewhere than
    behind it) in profiles of earlier versions. What the clock itself executes is subtracted. Without ``code`` it is all
    of user space, counted together.
    """

    offset: Offset
    code: Code
    executed: Number
    loads: Number = 0
    stores: Number = 0
    taken: Number = 0

    @property
    def repetitions(self) -> int:
        """Executions of a string instruction (``rep stos``) that went on at itself.

        QEMU's clock counts each of them, and a CPU's counter the whole instruction as one.
        """
        return self.taken if _REPEATED.fullmatch(self.code) else 0


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SymbolProfile(_Stored):
    """A function of the kernel or of ``module``, a program in user space, or code that was made while the guest ran.

    ``address`` is where it begins, from the module's text on for a module's; 0 for a program and for generated code,
    whose offsets are addresses.
    """

    name: FunctionName
    place: Place
    module: Phrase | None = None
    address: Offset
    instructions: tuple[Instruction, ...]
    misses: tuple[InstructionMisses, ...] = ()
    """Of those instructions that missed in a cache, where caches were modelled."""

    @cached_property
    def executed(self) -> int:
        """Instructions that were executed in it."""
        return sum(one.executed for one in self.instructions)

    @cached_property
    def repetitions(self) -> int:
        """Repetitions of string instructions among them."""
        return sum(one.repetitions for one in self.instructions)

    @cached_property
    def missed(self) -> Misses:
        """What its instructions missed."""
        return sum_of(one.misses for one in self.misses)

    @property
    def title(self) -> str:
        """The name as it is printed: ``kprobe_func [lab_kprobe]``."""
        return self.name if self.module is None else f"{self.name} [{self.module}]"

    @property
    def placed_title(self) -> str:
        """The same with where it is in its module: ``kprobe_func [lab_kprobe+0x40]``."""
        return self.title if self.module is None else f"{self.name} [{self.module}+{self.address:#x}]"


class CellProfile(_Stored):
    """All that ``calls`` calls of a cell executed, the largest symbol first. ``has_details`` where all was counted.

    ``unit`` is what is counted as a call: of a whole system it is a run.
    """

    cell: CellId
    arch: Literal["i386", "x86_64"]
    calls: Annotated[int, Field(ge=1)]
    unit: Unit = "call"
    has_details: bool
    symbols: tuple[SymbolProfile, ...]
    stacks: tuple[tuple[Folded, Number], ...] = ()
    """Folded: names with semicolons between, the program first, and the instructions of the last one in all calls."""
    caches: tuple[CacheProfile, ...] = ()
    """The caches that were modelled."""
    names: dict[str, dict[Offset, FunctionPlace]] = {}
    """The functions that instructions jump or refer to, by address: ``get_kprobe``, ``get_kprobe+0x5``.

    Of each module what its own instructions jump to, from its text on; under "" all others.
    """

    @property
    def executed(self) -> int:
        """Instructions of all calls together."""
        return sum(symbol.executed for symbol in self.symbols)

    @property
    def repetitions(self) -> int:
        """Repetitions of string instructions among them."""
        return sum(symbol.repetitions for symbol in self.symbols)

    @property
    def instructions(self) -> Iterable[Instruction]:
        """Those of all symbols."""
        return (one for symbol in self.symbols for one in symbol.instructions)

    @cached_property
    def missed(self) -> Misses:
        """What all instructions missed."""
        return sum_of(symbol.missed for symbol in self.symbols)

    @model_validator(mode="after")
    def _symbols_miss_what_caches_do(self) -> Self:
        caches = {one.name: one for one in self.caches}
        for name, cache in caches.items():
            if cache.misses != self.missed.of(name):
                raise ValueError(f"{name} missed {cache.misses} times, and the symbols {self.missed.of(name)} times")
        if caches and caches["l2"].accesses != caches["l1i"].misses + caches["l1d"].misses:
            raise ValueError("level 2 has other accesses than level 1 has misses")
        return self

    @model_validator(mode="after")
    def _each_symbol_once(self) -> Self:
        if self.stacks and sum(count for _, count in self.stacks) != self.executed:
            raise ValueError("the stacks and the symbols have different sums")
        if len({(one.name, one.module, one.address) for one in self.symbols}) != len(self.symbols):
            raise ValueError("two symbols have the same name and address")
        return self


def file_name(cell: str) -> str:
    """The name of a cell's file; an id may have slashes in it, and nothing else special."""
    return f"{cell.replace('/', '.')}.json.gz"


def write_profile(profile: CellProfile, file: Path) -> str:
    """Write a profile, and return its digest. Raises HostError when the disk is full."""
    # Without the time of day, equal profiles are equal files.
    content = gzip.compress(profile.model_dump_json().encode(), mtime=0)
    with storage_faults(file):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def load_profile(directory: Path, record: CellRecord) -> CellProfile:
    """The profile of a cell of the run in ``directory``.

    Raises UsageError where the cell has none, LabError where the file is not the one that the record names.
    """
    if record.profile is None:
        hint = f"measure with one: {PROGRAM} run CONFIG --profile symbols"
        raise UsageError(f"cell {record.id} has no profile", hint=hint)
    file = directory / FOLDER / file_name(record.id)
    if not file.exists():
        hint = "a run puts them there when the boot of their cells ends: wait for it, or go on with --resume"
        raise LabError(f"the profile of cell {record.id} is not there", where=str(file), hint=hint)
    with storage_faults(file), file.open("rb") as opened:
        content = opened.read(LARGEST_FILE + 1)
    if hashlib.sha256(content).hexdigest() != record.profile.sha256:
        raise LabError(f"this is not the profile of cell {record.id} that the run has recorded", where=str(file))
    try:
        text = zlib.decompressobj(wbits=31).decompress(content, _LARGEST_TEXT)
        return CellProfile.model_validate_json(text)
    except (zlib.error, ValidationError) as error:
        raise LabError("damaged, or written by another version of this program", where=str(file)) from error
