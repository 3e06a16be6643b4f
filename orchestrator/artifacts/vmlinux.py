# SPDX-License-Identifier: GPL-2.0-only
"""The uncompressed kernel inside a bzImage, which a machine can start without its firmware.

An x86_64 kernel with CONFIG_PVH boots from its ELF image in a third of the time: no BIOS, and no decompression by an
emulated CPU. Offsets are those of the x86 boot protocol (Documentation/arch/x86/boot.rst, version 2.08 and later).
"""

from __future__ import annotations

import lzma
import struct
import zlib

_SETUP_SECTORS = 0x1F1
_MAGIC = (0x202, b"HdrS")
_VERSION = 0x206
_PAYLOAD_OFFSET = 0x248
_PAYLOAD_LENGTH = 0x24C
_XZ, _ZSTD, _GZIP = b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_GZIP_WINDOW = 31
"""zlib's word for gzip's header and a window of 32 KiB."""
_PIECE = 1024
_IMAGE_MAX = 256 << 20
"""Bytes; a kernel's image has some 60 MB."""


def _payload(image: bytes) -> bytes | None:
    """The compressed kernel in a bzImage, with the bytes that its build appends; None where it is no such image."""
    place, magic = _MAGIC
    if len(image) < 0x250 or image[place : place + 4] != magic:
        return None
    (version,) = struct.unpack_from("<H", image, _VERSION)
    if version < 0x208:
        return None
    start = ((image[_SETUP_SECTORS] or 4) + 1) * 512
    (offset,) = struct.unpack_from("<I", image, _PAYLOAD_OFFSET)
    (length,) = struct.unpack_from("<I", image, _PAYLOAD_LENGTH)
    return image[start + offset : start + offset + length]


def extract(image: bytes) -> bytes | None:
    """The ELF image in a bzImage, or None where there is none that we can take out (another compression)."""
    packed = _payload(image)
    if packed is None:
        return None
    elf = None
    if packed.startswith(_XZ):
        elf = _xz_content(packed)
    elif packed.startswith(_ZSTD):
        elf = _zstd_content(packed)
    elif packed.startswith(_GZIP):
        elf = _gzip_content(packed)
    return elf if elf is not None and elf.startswith(b"\x7fELF") else None


def _xz_content(packed: bytes) -> bytes | None:
    """What was packed, as Debian's kernels up to 6.11 are; None where it was cut, or is larger than any kernel."""
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        content = decompressor.decompress(packed, _IMAGE_MAX)
    except lzma.LZMAError:
        return None
    return content if decompressor.eof else None


def _gzip_content(packed: bytes) -> bytes | None:
    """The same of a kernel as its own defaults have it."""
    decompressor = zlib.decompressobj(_GZIP_WINDOW)
    try:
        content = decompressor.decompress(packed, _IMAGE_MAX)
    except zlib.error:
        return None
    return content if decompressor.eof else None


def _zstd_content(packed: bytes) -> bytes | None:
    """The same of Debian's kernels since 6.12, piece by piece: a block of four bytes may stand for 128 KiB."""
    import zstandard  # most kernels are not packed so

    decompressor = zstandard.ZstdDecompressor().decompressobj()
    content = bytearray()
    for at in range(0, len(packed), _PIECE):
        try:
            content += decompressor.decompress(packed[at : at + _PIECE])
        except zstandard.ZstdError:
            return None
        if len(content) > _IMAGE_MAX:
            return None
        if decompressor.eof:
            return bytes(content)
    return None
