# SPDX-License-Identifier: GPL-2.0-only
"""The uncompressed kernel inside a bzImage, which a machine can start without firmware.

An x86_64 kernel with CONFIG_PVH boots from its ELF image in a third of the time: no BIOS, and no decompression by an
emulated CPU. Offsets are those of the x86 boot protocol (Documentation/arch/x86/boot.rst, version 2.08 and later).
"""

from __future__ import annotations

import contextlib
import lzma
import struct
import zlib
from typing import Any

from orchestrator.artifacts.flat_kernel import SETUP_SECTORS
from orchestrator.catalog.kernels import BOOT_MARK

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
    start = ((image[SETUP_SECTORS] or 4) + 1) * 512 + offset
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
