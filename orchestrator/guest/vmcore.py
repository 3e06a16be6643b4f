# SPDX-License-Identifier: GPL-2.0-only
"""A guest's memory and registers as a vmcore, the ELF file that drgn, crash and gdb open."""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from elftools.elf.elffile import ELFFile

from orchestrator.catalog.user_files import DAMAGED
from orchestrator.errors import GuestError, LabError
from orchestrator.files import private
from orchestrator.guest.monitor import Monitor
from orchestrator.process import run

_PAGE = 4096
_NOTE = struct.Struct("<III")
_VMCOREINFO = b"VMCOREINFO\0\0"
"""The note's name, padded to a multiple of 4 bytes."""
_NOTE_MAX = 8 * _PAGE
"""Bytes; the kernel's own limit is a page of text."""
_PT_LOAD, _PT_NOTE, _EM_386 = 1, 4, 3
_SEGMENTS_MAX = 65534
_SPARSE_LIMIT = 600.0

_IDENTITY = b"\x7fELF%c\x01\x01" + bytes(9)
_HEADER = {1: struct.Struct("<16sHHIIIIIHHHHHH"), 2: struct.Struct("<16sHHIQQQIHHHHHH")}
_SEGMENT = {1: struct.Struct("<IIIIIIII"), 2: struct.Struct("<IIQQQQQQ")}
"""By ELF class: 1 has words of 32 bits, 2 of 64."""

LACKS_NOTE = (
    "the guest's kernel has no VMCOREINFO, which drgn and crash need: it was built without CONFIG_CRASH_CORE "
    "(CONFIG_VMCORE_INFO since Linux 6.9), which CONFIG_PROC_KCORE selects"
)


@dataclass(frozen=True)
class Segment:
    """A program header. ``offset`` and ``size`` are in bytes of the file."""

    type: int
    offset: int
    virtual: int
    physical: int
    size: int


def write_vmcore(monitor: Monitor, file: Path) -> bool:
    """Write a guest's memory and registers into a new private file; False if its kernel has no VMCOREINFO.

    The guest does not notice. Raises GuestError, OSError.
    """
    # Debuggers know how an x86_64 kernel maps its memory. Of i386 they need the mapping itself.
    has_mapping = "RIP=" not in monitor.human("info registers")
    with open(file, "x+b", opener=private) as opened:
        try:
            monitor.dump_memory(opened.fileno(), has_mapping=has_mapping)
            has_note = complete(opened)
        except BaseException:
            file.unlink(missing_ok=True)
            raise
    with contextlib.suppress(LabError):  # without holes it only takes more room
        run(["fallocate", "--dig-holes", str(file)], time_limit=_SPARSE_LIMIT)
    return has_note


_INCOMPLETE = "QEMU's dump of the guest's memory is incomplete"


def complete(file: IO[bytes]) -> bool:
    """Add the kernel's VMCOREINFO to QEMU's dump, and make an i386 guest's one a 32-bit ELF file, as debuggers expect.

    Returns whether there is a VMCOREINFO. Raises GuestError for what is no dump.
    """
    machine, segments = _read(file)
    loads = [segment for segment in segments if segment.type == _PT_LOAD]
    note = next(filter(None, (vmcoreinfo(file, load) for load in loads)), b"")
    elf_class = 1 if machine == _EM_386 else 2
    file.seek(0, os.SEEK_END)
    place = file.tell()
    if elf_class == 1:
        if place >> 32:
            raise GuestError("a vmcore of i386 has at most 4 GiB", hint="use a guest with less memory")
        loads = [load for load in loads if not (load.physical + load.size) >> 32]  # without the firmware's end
    notes = [segment for segment in segments if segment.type == _PT_NOTE]
    written = [*notes, *([Segment(_PT_NOTE, place, 0, 0, len(note))] if note else []), *loads]
    file.write(note)
    header, segment = _HEADER[elf_class], _SEGMENT[elf_class]
    counts = (header.size, segment.size, len(written), 0, 0, 0)
    file.seek(0)
    file.write(header.pack(_IDENTITY % elf_class, 4, machine, 1, 0, header.size, 0, 0, *counts))
    # In the place of QEMU's own, which begin behind two section headers: crash wants them at the file's start, and the
    # registers' notes before the memory.
    for part in written:
        fields = (part.offset, part.virtual, part.physical, part.size, part.size)
        try:
            file.write(segment.pack(part.type, *((*fields, 0, 0) if elf_class == 1 else (0, *fields, 0))))
        except struct.error:
            raise GuestError("QEMU's dump has memory beyond the 4 GiB of an i386 guest") from None
    return bool(note)


def has_vmcoreinfo(file: Path) -> bool:
    """Whether a vmcore has the kernel's VMCOREINFO among its notes. Raises OSError."""
    with file.open("rb") as opened:
        try:
            notes = [segment.data() for segment in ELFFile(opened).iter_segments("PT_NOTE")]
        except DAMAGED:
            return False
    return any(_VMCOREINFO[:-1] in note for note in notes)


def vmcoreinfo(file: IO[bytes], segment: Segment) -> bytes:
    """The VMCOREINFO note in a segment of memory; empty if there is none.

    The kernel writes it at the start of a page of its own while it boots (``crash_save_vmcoreinfo_init()``).
    """
    for offset in range(segment.offset, segment.offset + segment.size, _PAGE):
        file.seek(offset)
        head = file.read(_NOTE.size)
        if len(head) < _NOTE.size:  # the segment is said to be longer than the file
            break
        name, size, _ = _NOTE.unpack(head)
        if name == len(_VMCOREINFO) - 1 and 0 < size <= _NOTE_MAX:
            note = _at(file, offset, min(_NOTE.size + len(_VMCOREINFO) + size + -size % 4, segment.size))
            if note[_NOTE.size :].startswith(_VMCOREINFO + b"OSRELEASE="):
                return note
    return b""


def _read(file: IO[bytes]) -> tuple[int, list[Segment]]:
    """The machine and the segments of QEMU's dump, which is always a 64-bit ELF file with memory above 4 GiB."""
    try:
        file.seek(0)
        identity, _, machine, _, _, place, _, _, _, size, count, *_ = _HEADER[2].unpack(file.read(_HEADER[2].size))
        if identity[:5] != b"\x7fELF\2" or size != _SEGMENT[2].size or count > _SEGMENTS_MAX:
            raise GuestError("QEMU has written no 64-bit ELF file of at most 65534 segments")
        rows = [_SEGMENT[2].unpack(_at(file, place + row * size, size)) for row in range(count)]
    except struct.error:
        raise GuestError(_INCOMPLETE) from None
    segments = [
        Segment(kind, offset, virtual, physical, length) for kind, _, offset, virtual, physical, length, _, _ in rows
    ]
    end = file.seek(0, os.SEEK_END)
    if any(segment.offset > end for segment in segments):
        raise GuestError(_INCOMPLETE)
    return machine, segments


def _at(file: IO[bytes], offset: int, size: int) -> bytes:
    if offset > file.seek(0, os.SEEK_END):  # which may be more than a file's offset can be
        return b""
    file.seek(offset)
    return file.read(size)
