# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's symbols and code, read from its image before anything boots.

A build tree has them in its System.map and vmlinux. Debian's packages have only the compressed image: its list of
symbols is found inside (see ``kallsyms``). The addresses are those in a guest, which boots with nokaslr.
"""

from __future__ import annotations

import io
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path

from elftools.elf.elffile import ELFFile

from orchestrator.artifacts.kallsyms import Symbol, find_symbols
from orchestrator.elf import DAMAGED

_LINE = re.compile(r"^([0-9a-f]{8,16}) (\S) (\S+)$", re.MULTILINE)
FUNCTION_TYPES = frozenset("tTwW")
"""The types of symbols that kprobes can be at."""

VMLINUX, SYSTEM_MAP = "vmlinux", "System.map"
_RODATA, _TEXT = ".rodata", ".text"
# struct alt_instr of arch/x86/include/asm/alternative.h: two relative addresses, the CPU's feature in 2 bytes (in 4
# since Linux 6.3, commit 5d1dd961e743), and the lengths of the code and of its replacement.
_ALTERNATIVES = (".altinstructions", ((12, 10), (14, 12)))
_PARAVIRTUAL = ".parainstructions"
RETPOLINES, RETURNS = ".retpoline_sites", ".return_sites"
"""Sections of places, each relative to its own entry."""


@dataclass(frozen=True)
class CodePart:
    """A part of an image: its address in memory, its size in bytes, and its place in the file."""

    address: int
    size: int
    place: int


@dataclass(frozen=True)
class Alternative:
    """A place of the text whose code is replaced on some CPUs: both as address and size in bytes."""

    address: int
    size: int
    replacement: int
    replacement_size: int


@dataclass(frozen=True)
class KernelCode:
    """A kernel's symbols by address, and its image's bytes. ``word`` is the size of a pointer in bytes.

    One that ``is_module`` has the functions of a module's file.
    """

    symbols: Sequence[Symbol] = field(repr=False)
    image: bytes = field(repr=False)
    word: int
    segments: Sequence[CodePart] = field(repr=False)
    sections: Mapping[str, CodePart] = field(repr=False)
    is_module: bool = False

    def named(self, name: str) -> Sequence[Symbol]:
        """All symbols of this name: static functions may share one."""
        return self._by_name.get(name, ())

    def address(self, name: str) -> int | None:
        """The address of the only symbol of this name; None where there is none, or more than one."""
        found = self.named(name)
        return found[0].address if len(found) == 1 else None

    def function(self, name: str) -> int | None:
        """The address of the only function of this name; None where there is none, or more than one."""
        found = [symbol for symbol in self.named(name) if symbol.type in FUNCTION_TYPES]
        return found[0].address if len(found) == 1 else None

    def has_function(self, name: str) -> bool:
        """Whether any function has this name: one of data does not hide a module's."""
        return any(symbol.type in FUNCTION_TYPES for symbol in self.named(name))

    def is_in(self, address: int, sections: str) -> bool:
        """Whether an address is in a section whose name begins so."""
        return any(
            name.startswith(sections) and part.address <= address < part.address + part.size
            for name, part in self.sections.items()
        )

    def names_at(self, address: int) -> Sequence[str]:
        """The names of what begins at an address."""
        return self._by_address.get(address, ())

    def following(self, address: int) -> int | None:
        """The address of the next symbol behind; None at the end."""
        behind = bisect_right(self._addresses, address)
        return self._addresses[behind] if behind < len(self._addresses) else None

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes at a virtual address; none where the image has nothing there."""
        for part in self.segments:
            behind = address - part.address
            if 0 <= behind < part.size:
                return self.image[part.place + behind : part.place + min(part.size, behind + size)]
        return b""

    def number(self, address: int) -> int | None:
        """The pointer at an address; None where the image has none there."""
        found = self.read(address, self.word)
        return int.from_bytes(found, "little") if len(found) == self.word else None

    def is_patched(self, start: int, end: int) -> bool:
        """Whether the kernel may put other code between two addresses for the CPU that it boots on."""
        first = bisect_right(self._patched, (start, 0))
        near = self._patched[max(0, first - 1) : first + 1]
        return any(begin < end and start < behind for begin, behind in near)

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[Symbol]]:
        found: dict[str, list[Symbol]] = {}
        for symbol in self.symbols:
            found.setdefault(symbol.name, []).append(symbol)
        return found

    @cached_property
    def _by_address(self) -> Mapping[int, Sequence[str]]:
        found: dict[int, list[str]] = {}
        for symbol in self.symbols:
            found.setdefault(symbol.address, []).append(symbol.name)
        return found

    @cached_property
    def _addresses(self) -> Sequence[int]:
        return sorted(self._by_address)

    @cached_property
    def alternatives(self) -> Sequence[Alternative]:
        """The places that have other code for some CPUs, in the table's order; a place may be there several times.

        None where the table's entries are of no form that is known.
        """
        name, forms = _ALTERNATIVES
        table = self.sections.get(name)
        for size, length_at in forms:
            if table is None or table.size % size:
                continue
            found = [
                Alternative(
                    self._relative(entry),
                    self.image[entry.place + length_at],
                    self._relative(CodePart(entry.address + 4, 4, entry.place + 4)),
                    self.image[entry.place + length_at + 1],
                )
                for entry in self._entries(name, size)
            ]
            if all(map(self._is_possible, found)):
                return _padded_alike(found)
        return ()

    def _is_possible(self, one: Alternative) -> bool:
        """Whether the image has both codes, and the replacement fits: it does not where an entry's form is another."""
        return (
            one.replacement_size <= one.size
            and 0 < one.size == len(self.read(one.address, one.size))
            and one.replacement_size == len(self.read(one.replacement, one.replacement_size))
        )

    @cached_property
    def paravirtual(self) -> Sequence[tuple[int, int]]:
        """The places that call the hypervisor's functions: address and size in bytes."""
        # struct paravirt_patch_site: a pointer, the type and the length in a byte each, and padding.
        return [
            (
                int.from_bytes(self.image[entry.place : entry.place + self.word], "little"),
                self.image[entry.place + self.word + 1],
            )
            for entry in self._entries(_PARAVIRTUAL, 2 * self.word)
        ]

    def sites(self, section: str) -> Sequence[int]:
        """The addresses that a section lists, each relative to its entry; none where there is no such section."""
        part = self.sections.get(section)
        if part is None:
            return ()
        offsets = struct.unpack_from(f"<{part.size // 4}i", self.image, part.place)
        memory = 1 << 8 * self.word
        return [(entry + offset) % memory for entry, offset in zip(count(part.address, 4), offsets, strict=False)]

    @cached_property
    def _patched(self) -> Sequence[tuple[int, int]]:
        return sorted(
            [
                *((one.address, one.address + one.size) for one in self.alternatives),
                *((address, address + size) for address, size in self.paravirtual),
                *((address, address + 5) for name in (RETPOLINES, RETURNS) for address in self.sites(name)),
            ]
        )

    def _entries(self, section: str, size: int) -> Iterator[CodePart]:
        part = self.sections.get(section)
        for behind in range(0, part.size - size + 1, size) if part else ():
            assert part is not None
            yield CodePart(part.address + behind, size, part.place + behind)

    def _relative(self, entry: CodePart) -> int:
        """The address that an entry begins with, as a distance from itself."""
        distance = int.from_bytes(self.image[entry.place : entry.place + 4], "little", signed=True)
        return (entry.address + distance) % (1 << 8 * self.word)


def code_of_tree(tree: Path) -> KernelCode | None:
    """What the kernel of a build tree has; None where the tree has no vmlinux and System.map, or damaged ones."""
    listing, image = tree / SYSTEM_MAP, tree / VMLINUX
    try:
        return _tree_code(listing, image, image.stat().st_mtime_ns, listing.stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=3)  # each is some 60 MB
def _tree_code(listing: Path, image: Path, *changed: int) -> KernelCode | None:
    del changed
    text = listing.read_text(encoding="ascii", errors="replace")
    symbols = [Symbol(int(found[1], 16), found[2], found[3]) for found in _LINE.finditer(text)]
    return _of_elf(image.read_bytes(), symbols)


def write_code(folder: Path, elf: bytes, *, absolute_percpu: bool) -> None:
    """Make a folder what a build tree is here: the image as vmlinux, and the list of symbols inside it as System.map.

    Without such a list there is no System.map. ``absolute_percpu`` is the kernel's CONFIG_KALLSYMS_ABSOLUTE_PERCPU.
    """
    (folder / VMLINUX).write_bytes(elf)
    code = _of_elf(elf, ())
    part, text = (None, None) if code is None else map(code.sections.get, (_RODATA, _TEXT))
    if code is None or part is None or text is None:
        return
    rodata = elf[part.place : part.place + part.size]
    places = {"start": part.address, "text": text.address}
    symbols = find_symbols(rodata, word=code.word, absolute_percpu=absolute_percpu, **places)
    if symbols is not None:
        lines = (f"{one.address:0{2 * code.word}x} {one.type} {one.name}\n" for one in symbols)
        (folder / SYSTEM_MAP).write_text("".join(lines))


def _of_elf(elf: bytes, symbols: Iterable[Symbol]) -> KernelCode | None:
    try:
        file = ELFFile(io.BytesIO(elf))
        segments = [
            _part(elf, one["p_vaddr"], one["p_offset"], one["p_filesz"]) for one in file.iter_segments("PT_LOAD")
        ]
        sections = {
            one.name: _part(elf, one["sh_addr"], one["sh_offset"], one["sh_size"])
            for one in file.iter_sections()
            if one["sh_type"] != "SHT_NOBITS"
        }
        return KernelCode(sorted(symbols, key=_address), elf, file.elfclass // 8, segments, sections)
    except DAMAGED:
        return None


def _padded_alike(entries: Sequence[Alternative]) -> Sequence[Alternative]:
    """Entries of which those of one place have the size of the largest: nested ones may have less (Linux 6.12)."""
    sizes: dict[int, int] = {}
    for one in entries:
        sizes[one.address] = max(one.size, sizes.get(one.address, 0))
    return [replace(one, size=sizes[one.address]) for one in entries]


def _part(elf: bytes, address: int, place: int, size: int) -> CodePart:
    """A part of the image, as far as the file has it."""
    start = min(place, len(elf))
    return CodePart(address, min(size, len(elf) - start), start)


def _address(symbol: Symbol) -> int:
    return symbol.address
