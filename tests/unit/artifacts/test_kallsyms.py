# SPDX-License-Identifier: GPL-2.0-only
"""Is a kernel's list of symbols found in its image, in each layout that Linux has had, and nothing that is none?"""

from __future__ import annotations

import random
import struct

import pytest

from orchestrator.artifacts.kallsyms import Symbol, find_symbols

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz.$"
BASE = {4: 0xC1000000, 8: 0xFFFFFFFF81000000}


def some_symbols(word: int, number: int) -> list[Symbol]:
    chosen = random.Random(number)
    lengths = [2, 300, *(chosen.randint(2, 30) for _ in range(number))]  # some take two bytes for their length
    names = ["".join(chosen.choices(CHARACTERS, k=length)) for length in lengths]
    places = sorted(chosen.sample(range(1 << 22), len(names)))
    return [
        Symbol(BASE[word] + place, chosen.choice("tTdDrRbBwW"), name) for place, name in zip(places, names, strict=True)
    ]


def listed(symbols: list[Symbol], word: int, layout: str, *, absolute_percpu: bool = False) -> bytes:
    """The symbols as scripts/kallsyms.c writes them. Layouts: ``6.1``, ``6.2`` with numbers by name, and ``6.4``."""
    tokens = [chr(code) if chr(code) in CHARACTERS else f"{CHARACTERS[code % 60]}{code:x}_" for code in range(256)]
    index = [len("".join(tokens[:code])) + code for code in range(256)]
    names, markers = b"", []
    for number, symbol in enumerate(symbols):
        if number % 256 == 0:
            markers.append(len(names))
        text = (symbol.type + symbol.name).encode()
        length = bytes([len(text)]) if len(text) < 0x80 else bytes([len(text) & 0x7F | 0x80, len(text) >> 7])
        names += length + text

    def aligned(part: bytes) -> bytes:
        return part + bytes(-len(part) % word)

    base = symbols[0].address
    offsets = [base - 1 - symbol.address if absolute_percpu else symbol.address - base for symbol in symbols]
    addresses = aligned(struct.pack(f"<{len(offsets)}i", *offsets)) + struct.pack("<I" if word == 4 else "<Q", base)
    in_order = sorted(range(len(symbols)), key=lambda number: symbols[number].name)
    by_name = b"".join(number.to_bytes(3, "big") for number in in_order)
    parts = [
        aligned(struct.pack("<I", len(symbols))),
        aligned(names),
        aligned(struct.pack(f"<{len(markers)}I", *markers)),
        aligned(by_name) if layout == "6.2" else b"",
        aligned("".join(f"{token}\0" for token in tokens).encode()),
        aligned(struct.pack("<256H", *index)),
    ]
    content = b"".join([*parts, addresses, aligned(by_name)] if layout == "6.4" else [addresses, *parts])
    # Other read-only data is around it, which has ten digits in a row as well.
    digits = b"".join(b"%d\0" % digit for digit in range(10))
    return (bytes(64) + digits).ljust(256, b"\xff") + content + b"\x7f" * 64


@pytest.mark.parametrize("layout", ["6.1", "6.2", "6.4"])
@pytest.mark.parametrize("word", [4, 8])
@pytest.mark.parametrize("number", [2100, 2302, 5000])
def test_a_list_is_found(word: int, layout: str, number: int) -> None:
    symbols = some_symbols(word, number)
    for absolute_percpu in (False, True):
        data = listed(symbols, word, layout, absolute_percpu=absolute_percpu)
        assert find_symbols(data, word=word, absolute_percpu=absolute_percpu) == symbols


def test_what_is_no_list() -> None:
    symbols = some_symbols(8, 3000)
    whole = listed(symbols, 8, "6.1")
    assert find_symbols(b"", word=8, absolute_percpu=False) is None
    assert find_symbols(bytes(1000), word=8, absolute_percpu=False) is None
    for size in range(0, len(whole) - 64, 2011):
        assert find_symbols(whole[:size], word=8, absolute_percpu=False) is None
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF  # among the names
    assert find_symbols(bytes(damaged), word=8, absolute_percpu=False) != symbols
