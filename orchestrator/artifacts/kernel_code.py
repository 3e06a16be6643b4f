# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's symbols and code, read from its image before it boots.

A build tree has them in System.map and vmlinux. Debian's packages have only the compressed image, with a list of
symbols in it (see ``find_symbols``). The addresses are those in a guest, which boots with nokaslr.
"""

from __future__ import annotations

import io
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import overload

from elftools.elf.elffile import ELFFile

from orchestrator.artifacts.symbol_listing import SymbolListing, grouped
from orchestrator.catalog.user_files import DAMAGED

# The list of symbols inside a kernel's image, as scripts/kallsyms.c of Linux writes it.
#
# Debian's images have no ELF symbols, and its packages an empty System.map. CONFIG_KALLSYMS puts the list into .rodata,
# where nothing points to it, so it is recognised by its structure: a table of 256 tokens, then a table of their
# offsets, which must agree in every entry. The markers before it must agree with the names before them.
#
# The addresses are before the names up to Linux 6.3, and behind the tokens since 6.4 (commit 404bad70fcf7). Since 7.0
# the tables are aligned to 4 bytes, and each address is relative to its own place.

_TOKENS = 256
_NAMES_PER_MARKER = 256
_LONGEST_NAME = 512  # KSYM_NAME_LEN since Linux 6.1
_LONGEST_TOKEN = 128
_LARGEST_TOKEN_TABLE = 1 << 16
_LARGEST_SEQUENCE_TABLE = 3 << 20
_FEWEST_MARKERS = 8
_FIRST = b"_stext"


@dataclass(frozen=True)
class Symbol:
    """A symbol of a kernel; ``type`` is nm's letter: t, T, w or W for code."""

    address: int
    type: str
    name: str


@dataclass(frozen=True)
class _Image:
    """The bytes to search for the list; ``word`` is the alignment of its tables in bytes."""

    data: bytes
    word: int

    def aligned(self, place: int) -> int:
        return -(-place // self.word) * self.word

    def numbers(self, place: int, count: int, form: str) -> Sequence[int]:
        """``count`` numbers in struct's ``form``, or fewer at the end of the image."""
        size = struct.calcsize(form)
        whole = max(0, min(count, (len(self.data) - place) // size)) if place >= 0 else 0
        return struct.unpack_from(f"<{whole}{form}", self.data, place) if whole else ()


def find_symbols(
    data: bytes, *, word: int, absolute_percpu: bool, start: int = 0, text: int = 0
) -> list[Symbol] | None:
    """The symbols in the read-only data of an image, by address; None if there is no list.

    ``word`` is the size of a pointer in bytes. With ``absolute_percpu`` (CONFIG_KALLSYMS_ABSOLUTE_PERCPU) an offset
    that is not negative is the address itself. ``start`` is the address of the data, and ``text`` that of the text.
    """
    # Tables of relative addresses and of offsets look alike, but only the right one has the text at its address.
    image = _Image(data, 4)
    for (_, behind), names in _lists_in(image) if text else ():
        offsets = image.numbers(behind, len(names), "i")
        addresses = [start + behind + 4 * number + offset for number, offset in enumerate(offsets)]
        is_sound = len(addresses) == len(names) and addresses == sorted(addresses)
        if is_sound and (text, _FIRST) in ((at, name[1:]) for at, name in zip(addresses, names, strict=True)):
            return _symbols(addresses, names)
    image = _Image(data, word)
    for ends, names in _lists_in(image):
        based = _addresses(image, ends, len(names), absolute_percpu=absolute_percpu)
        if based is not None:
            return _symbols(based, names)
    return None


def _symbols(addresses: Sequence[int], names: Sequence[bytes]) -> list[Symbol]:
    return [
        Symbol(address, chr(name[0]), name[1:].decode("ascii", errors="replace"))
        for address, name in zip(addresses, names, strict=True)
    ]


def _lists_in(image: _Image) -> Iterator[tuple[tuple[int, int], list[bytes]]]:
    # Every character that occurs in names is a token of its own, so every table has ten digits in a row.
    for digits in re.finditer(re.escape(b"".join(b"%d\0" % digit for digit in range(10))), image.data):
        tokens = _tokens_around(image, digits.start())
        if tokens is None:
            continue
        start, behind, texts = tokens
        for count_at, names in _names_before(image, start, texts):
            yield (count_at, behind), names


def _tokens_around(image: _Image, digits: int) -> tuple[int, int, list[bytes]] | None:
    """The start of the token table with these digits, the end of the offset table behind it, and the tokens."""
    data, second = image.data, digits
    for _ in range(ord("0") - 1):
        second = data.rfind(b"\0", max(0, second - _LONGEST_NAME), second - 1) + 1
    # The bytes before the first token need not end with a NUL, but the table is aligned.
    nearest = (second - 1) // image.word * image.word
    for start in range(nearest, max(0, nearest - _LONGEST_TOKEN), -image.word):
        tokens = data[start : start + _LARGEST_TOKEN_TABLE].split(b"\0", _TOKENS)[:_TOKENS]
        offsets = list(accumulate((len(token) + 1 for token in tokens), initial=0))
        index = image.aligned(start + offsets.pop())
        if len(tokens) == _TOKENS and list(image.numbers(index, _TOKENS, "H")) == offsets:
            return start, index + 2 * _TOKENS, tokens
    return None


def _names_before(image: _Image, tokens_at: int, tokens: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Lists of names that end before the tokens, each with the place of the number that counts its names."""
    for markers_at, markers in _marker_runs(image, tokens_at):
        latest = markers_at - markers[-1] - 4
        for count_at in range(latest - latest % 4, latest - _NAMES_PER_MARKER * _LONGEST_NAME, -4):
            count = next(iter(image.numbers(count_at, 1, "I")), 0)
            needed = -(-count // _NAMES_PER_MARKER)
            # Bytes after the markers may look like one or two more.
            if len(markers) - 2 <= needed <= len(markers):
                names = _names(image.data, image.aligned(count_at + 4), count, tokens, markers)
                if names is not None:
                    yield count_at, names


def _marker_runs(image: _Image, tokens_at: int) -> Iterator[tuple[int, list[int]]]:
    """Rising runs of numbers from 0 on that may be the markers, with their places, nearest to the tokens first.

    Between the markers and the tokens, Linux 6.2 (commit 60443c88f3a8; also in stable kernels) to 6.3 has a table of 3
    bytes per name, kallsyms_seqs_of_names.
    """
    begin = max(0, tokens_at - _LARGEST_SEQUENCE_TABLE)
    begin -= begin % 4
    numbers = image.numbers(begin, (tokens_at - begin) // 4, "I")
    end = len(numbers)
    for index in range(len(numbers) - 2, -1, -1):
        if not 0 < numbers[index + 1] - numbers[index] < _NAMES_PER_MARKER * _LONGEST_NAME:
            end = index + 1
        if numbers[index] == 0 and end - index >= _FEWEST_MARKERS:
            yield begin + 4 * index, list(numbers[index:end])


def _names(data: bytes, start: int, count: int, tokens: Sequence[bytes], markers: Sequence[int]) -> list[bytes] | None:
    """The names from ``start`` on, each prefixed by its type's letter; None if they contradict a marker."""
    names: list[bytes] = []
    place = start
    for number in range(count):
        if number % _NAMES_PER_MARKER == 0 and place - start != markers[number // _NAMES_PER_MARKER]:
            return None
        if place + 1 >= len(data):
            return None
        length = data[place]
        place += 1
        if length & 0x80:  # a long name has two length bytes since Linux 6.1 (commit 73bbb94466fd)
            length = length & 0x7F | data[place] << 7
            place += 1
        name = b"".join([tokens[code] for code in data[place : place + length]])
        if len(name) < 2:
            return None
        names.append(name)
        place += length
    return names


def _addresses(image: _Image, ends: tuple[int, int], count: int, *, absolute_percpu: bool) -> list[int] | None:
    count_at, behind_tokens = ends
    form = "I" if image.word == 4 else "Q"
    offsets_size = image.aligned(4 * count)
    for offsets_at in (count_at - image.word - offsets_size, image.aligned(behind_tokens)):
        base_at = offsets_at + offsets_size
        offsets = image.numbers(offsets_at, count, "i" if absolute_percpu else "I")
        base = next(iter(image.numbers(base_at, 1, form)), 0)
        addresses = [
            (offset if offset >= 0 else base - 1 - offset) if absolute_percpu else base + offset for offset in offsets
        ]
        if base and len(addresses) == count and addresses == sorted(addresses):
            return addresses
    return None


FUNCTION_TYPES = frozenset("tTwW")
"""The symbol types that kprobes can be placed on."""

VMLINUX, SYSTEM_MAP = "vmlinux", "System.map"
_RODATA, _TEXT = ".rodata", ".text"
# struct alt_instr of arch/x86/include/asm/alternative.h: two relative addresses, the CPU's feature in 2 bytes (in 4
# since Linux 6.3, commit 5d1dd961e743), and the lengths of the code and of its replacement.
_ALTERNATIVES = ((12, 10), (14, 12))  # bytes of an entry, and where the lengths are
_SITES = (".retpoline_sites", ".return_sites")  # sections of addresses, each relative to its own entry


@dataclass(frozen=True)
class CodePart:
    """A part of an image: its virtual address, its size in bytes, and its offset in the file."""

    address: int
    size: int
    place: int


class ListedSymbols(Sequence[Symbol]):
    """The symbols of System.map by address; its text is parsed when more than a few names are asked for."""

    def __init__(self, listing: SymbolListing) -> None:
        self._listing = listing

    def named(self, name: str) -> Sequence[Symbol]:
        return [Symbol(symbol.address, symbol.type, symbol.name) for symbol in self._listing.named(name)]

    @overload
    def __getitem__(self, index: int) -> Symbol: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Symbol]: ...
    def __getitem__(self, index: int | slice) -> Symbol | Sequence[Symbol]:
        return self._all[index]

    def __iter__(self) -> Iterator[Symbol]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> Sequence[Symbol]:
        symbols = (Symbol(symbol.address, symbol.type, symbol.name) for symbol in self._listing.lines())
        return sorted(symbols, key=attrgetter("address"))


@dataclass(frozen=True)
class KernelCode:
    """Symbols by address, and the image. ``word`` is a pointer's size in bytes; ``is_module`` means a module's file."""

    symbols: Sequence[Symbol] = field(repr=False)
    image: bytes = field(repr=False)
    word: int
    segments: Sequence[CodePart] = field(repr=False)
    sections: Mapping[str, CodePart] = field(repr=False)
    is_module: bool = False

    def named(self, name: str) -> Sequence[Symbol]:
        return self.symbols.named(name) if isinstance(self.symbols, ListedSymbols) else self._by_name.get(name, ())

    def address(self, name: str) -> int | None:
        symbols = self.named(name)
        return symbols[0].address if len(symbols) == 1 else None

    def function(self, name: str) -> int | None:
        symbols = [symbol for symbol in self.named(name) if symbol.type in FUNCTION_TYPES]
        return symbols[0].address if len(symbols) == 1 else None

    def has_function(self, name: str) -> bool:
        return any(symbol.type in FUNCTION_TYPES for symbol in self.named(name))

    def is_in(self, address: int, sections: str) -> bool:
        return any(
            name.startswith(sections) and part.address <= address < part.address + part.size
            for name, part in self.sections.items()
        )

    def names_at(self, address: int) -> Sequence[str]:
        return self._by_address.get(address, ())

    def following(self, address: int) -> int | None:
        behind = bisect_right(self._addresses, address)
        return self._addresses[behind] if behind < len(self._addresses) else None

    def read(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes at a virtual address; fewer if the image ends there."""
        for part in self.segments:
            behind = address - part.address
            if 0 <= behind < part.size:
                return self.image[part.place + behind : part.place + min(part.size, behind + size)]
        return b""

    def number(self, address: int) -> int | None:
        content = self.read(address, self.word)
        return int.from_bytes(content, "little") if len(content) == self.word else None

    def is_patched(self, start: int, end: int) -> bool:
        """Whether the kernel may patch code between two addresses for the CPU it boots on."""
        first = bisect_right(self._patched, (start, 0))
        near = self._patched[max(0, first - 1) : first + 1]
        return any(begin < end and start < behind for begin, behind in near)

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[Symbol]]:
        return grouped((symbol.name, symbol) for symbol in self.symbols)

    @cached_property
    def _by_address(self) -> Mapping[int, Sequence[str]]:
        return grouped((symbol.address, symbol.name) for symbol in self.symbols)

    @cached_property
    def _addresses(self) -> Sequence[int]:
        return sorted(self._by_address)

    @cached_property
    def _patched(self) -> Sequence[tuple[int, int]]:
        """The ranges in which the kernel may patch code for the CPU it boots on, in order."""
        sites = [self._relative(place, entry) for name in _SITES for place, entry in self._listed(name, 4)]
        pairs = [(address, address + 5) for address in sites]
        # struct paravirt_patch_site: a pointer, the type and the length in a byte each, and padding.
        for _, entry in self._listed(".parainstructions", 2 * self.word):
            address = int.from_bytes(entry[: self.word], "little")
            pairs.append((address, address + entry[self.word + 1]))
        return sorted([*pairs, *self._alternatives()])

    def _alternatives(self) -> list[tuple[int, int]]:
        table = self.sections.get(".altinstructions", CodePart(0, 0, 0))
        for size, length_at in _ALTERNATIVES if table.size else ():
            if table.size % size:
                continue
            entries = [
                (self._relative(place, entry), self._relative(place + 4, entry[4:]), *entry[length_at : length_at + 2])
                for place, entry in self._listed(".altinstructions", size)
            ]
            # In the right form of the entries, both codes are in the image and the replacement fits.
            if all(
                new <= old and 0 < old == len(self.read(place, old)) and new == len(self.read(replacement, new))
                for place, replacement, old, new in entries
            ):
                return [(place, place + old) for place, _, old, _ in entries]
        return []

    def _listed(self, section: str, size: int) -> Iterator[tuple[int, bytes]]:
        part = self.sections.get(section, CodePart(0, 0, 0))
        for behind in range(0, part.size - size + 1, size):
            place = part.place + behind
            yield part.address + behind, self.image[place : place + size]

    def _relative(self, place: int, entry: bytes) -> int:
        return (place + int.from_bytes(entry[:4], "little", signed=True)) % (1 << 8 * self.word)


def code_of_tree(tree: Path) -> KernelCode | None:
    """The code of a build tree's kernel; None if vmlinux or System.map is missing or damaged."""
    listing, image = tree / SYSTEM_MAP, tree / VMLINUX
    try:
        return _tree_code(listing, image, image.stat().st_mtime_ns, listing.stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=3)  # each is some 60 MB
def _tree_code(listing: Path, image: Path, *changed: int) -> KernelCode | None:
    del changed
    return _of_elf(image.read_bytes(), ListedSymbols(SymbolListing(listing.read_bytes())))


def write_code(folder: Path, elf: bytes, *, absolute_percpu: bool) -> None:
    """Write vmlinux and, if a list of symbols is found, System.map. ``absolute_percpu``: see ``find_symbols``."""
    (folder / VMLINUX).write_bytes(elf)
    code = _of_elf(elf, ())
    part, text = (None, None) if code is None else map(code.sections.get, (_RODATA, _TEXT))
    if code is None or part is None or text is None:
        return
    rodata = elf[part.place : part.place + part.size]
    places = {"start": part.address, "text": text.address}
    symbols = find_symbols(rodata, word=code.word, absolute_percpu=absolute_percpu, **places)
    if symbols is not None:
        lines = (f"{symbol.address:0{2 * code.word}x} {symbol.type} {symbol.name}\n" for symbol in symbols)
        (folder / SYSTEM_MAP).write_text("".join(lines))


def _of_elf(elf: bytes, symbols: Sequence[Symbol]) -> KernelCode | None:
    try:
        file = ELFFile(io.BytesIO(elf))
        segments = [
            _part(elf, segment["p_vaddr"], segment["p_offset"], segment["p_filesz"])
            for segment in file.iter_segments("PT_LOAD")
        ]
        sections = {
            section.name: _part(elf, section["sh_addr"], section["sh_offset"], section["sh_size"])
            for section in file.iter_sections()
            if section["sh_type"] != "SHT_NOBITS"
        }
        return KernelCode(symbols, elf, file.elfclass // 8, segments, sections)
    except DAMAGED:
        return None


def _part(elf: bytes, address: int, place: int, size: int) -> CodePart:
    start = min(place, len(elf))
    return CodePart(address, min(size, len(elf) - start), start)
