# SPDX-License-Identifier: GPL-2.0-only
"""Is the kernel inside a bzImage taken out whole, and nothing else ever?"""

from __future__ import annotations

import gzip
import lzma
import struct

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.artifacts.kernel_image import extract

ELF = b"\x7fELF" + bytes(range(256)) * 40
SETUP_SECTORS = 3


def bzimage(
    payload: bytes, *, magic: bytes = b"HdrS", version: int = 0x20F, sectors: int = SETUP_SECTORS, length: int = -1
) -> bytes:
    """An image with the boot protocol's fields and, behind a little code, the payload."""
    setup = bytearray(((sectors or 4) + 1) * 512)
    setup[0x1F1] = sectors
    setup[0x202:0x206] = magic
    struct.pack_into("<H", setup, 0x206, version)
    code = b"\x90" * 100
    struct.pack_into("<II", setup, 0x248, len(code), len(payload) if length < 0 else length)
    return bytes(setup) + code + payload + b"\xcc" * 64


def packed(content: bytes) -> bytes:
    # The kernel's build appends the uncompressed size.
    return lzma.compress(content, lzma.FORMAT_XZ) + struct.pack("<I", len(content))


def packed_newly(content: bytes) -> bytes:
    """As ``zstd --ultra`` packs what it reads from a pipe: with a checksum, and without the size."""
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
    return compressor.compress(content) + struct.pack("<I", len(content))


def packed_by_default(content: bytes) -> bytes:
    return gzip.compress(content) + struct.pack("<I", len(content))


GOOD = bzimage(packed(ELF))
DEFAULT = bzimage(packed_by_default(ELF))
NEWER = bzimage(packed_newly(ELF))
IMAGES = pytest.mark.parametrize("good", [GOOD, NEWER, DEFAULT], ids=["xz", "zstd", "gzip"])


@IMAGES
def test_a_payload_is_taken_out(good: bytes) -> None:
    assert extract(good) == ELF


def test_an_image_without_setup_sectors_has_four() -> None:
    assert extract(bzimage(packed(ELF), sectors=0)) == ELF


def test_more_than_any_kernel_has_is_no_kernel() -> None:
    """35 KB stand for more than the largest kernel."""
    image = bzimage(packed_newly(b"\x7fELF" + bytes(257 << 20)))
    assert len(image) < 1 << 16
    assert extract(image) is None


@pytest.mark.parametrize(
    "image",
    [
        b"",
        ELF,
        bzimage(packed(ELF), magic=b"hdrs"),
        bzimage(packed(ELF), version=0x207),
        bzimage(b"\x1f\x8b" + bytes(100)),
        bzimage(packed(b"MZ" + ELF)),
        bzimage(packed(b"")),
        bzimage(packed(ELF), length=0),
        bzimage(packed(ELF), length=len(packed(ELF)) // 2),
    ],
)
def test_anything_else_is_left_alone(image: bytes) -> None:
    assert extract(image) is None


@IMAGES
@given(missing=st.integers(0, min(len(GOOD), len(NEWER))))
def test_a_cut_image_is_whole_or_nothing(good: bytes, missing: int) -> None:
    # Only the appended size may be missing, and what stands behind it.
    assert extract(good[: len(good) - missing]) == (ELF if missing <= 64 + 4 else None)


@IMAGES
@given(damage=st.lists(st.tuples(st.integers(0, min(len(GOOD), len(NEWER)) - 1), st.integers(0, 255)), max_size=8))
def test_a_damaged_image_is_right_or_nothing(good: bytes, damage: list[tuple[int, int]]) -> None:
    image = bytearray(good)
    for place, value in damage:
        image[place] = value
    assert extract(bytes(image)) in (ELF, None)


@given(st.binary(max_size=2000), st.binary(max_size=300))
def test_any_bytes_are_survived(image: bytes, payload: bytes) -> None:
    assert extract(image) is None
    assert extract(bzimage(b"\xfd7zXZ\x00" + payload)) is None
    assert extract(bzimage(b"\x28\xb5\x2f\xfd" + payload)) is None
