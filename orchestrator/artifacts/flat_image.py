# SPDX-License-Identifier: GPL-2.0-only
"""A 32-bit kernel as a bzImage that need not decompress itself.

QEMU starts a 32-bit ELF image only by a PVH entry, which Debian's i386 kernel lacks. Decompressing itself takes an
emulated CPU 2.2 of the 5.6 s of its boot. So the bzImage keeps its setup sectors, and behind them the decompressor
gives way to the kernel's segments at the addresses where it would have put them. The setup code enters what is behind
it at 1 MiB, with ESI at the boot parameters (Documentation/arch/x86/boot.rst); a jump there leads to the kernel's own
entry, which expects no more. Guests boot with nokaslr at the preferred address, so there is nothing to relocate.
"""

from __future__ import annotations

import io
import struct

from elftools.elf.elffile import ELFFile

from orchestrator.elf import DAMAGED

_SETUP_SECTORS = 0x1F1
_SYSSIZE = 0x1F4
"""Of the protected-mode part, in units of 16 bytes."""

_PARAGRAPH = 16
_LOADED_AT = 1 << 20
_IMAGE_MAX = 128 << 20
"""Bytes; Debian's has 31 MB."""

_MOV_EAX = b"\xb8"
_JMP_EAX = b"\xff\xe0"


def flat_image(compressed: bytes, elf: bytes) -> bytes | None:
    """The bzImage ``compressed`` with its kernel ``elf`` in place of its packed form.

    None where ``elf`` is no 32-bit kernel that lies above 1 MiB.
    """
    try:
        image = ELFFile(io.BytesIO(elf))
        if image.elfclass != 32 or image["e_machine"] != "EM_386":
            return None
        entry = image["e_entry"]
        segments = [(part["p_paddr"], part.data()) for part in image.iter_segments("PT_LOAD") if part["p_filesz"]]
    except DAMAGED:
        return None
    jump = _MOV_EAX + struct.pack("<I", entry) + _JMP_EAX
    begin = min((address for address, _ in segments), default=0)
    end = max((address + len(content) for address, content in segments), default=0)
    if begin < _LOADED_AT + len(jump) or not begin <= entry < end or end > _LOADED_AT + _IMAGE_MAX:
        return None
    flat = bytearray(-(-(end - _LOADED_AT) // _PARAGRAPH) * _PARAGRAPH)
    flat[: len(jump)] = jump
    for address, content in segments:
        flat[address - _LOADED_AT : address - _LOADED_AT + len(content)] = content
    setup = bytearray(compressed[: ((compressed[_SETUP_SECTORS] or 4) + 1) * 512])
    struct.pack_into("<I", setup, _SYSSIZE, len(flat) // _PARAGRAPH)
    return bytes(setup + flat)
