# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's image, unpacked, so that an emulated CPU need not decompress it."""

from __future__ import annotations

import contextlib
import io
import lzma
import struct
import zlib
from typing import Any

from elftools.elf.elffile import ELFFile

from orchestrator.arch import I386
from orchestrator.catalog.kernels import BOOT_MARK
from orchestrator.catalog.user_files import DAMAGED

# A 32-bit kernel as a bzImage that need not decompress itself.
#
# QEMU starts a 32-bit ELF image only by a PVH entry, which Debian's i386 kernel lacks. Decompression takes an emulated
# CPU 2.2 of the 5.6 s of its boot. So this bzImage keeps its setup sectors, and the kernel's segments replace the
# decompressor, at the addresses to which it would have unpacked them. The setup code jumps to 1 MiB with ESI pointing
# to the boot parameters (Documentation/arch/x86/boot.rst). There, a jump leads to the kernel's own entry, which expects
# no more. Guests boot with nokaslr at the preferred address, so nothing needs relocating.

_SETUP_SECTORS = 0x1F1
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
    setup = bytearray(compressed[: ((compressed[_SETUP_SECTORS] or 4) + 1) * 512])
    struct.pack_into("<I", setup, _SYSSIZE, len(flat) // _PARAGRAPH)
    return bytes(setup + flat)


# The uncompressed kernel inside a bzImage, which a machine can start without firmware.
#
# An x86_64 kernel with CONFIG_PVH boots from its ELF image in a third of the time: no BIOS, and no decompression by an
# emulated CPU. Offsets are those of the x86 boot protocol (Documentation/arch/x86/boot.rst, version 2.08 and later).

_PAYLOAD = 0x248  # its offset, and its length
_XZ, _ZSTD = b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
"""Debian packs kernels by xz up to 6.11 and by zstd since 6.12; the kernel's own default is gzip."""
_GZIP_WINDOW = 31  # zlib's word for gzip's header and a window of 32 KiB
_PIECE = 1024  # bytes; a zstd block of four bytes may expand to 128 KiB
_BZIMAGE_MAX = 256 << 20  # bytes; a kernel's image has some 60 MB


def extract(image: bytes) -> bytes | None:
    """The ELF image in a bzImage; None if there is none, or its compression is not supported."""
    place, magic = BOOT_MARK
    if len(image) < 0x250 or image[place : place + 4] != magic or struct.unpack_from("<H", image, 0x206) < (0x208,):
        return None
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    start = ((image[_SETUP_SECTORS] or 4) + 1) * 512 + offset
    elf = unpacked(image[start : start + length], _BZIMAGE_MAX)  # the build has appended bytes
    return elf if elf is not None and elf.startswith(b"\x7fELF") else None


def unpacked(packed: bytes, most: int) -> bytes | None:
    """Unpacked xz, zstd or gzip data; None if damaged, truncated, or more than ``most`` bytes."""
    unpacking, damage = _unpacking(packed)
    content = bytearray()
    with contextlib.suppress(damage):
        for at in range(0, len(packed), _PIECE):
            content += unpacking.decompress(packed[at : at + _PIECE])
            if len(content) > most:
                break
            if unpacking.eof:
                return bytes(content)
    return None


def _unpacking(packed: bytes) -> tuple[Any, type[Exception]]:
    """What unpacks these data, and its error for damaged ones."""
    if packed.startswith(_ZSTD):
        import zstandard  # a library of 20 ms, for a kernel that is not unpacked yet

        return zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError
    if packed.startswith(_XZ):
        return lzma.LZMADecompressor(), lzma.LZMAError
    return zlib.decompressobj(_GZIP_WINDOW), zlib.error
