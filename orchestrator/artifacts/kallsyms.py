# SPDX-License-Identifier: GPL-2.0-only
"""The list of symbols inside a kernel's own image, as scripts/kallsyms.c of Linux wrote it.

Debian's images have no ELF symbols, and its packages an empty System.map. CONFIG_KALLSYMS puts the list into .rodata,
and nothing points to it there: it is found by its form. A table of 256 tokens is followed by a table of their offsets,
which must agree in every entry; the markers before it must agree with the names before those.

The addresses are before the names up to Linux 6.3, and behind the tokens since 6.4 (commit 404bad70fcf7). Since 7.0
the tables are aligned to 4 bytes, and each address is relative to its own place.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

_TOKENS = 256
_NAMES_PER_MARKER = 256
_LONGEST_NAME = 512
"""KSYM_NAME_LEN since Linux 6.1."""
_LONGEST_TOKEN = 128
_LARGEST_TOKEN_TABLE = 1 << 16
_LARGEST_SEQUENCE_TABLE = 3 << 20
_FEWEST_MARKERS = 8
_FIRST = b"_stext"
# A character that names have is a token of its own, so every table has ten digits in a row.
_DIGITS = b"".join(b"%d\0" % digit for digit in range(10))


@dataclass(frozen=True)
class Symbol:
    """A symbol of a kernel; ``type`` is as nm prints it: t, T, w or W for code."""

    address: int
    type: str
    name: str


@dataclass(frozen=True)
class _Image:
    """The bytes that the list is among. ``word`` is what the tables are aligned to, in bytes."""

    data: bytes
    word: int

    def aligned(self, place: int) -> int:
        return -(-place // self.word) * self.word

    def numbers(self, place: int, count: int, form: str) -> Sequence[int]:
        """``count`` numbers of struct's ``form``; fewer than that where the image ends before."""
        size = struct.calcsize(form)
        whole = max(0, min(count, (len(self.data) - place) // size)) if place >= 0 else 0
        return struct.unpack_from(f"<{whole}{form}", self.data, place) if whole else ()


def find_symbols(
    data: bytes, *, word: int, absolute_percpu: bool, start: int = 0, text: int = 0
) -> list[Symbol] | None:
    """The symbols in the read-only data of an image, by address; None where no list is found.

    ``word`` is the size of a pointer in bytes. With ``absolute_percpu`` (CONFIG_KALLSYMS_ABSOLUTE_PERCPU) an offset
    that is not negative is the address itself. ``start`` is the address of the data, and ``text`` that of the text.
    """
    # A table of distances may look like one of offsets from a base, but no other has the text where it is.
    image = _Image(data, 4)
    for (_, behind), names in _lists_in(image) if text else ():
        addresses = _relative_addresses(image, behind, len(names), start)
        if addresses is not None and (text, _FIRST) in (
            (at, name[1:]) for at, name in zip(addresses, names, strict=True)
        ):
            return _symbols(addresses, names)
    image = _Image(data, word)
    for ends, names in _lists_in(image):
        addresses = _addresses(image, ends, len(names), absolute_percpu=absolute_percpu)
        if addresses is not None:
            return _symbols(addresses, names)
    return None


def _symbols(addresses: Sequence[int], names: Sequence[bytes]) -> list[Symbol]:
    return [
        Symbol(address, chr(name[0]), name[1:].decode("ascii", errors="replace"))
        for address, name in zip(addresses, names, strict=True)
    ]


def _lists_in(image: _Image) -> Iterator[tuple[tuple[int, int], list[bytes]]]:
    """Lists of names, and between which places each is: the number of names, and the end of the tokens' offsets."""
    for digits in re.finditer(re.escape(_DIGITS), image.data):
        tokens = _tokens_around(image, digits.start())
        if tokens is None:
            continue
        start, behind, texts = tokens
        for count_at, names in _names_before(image, start, texts):
            yield (count_at, behind), names


def _tokens_around(image: _Image, digits: int) -> tuple[int, int, list[bytes]] | None:
    """Where the table of tokens with these digits begins, where that of their offsets ends, and the tokens."""
    data, second = image.data, digits
    for _ in range(ord("0") - 1):
        second = data.rfind(b"\0", max(0, second - _LONGEST_NAME), second - 1) + 1
    # What is before the first token need not end with a NUL, but the table is aligned.
    nearest = (second - 1) // image.word * image.word
    for start in range(nearest, max(0, nearest - _LONGEST_TOKEN), -image.word):
        tokens = data[start : start + _LARGEST_TOKEN_TABLE].split(b"\0", _TOKENS)[:_TOKENS]
        offsets = list(accumulate((len(token) + 1 for token in tokens), initial=0))
        index = image.aligned(start + offsets.pop())
        if len(tokens) == _TOKENS and list(image.numbers(index, _TOKENS, "H")) == offsets:
            return start, index + 2 * _TOKENS, tokens
    return None


def _names_before(image: _Image, tokens_at: int, tokens: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Lists of names that end before the tokens, and where the number of names is that each begins with."""
    for markers_at, markers in _marker_runs(image, tokens_at):
        latest = markers_at - markers[-1] - 4
        for count_at in range(latest - latest % 4, latest - _NAMES_PER_MARKER * _LONGEST_NAME, -4):
            count = next(iter(image.numbers(count_at, 1, "I")), 0)
            needed = -(-count // _NAMES_PER_MARKER)
            # What follows the markers may look like one or two more.
            if len(markers) - 2 <= needed <= len(markers):
                names = _names(image.data, image.aligned(count_at + 4), count, tokens, markers)
                if names is not None:
                    yield count_at, names


def _marker_runs(image: _Image, tokens_at: int) -> Iterator[tuple[int, list[int]]]:
    """Rising runs of numbers from 0 on that may be the markers, and their places, the nearest to the tokens first.

    Between them and the tokens is a table of 3 bytes for each name (kallsyms_seqs_of_names, Linux 6.2, commit
    60443c88f3a8, and stable kernels), up to 6.3.
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
    """The names from ``start`` on, each with its type's letter in front; None where a marker says otherwise."""
    names: list[bytes] = []
    place = start
    for number in range(count):
        if number % _NAMES_PER_MARKER == 0 and place - start != markers[number // _NAMES_PER_MARKER]:
            return None
        if place + 1 >= len(data):
            return None
        length = data[place]
        place += 1
        if length & 0x80:  # a long name's length takes two bytes since Linux 6.1 (commit 73bbb94466fd)
            length = length & 0x7F | data[place] << 7
            place += 1
        name = b"".join([tokens[code] for code in data[place : place + length]])
        if len(name) < 2:
            return None
        names.append(name)
        place += length
    return names


def _addresses(image: _Image, ends: tuple[int, int], count: int, *, absolute_percpu: bool) -> list[int] | None:
    """The addresses of the names, in either layout: before the number of names, or behind the tokens' offsets."""
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


def _relative_addresses(image: _Image, offsets_at: int, count: int, start: int) -> list[int] | None:
    """The addresses of the names, each by the distance from its own place; the image is at ``start``."""
    offsets = image.numbers(offsets_at, count, "i")
    addresses = [start + offsets_at + 4 * number + offset for number, offset in enumerate(offsets)]
    return addresses if len(addresses) == count and addresses == sorted(addresses) else None
