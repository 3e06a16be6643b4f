# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's list of symbols as text, as System.map and /proc/kallsyms have it: a Debian kernel's has 95,000 lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_LINE = re.compile(r"^([0-9a-f]{8,16}) (\S) (\S+)(.*)$", re.MULTILINE)
_LINE_BYTES = re.compile(_LINE.pattern.encode(), re.MULTILINE)
_ADDRESS = re.compile(rb"^([0-9a-f]{8,16}) \S \S", re.MULTILINE)
_FUNCTION_ADDRESS = re.compile(rb"^([0-9a-f]{8,16}) [tTwW] \S", re.MULTILINE)
_FEW = 100
"""Searches: finding a name or an address in 4 MB of text takes milliseconds, an index of all 0.2 s."""


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> Mapping[_Key, Sequence[_Value]]:
    """The values by their keys, in order."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


class ListedSymbol(NamedTuple):
    """A line of the list; ``type`` is nm's letter, ``module`` empty for a symbol of the kernel itself."""

    address: int
    name: str
    type: str
    module: str


class SymbolListing:
    """The symbols of a list, found by name in its text; the text is parsed for whoever needs all or many of them."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._searches = 0

    def named(self, name: str) -> Sequence[ListedSymbol]:
        """The symbols of a name in order of address."""
        if self._searches_rather_than("_by_name"):
            return sorted(symbol for symbol in self._search(name) if symbol.name == name)
        return self._by_name.get(name, ())

    def at(self, address: int) -> Sequence[ListedSymbol]:
        """The symbols at an address in order of name; it is listed with all digits of a pointer."""
        if self._searches_rather_than("_by_address"):
            lines = (self._beginning(f"{address:0{digits}x} ".encode()) for digits in (8, 16))
            return sorted({symbol for symbols in lines for symbol in symbols if symbol.address == address})
        return [*self._by_address.get(address, ())]

    def of_modules(self) -> Sequence[ListedSymbol]:
        """The symbols of modules in order of address; the kernel lists them behind its own."""
        first = self.text.find(b"\t[")
        start = self.text.rfind(b"\n", 0, max(0, first)) + 1
        return sorted(symbol for symbol in _parsed(self.text[start:] if first >= 0 else b"") if symbol.module)

    def following(self, address: int) -> int | None:
        """The lowest listed address above one."""
        behind = bisect_right(self._addresses, _in_hex(address, self._addresses))
        return int(self._addresses[behind], 16) if behind < len(self._addresses) else None

    def function_before(self, address: int) -> int | None:
        """The highest address of a function that is not above one."""
        behind = bisect_right(self._functions, _in_hex(address, self._functions))
        return int(self._functions[behind - 1], 16) if behind else None

    def lines(self) -> Sequence[ListedSymbol]:
        """All symbols in the order of the text."""
        return _parsed(self.text)

    @cached_property
    def all(self) -> Sequence[ListedSymbol]:
        """All symbols in order of address, then of name."""
        return sorted(self.lines())

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[ListedSymbol]]:
        return grouped((symbol.name, symbol) for symbol in self.all)

    @cached_property
    def _by_address(self) -> Mapping[int, Sequence[ListedSymbol]]:
        return grouped((symbol.address, symbol) for symbol in dict.fromkeys(self.all))

    @cached_property
    def _addresses(self) -> Sequence[bytes]:
        return _in_order(_ADDRESS.findall(self.text))

    @cached_property
    def _functions(self) -> Sequence[bytes]:
        return _in_order(_FUNCTION_ADDRESS.findall(self.text))

    def _searches_rather_than(self, index: str) -> bool:
        """Whether the text is searched once more, without this index."""
        self._searches += 1
        return index not in vars(self) and self._searches <= _FEW

    def _search(self, name: str) -> Iterator[ListedSymbol]:
        for place in _places(self.text, f" {name}".encode("ascii", errors="replace")):
            line = _LINE_BYTES.match(self.text, self.text.rfind(b"\n", 0, place) + 1)
            if line is not None and line.start(3) == place + 1:
                yield from _parsed(line[0])

    def _beginning(self, start: bytes) -> Iterator[ListedSymbol]:
        for place in _places(self.text, start):
            line = _LINE_BYTES.match(self.text, place)
            if line is not None and (place == 0 or self.text[place - 1] == ord("\n")):
                yield from _parsed(line[0])


def _in_order(addresses: Sequence[bytes]) -> Sequence[bytes]:
    """Addresses in hexadecimal, all of one length, so that their order is that of the numbers."""
    lengths = set(map(len, addresses))
    longest = max(lengths, default=0)
    return sorted(addresses if len(lengths) < 2 else (address.rjust(longest, b"0") for address in addresses))


def _in_hex(address: int, like: Sequence[bytes]) -> bytes:
    digits = len(like[0]) if like else 1
    return f"{min(address, 16**digits - 1):0{digits}x}".encode()


def _places(text: bytes, part: bytes) -> Iterator[int]:
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)


def _parsed(text: bytes) -> list[ListedSymbol]:
    lines = _LINE.findall(text.decode("ascii", errors="replace"))
    # The rest of a module's line is a tab, and the module's name in brackets.
    return [ListedSymbol(int(address, 16), name, kind, rest.strip("\t []")) for address, kind, name, rest in lines]
