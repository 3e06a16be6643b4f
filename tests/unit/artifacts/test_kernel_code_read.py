# SPDX-License-Identifier: GPL-2.0-only
"""Is a kernel's list of symbols found in its image, in each layout that Linux has had, and nothing that is none?"""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

import pytest

from orchestrator.artifacts.function_entry import NOPS5, entry_offset
from orchestrator.artifacts.kernel_code import KernelCode, Symbol, find_symbols
from orchestrator.artifacts.module_code import module_code
from orchestrator.errors import LabError
from orchestrator.probes.point_check import wrong_point_reason

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz.$"


BASE = {4: 0xC1000000, 8: 0xFFFFFFFF81000000}


START = {word: base + (1 << 23) for word, base in BASE.items()}


def some_symbols(word: int, number: int) -> list[Symbol]:
    chosen = random.Random(number)
    lengths = [2, 300, *(chosen.randint(2, 30) for _ in range(number))]  # some take two bytes for their length
    names = ["".join(chosen.choices(CHARACTERS, k=length)) for length in lengths]
    places = sorted(chosen.sample(range(1 << 22), len(names)))
    return [
        Symbol(BASE[word] + place, chosen.choice("tTdDrRbBwW"), name) for place, name in zip(places, names, strict=True)
    ]


def listed(symbols: list[Symbol], word: int, layout: str, *, absolute_percpu: bool = False) -> bytes:
    """The symbols as scripts/kallsyms.c writes them.

    Layouts: ``6.1``, ``6.2`` with numbers by name, ``6.4``, and ``7.0`` at ``START``.
    """
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
        return part + bytes(-len(part) % (4 if layout == "7.0" else word))

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
    # Other read-only data is around it, which has ten digits in a row as well.
    digits = b"".join(b"%d\0" % digit for digit in range(10))
    before = (bytes(64) + digits).ljust(256, b"\xff")
    if layout == "7.0":
        behind = START[word] + len(before) + sum(map(len, parts))
        relative = [symbol.address - behind - 4 * number for number, symbol in enumerate(symbols)]
        addresses = struct.pack(f"<{len(relative)}i", *relative)
    is_old = layout in ("6.1", "6.2")
    content = b"".join([addresses, *parts] if is_old else [*parts, addresses, aligned(by_name)])
    return before + content + b"\x7f" * 64


@pytest.mark.parametrize("layout", ["6.1", "6.2", "6.4"])
@pytest.mark.parametrize("word", [4, 8])
@pytest.mark.parametrize("number", [2100, 2302, 5000])
def test_a_list_is_found(word: int, layout: str, number: int) -> None:
    symbols = some_symbols(word, number)
    for absolute_percpu in (False, True):
        data = listed(symbols, word, layout, absolute_percpu=absolute_percpu)
        assert find_symbols(data, word=word, absolute_percpu=absolute_percpu) == symbols


@pytest.mark.parametrize("word", [4, 8])
@pytest.mark.parametrize("number", range(2100, 2108))
def test_a_list_of_distances_is_found_where_the_text_begins_with_its_first_function(word: int, number: int) -> None:
    symbols = some_symbols(word, number)
    symbols[7] = Symbol(symbols[7].address, "T", "_stext")
    data = listed(symbols, word, "7.0")
    first = symbols[7].address
    assert find_symbols(data, word=word, absolute_percpu=False, start=START[word], text=first) == symbols
    # As a table of offsets from a base it is read wrong, if at all.
    for start, text in ((START[word], first + 16), (START[word] + 16, first), (0, 0)):
        assert find_symbols(data, word=word, absolute_percpu=False, start=start, text=text) != symbols
    for layout in ("6.1", "6.4"):
        data = listed(symbols, word, layout)
        assert find_symbols(data, word=word, absolute_percpu=False, start=START[word], text=first) == symbols


def test_text_that_is_no_list_is_refused() -> None:
    symbols = some_symbols(8, 3000)
    whole = listed(symbols, 8, "6.1")
    assert find_symbols(b"", word=8, absolute_percpu=False) is None
    assert find_symbols(bytes(1000), word=8, absolute_percpu=False) is None
    for size in range(0, len(whole) - 64, 2011):
        assert find_symbols(whole[:size], word=8, absolute_percpu=False) is None
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF  # among the names
    assert find_symbols(bytes(damaged), word=8, absolute_percpu=False) != symbols


# Are the functions of a module's file found as those of a kernel's image are, with the tracer's calls as nops?

SOURCE = Path(__file__).parent / "tiny" / "in_module.S"


FRAMES = {4: "%ebp", 8: "%rbp"}


@pytest.fixture(params=[4, 8])
def code(request: pytest.FixtureRequest, tmp_path: Path) -> KernelCode:
    """A module for pointers of four and of eight bytes."""
    file = tmp_path / "mine.ko"
    frame = f"-DFRAME={FRAMES[request.param]}"
    subprocess.run(["gcc", f"-m{8 * request.param}", frame, "-c", "-o", file, SOURCE], check=True, timeout=600)
    return module_code(file)


def test_the_tracer_s_call_is_a_nop_and_another_call_is_not(code: KernelCode) -> None:
    start = code.function("traced")
    assert start is not None
    assert code.read(start, 5) in NOPS5
    assert code.read(start + 6, 1) == b"\xe8"
    assert [entry_offset(code, name) for name in ("traced", "untraced")] == [5, 0]


@pytest.mark.parametrize(
    ("symbol", "offset", "reason"),
    [
        ("traced", None, None),
        ("traced", 5, None),
        ("traced", 6, None),
        ("traced", 7, "traced+0x7 is inside the instruction at +0x6 (5 bytes): instructions begin at +0x5, +0x6, +0xb"),
        ("cold", 1, None),
        ("cold", 2, "cold+0x2 is beyond the end of cold, which has 0x2 bytes"),
        ("typeless", None, None),
        ("typeless", 1, "typeless+0x1 is beyond the end of typeless, which has 0x1 bytes"),
        ("beginning", None, "beginning is __init: its memory is freed when the module has been loaded"),
        ("init_module", None, "init_module is __init: its memory is freed when the module has been loaded"),
        ("ending", None, "ending is __exit: it runs when the module is unloaded, behind all calls"),
        ("cleanup_module", None, "cleanup_module is __exit: it runs when the module is unloaded, behind all calls"),
        ("data", None, "it has no function data of its own"),
        ("untracde", None, "it has no function untracde of its own; did you mean untraced?"),
    ],
)
def test_points_in_it(code: KernelCode, symbol: str, offset: int | None, reason: str | None) -> None:
    assert wrong_point_reason(code, symbol, offset) == reason


@pytest.mark.parametrize("content", [b"", b"no module", b"\x7fELF\x02\x01\x01" + bytes(20)])
def test_another_file_is_no_module(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "mine.ko"
    file.write_bytes(content)
    with pytest.raises(LabError, match="the functions of a module cannot be read"):
        module_code(file)


def test_a_file_that_is_not_there_is_no_module(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="the functions of a module cannot be read"):
        module_code(tmp_path / "mine.ko")
