# SPDX-License-Identifier: GPL-2.0-only
"""The static probe points of a program (USDT): the notes that <sys/sdt.h> leaves in it.

Their form: https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation, version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

_NOTES, _BASE = ".note.stapsdt", ".stapsdt.base"
_OWNER, _VERSION = b"stapsdt\0", 3
_HEADER = struct.Struct("<III")
_ALIGNMENT = 4


@dataclass(frozen=True)
class StaticPoint:
    """A point's name, ``PROVIDER:NAME``, its address, and that of its semaphore, 0 where it has none."""

    name: str
    address: int
    semaphore: int


def static_points(elf: ELFFile) -> Iterator[StaticPoint]:
    """All points that the notes name, in their order. What is no such note is passed over.

    A note whose base is 0 has none: a linker that drops the base's section (--gc-sections) leaves 0 there, and its
    addresses are as they were linked. At 0 is a point whose function was dropped.
    """
    base = elf.get_section_by_name(_BASE)
    for described in _notes(elf):
        addresses = struct.Struct("<QQQ" if elf.elfclass == 64 else "<III")
        if len(described) < addresses.size:
            continue
        place, linked_base, semaphore = addresses.unpack_from(described)
        if not place:
            continue
        provider, name, *_ = [*described[addresses.size :].split(b"\0"), b"", b""]
        moved = base["sh_addr"] - linked_base if base is not None and linked_base else 0
        yield StaticPoint(
            f"{provider.decode(errors='replace')}:{name.decode(errors='replace')}",
            place + moved,
            semaphore + moved if semaphore else 0,
        )


def _notes(elf: ELFFile) -> Iterator[bytes]:
    """What each note has to say; linkers keep several sections of the name where their flags differ."""
    for section in elf.iter_sections():
        content, at = section.data() if section.name == _NOTES else b"", 0
        while at + _HEADER.size <= len(content):
            owner_size, size, version = _HEADER.unpack_from(content, at)
            owner = at + _HEADER.size
            body = owner + _aligned(owner_size)
            at = body + _aligned(size)
            if content[owner : owner + owner_size] == _OWNER and version == _VERSION:
                yield content[body : body + size]


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
