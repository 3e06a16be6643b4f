# SPDX-License-Identifier: GPL-2.0-only
"""Does QEMU's dump become a vmcore with the kernel's own note, for guests of 32 and 64 bits?"""

from __future__ import annotations

import os
import struct
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import NoteSegment
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.errors import GuestError, HostError
from orchestrator.guest import vmcore
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.vmcore import complete, has_vmcoreinfo, write_vmcore

PAGE = 4096
I386, X86_64 = 3, 62
TEXT = b"OSRELEASE=6.1.0\nPAGESIZE=4096\n"
REGISTERS = struct.pack("<III", 5, 4, 1) + b"CORE\0\0\0\0" + b"regs"
FIRMWARE = 0xFFFC0000


def note(text: bytes = TEXT, size: int | None = None) -> bytes:
    body = struct.pack("<III", 11, len(text) if size is None else size, 0) + b"VMCOREINFO\0\0" + text
    return body.ljust(PAGE, b"\0")


def dump(*pages: bytes, machine: int = X86_64, more: int = 0) -> BytesIO:
    """A dump as QEMU writes it: a header, memory at 0 and the firmware's end below 4 GiB, which claims ``more``."""
    memory = b"".join(page.ljust(PAGE, b"\0") for page in pages)
    start = 3 * 64 + 3 * 56  # two section headers are before the segments'
    parts = [(4, start, 0, len(REGISTERS)), (1, start + len(REGISTERS), 0, len(memory))]
    parts.append((1, parts[1][1] + len(memory), FIRMWARE, 0x40000 + more))
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1".ljust(16, b"\0"), 4, machine, 1, 0, 192, 64, 0, 8, 56, len(parts), 0, 0, 0
    )
    table = b"".join(
        struct.pack("<IIQQQQQQ", kind, 0, at, place, place, size, size, 0) for kind, at, place, size in parts
    )
    return BytesIO(header + bytes(128) + table + REGISTERS + memory + bytes(0x40000))


def notes_in(file: BytesIO) -> dict[str, bytes]:
    segments = [segment for segment in ELFFile(file).iter_segments() if isinstance(segment, NoteSegment)]
    return {container["n_name"]: container["n_descdata"] for segment in segments for container in segment.iter_notes()}


@pytest.mark.parametrize(("machine", "bits", "loads"), [(X86_64, 64, 2), (I386, 32, 1)])
def test_registers_memory_and_the_kernels_note(machine: int, bits: int, loads: int) -> None:
    file = dump(b"zero", b"", note(), machine=machine)
    assert complete(file)
    elf = ELFFile(file)
    assert (elf.elfclass, elf["e_type"], elf["e_machine"]) == (bits, "ET_CORE", "EM_386" if bits == 32 else "EM_X86_64")
    assert notes_in(file) == {"CORE": b"regs", "VMCOREINFO": TEXT}
    memory, *other_segments = elf.iter_segments("PT_LOAD")
    assert len(other_segments) == loads - 1  # 32 bits cannot say where the firmware ends
    assert memory.data().startswith(b"zero")
    assert memory["p_memsz"] == 3 * PAGE


@pytest.mark.parametrize(
    "page",
    [
        b"",
        note(b"another text"),
        note(size=1 << 31),
        note(size=0),
        b"behind the start of a page " + note()[:100],
        struct.pack("<III", 12, len(TEXT), 0) + b"VMCOREINFOS\0" + TEXT,
    ],
)
def test_a_kernel_without_the_note(page: bytes) -> None:
    file = dump(page)
    assert not complete(file)
    assert notes_in(file) == {"CORE": b"regs"}


@pytest.mark.parametrize("machine", [X86_64, I386])
@pytest.mark.parametrize(("page", "is_there"), [(note(), True), (b"", False)])
def test_whether_a_vmcore_has_the_note(tmp_path: Path, machine: int, page: bytes, is_there: bool) -> None:
    file = dump(page, machine=machine)
    complete(file)
    (tmp_path / "core").write_bytes(file.getvalue())
    assert has_vmcoreinfo(tmp_path / "core") == is_there
    (tmp_path / "core").write_bytes(b"no ELF file")
    assert not has_vmcoreinfo(tmp_path / "core")


def test_a_note_at_the_end_of_memory_is_cut_off_there() -> None:
    file = dump(note(size=2 * PAGE))
    assert complete(file)
    _, segment = ELFFile(file).iter_segments("PT_NOTE")
    assert segment["p_filesz"] == PAGE


@pytest.mark.parametrize("machine", [X86_64, I386])
@given(place=st.integers(0, 3 * 64 + 3 * 56 + 2 * PAGE), damage=st.binary(min_size=1, max_size=64))
@example(place=262, damage=b"\x00\x80")  # a segment at an offset that no file has
@example(place=38, damage=b"\x00\x80")  # the segments' headers at one
@example(place=275, damage=b"\x01")  # an address of 33 bits or more
def test_a_damaged_dump_is_an_error_or_a_vmcore(machine: int, place: int, damage: bytes) -> None:
    content = bytearray(dump(b"", note(), machine=machine).getvalue())
    content[place : place + len(damage)] = damage
    try:
        complete(BytesIO(content))
    except GuestError as error:
        assert "\n" not in error.what  # noqa: PT017 - most damage is none


@given(st.binary(max_size=300))
def test_another_file_is_refused(content: bytes) -> None:
    with pytest.raises(GuestError):
        complete(BytesIO(content))


def test_a_segment_that_ends_behind_the_file() -> None:
    assert not complete(dump(b"", more=1 << 60))


def test_a_vmcore_where_nothing_makes_it_sparse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> Any:
        raise HostError("fallocate is not installed")

    class FakeMonitor:
        def human(self, line: str) -> str:
            return "RIP=0000000000000000"

        def dump_memory(self, descriptor: int, *, has_mapping: bool) -> None:
            assert not has_mapping
            os.write(descriptor, dump(note()).getvalue())

    monkeypatch.setattr(vmcore, "run", refuse)
    assert write_vmcore(cast(Monitor, FakeMonitor()), tmp_path / "core")
    with (tmp_path / "core").open("rb") as file:
        assert "VMCOREINFO" in notes_in(BytesIO(file.read()))
