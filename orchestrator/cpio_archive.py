# SPDX-License-Identifier: GPL-2.0-only
"""Reproducible archives for the kernel's initramfs (cpio "newc").

The usual tools record times and inode numbers, and need root for device nodes. Format:
Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import io
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import LabError


@dataclass(frozen=True)
class Entry:
    """A file, folder or device of an archive, ``mode`` as in stat(2). A ``Path`` is read on writing."""

    path: str
    mode: int
    content: bytes | Path = b""
    device: tuple[int, int] = (0, 0)

    @classmethod
    def folder(cls, path: str) -> Entry:
        return cls(path, stat.S_IFDIR | 0o755)

    @classmethod
    def file(cls, path: str, content: bytes | Path, mode: int = 0o755) -> Entry:
        return cls(path, stat.S_IFREG | mode, content)

    @classmethod
    def character_device(cls, path: str, major: int, minor: int) -> Entry:
        return cls(path, stat.S_IFCHR | 0o600, device=(major, minor))

    @classmethod
    def link(cls, path: str, target: str) -> Entry:
        return cls(path, stat.S_IFLNK | 0o777, target.encode())


def archive(entries: Iterable[Entry]) -> bytes:
    """The entries in the order given (a folder before what lies in it), owned by root, dated at the epoch."""
    whole = io.BytesIO()
    write_archive(whole, entries)
    return whole.getvalue()


def write_archive(target: BinaryIO, entries: Iterable[Entry]) -> None:
    """Write what ``archive`` returns piece by piece. Raises LabError for too large or changing files."""
    for number, entry in enumerate(entries, start=1):
        _write_record(target, number, entry)
    _write_record(target, 0, Entry("TRAILER!!!", 0))


def _write_record(target: BinaryIO, inode: int, entry: Entry) -> None:
    content = entry.content
    size = content.stat().st_size if isinstance(content, Path) else len(content)
    if size > 0xFFFFFFFF:  # it has eight hexadecimal digits
        raise LabError(f"{entry.path} is too large for an initramfs: {size / 1e9:.1f} GB")
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (inode, entry.mode, 0, 0, links, 0, size, 0, 0, *entry.device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    target.write(header + name + _padding(len(header) + len(name)))
    if isinstance(content, Path):
        with content.open("rb") as file:
            before = target.tell()
            shutil.copyfileobj(file, target)
        if target.tell() - before != size:
            raise LabError(f"{content} changed while it was read", hint="retry when nothing writes there")
    else:
        target.write(content)
    target.write(_padding(size))


def _padding(size: int) -> bytes:
    return b"\0" * (-size % 4)
