# SPDX-License-Identifier: GPL-2.0-only
"""Is a 32-bit kernel laid out at the addresses where its decompressor would have put it, and nothing else ever?"""

from __future__ import annotations

import struct

import pytest

from orchestrator.artifacts.flat_kernel import flat_image

MIB = 1 << 20
SETUP = 4 * 512


def bzimage(sectors: int = 3) -> bytes:
    """Setup sectors with a recognizable content, and a compressed part of no interest."""
    setup = bytearray(((sectors or 4) + 1) * 512)
    setup[0x1F1] = sectors
    setup[0x202:0x206] = b"HdrS"
    return bytes(setup) + b"compressed" * 100


def elf(
    segments: list[tuple[int, bytes]], *, entry: int = 16 * MIB, elf_class: int = 1, machine: int = 3, kind: int = 1
) -> bytes:
    """An ELF file for i386 with segments at physical addresses; its virtual addresses are others."""
    head = struct.pack("<4s5B7x", b"\x7fELF", elf_class, 1, 1, 0, 0)
    head += struct.pack("<HHIIIIIHHHHHH", 2, machine, 1, entry, 52, 0, 0, 52, 32, len(segments), 40, 0, 0)
    table, content, place = b"", b"", 52 + 32 * len(segments)
    for address, data in segments:
        size = len(data)
        table += struct.pack("<8I", kind, place + len(content), 0xC0000000 + address, address, size, size + 64, 5, 1)
        content += data
    return head + table + content


TEXT, DATA = b"\x90" * 100 + b"text", b"data" * 10
KERNEL = elf([(16 * MIB, TEXT), (17 * MIB, DATA)])


@pytest.mark.parametrize("sectors", [3, 0])
def test_segments_lie_at_their_physical_addresses(sectors: int) -> None:
    image, original = flat_image(bzimage(sectors), KERNEL), bzimage(sectors)
    assert image is not None
    setup = ((sectors or 4) + 1) * 512
    part = image[setup:]
    assert image[:0x1F4] == original[:0x1F4]
    assert image[0x1F8:setup] == original[0x1F8:setup]
    assert struct.unpack_from("<I", image, 0x1F4)[0] * 16 == len(part)
    assert part[15 * MIB :][: len(TEXT)] == TEXT
    assert part[16 * MIB :][: len(DATA)] == DATA
    # mov eax, 16 MiB; jmp eax
    assert part[:7] == b"\xb8\x00\x00\x00\x01\xff\xe0"
    assert not any(part[7 : 15 * MIB])
    assert not any(part[15 * MIB + len(TEXT) : 16 * MIB])


@pytest.mark.parametrize(
    "kernel",
    [
        b"",
        KERNEL[:60],
        elf([]),
        elf([(16 * MIB, TEXT)], elf_class=2),
        elf([(16 * MIB, TEXT)], machine=62),
        elf([(16 * MIB, TEXT)], kind=4),
        elf([(MIB // 2, TEXT)], entry=MIB // 2),
        elf([(MIB, TEXT)], entry=MIB),
        elf([(16 * MIB, TEXT)], entry=15 * MIB),
        elf([(16 * MIB, TEXT)], entry=17 * MIB),
        elf([(16 * MIB, TEXT), (1000 * MIB, DATA)]),
    ],
)
def test_anything_else_is_left_alone(kernel: bytes) -> None:
    assert flat_image(bzimage(), kernel) is None
