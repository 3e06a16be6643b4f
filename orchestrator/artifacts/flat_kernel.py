# SPDX-License-Identifier: GPL-2.0-only
"""A 32-bit kernel as a bzImage that need not decompress itself.

QEMU starts a 32-bit ELF image only by a PVH entry, which Debian's i386 kernel lacks. Decompression takes an emulated
CPU 2.2 of the 5.6 s of its boot. So this bzImage keeps its setup sectors, and the kernel's segments replace the
decompressor, at the addresses to which it would have unpacked them. The setup code jumps to 1 MiB with ESI pointing
to the boot parameters (Documentation/arch/x86/boot.rst). There, a jump leads to the kernel's own entry, which expects
no more. Guests boot with nokaslr at the preferred address, so nothing needs relocating.
"""

from __future__ import annotations

import io
import struct

from elftools.elf.elffile import ELFFile

from orchestrator.arch import I386
from orchestrator.catalog.user_files import DAMAGED

SETUP_SECTORS = 0x1F1
_SYSSIZE = 0x1F4  # of the protected-mode part, in units of 16 bytes

_PARAGRAPH = 16
_LOADED_AT = 1 << 20
_IMAGE_MAX = 128 << 20  # bytes; Debian's has 31 MB


def flat_image(compressed: bytes, elf: bytes) -> bytes | None:
    """A bzImage with the kernel unpacked in it; None if ``elf`` is not a 32-bit kernel above 1 MiB."""
    try:
        image = ELFFile(io.BytesIO(elf))
        if image.elfclass != 32 or image["e_machine"] != I386.machine:
            return None
        entry = image["e_entry"]
        segments = [(part["p_paddr"], part.data()) for part in image.iter_segments("PT_LOAD") if part["p_filesz"]]
    except DAMAGED:
        return None
    jump = b"\xb8" + struct.pack("<I", entry) + b"\xff\xe0"
    begin = min((address for address, _ in segments), default=0)
    end = max((address + len(content) for address, content in segments), default=0)
    if begin < _LOADED_AT + len(jump) or not begin <= entry < end or end > _LOADED_AT + _IMAGE_MAX:
        return None
    flat = bytearray(-(-(end - _LOADED_AT) // _PARAGRAPH) * _PARAGRAPH)
    flat[: len(jump)] = jump
    for address, content in segments:
        flat[address - _LOADED_AT : address - _LOADED_AT + len(content)] = content
    setup = bytearray(compressed[: ((compressed[SETUP_SECTORS] or 4) + 1) * 512])
    struct.pack_into("<I", setup, _SYSSIZE, len(flat) // _PARAGRAPH)
    return bytes(setup + flat)
