# SPDX-License-Identifier: GPL-2.0-only
"""Archives for the kernel's initramfs (cpio "newc"), the same bytes for the same content.

Written here because the tools record times and inode numbers and need root for device nodes.
Format: Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A file, folder (no content) or character device of the archive. ``mode`` holds the type as in stat(2)."""

    path: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)

    @classmethod
    def folder(cls, path: str) -> Entry:
        return cls(path, stat.S_IFDIR | 0o755)

    @classmethod
    def file(cls, path: str, content: bytes, mode: int = 0o755) -> Entry:
        return cls(path, stat.S_IFREG | mode, content)

    @classmethod
    def character_device(cls, path: str, major: int, minor: int) -> Entry:
        return cls(path, stat.S_IFCHR | 0o600, device=(major, minor))

    @classmethod
    def link(cls, path: str, target: str) -> Entry:
        return cls(path, stat.S_IFLNK | 0o777, target.encode())


def archive(entries: Iterable[Entry]) -> bytes:
    """The entries in the order given (a folder before what lies in it), owned by root, dated at the epoch."""
    parts = [_record(number, entry) for number, entry in enumerate(entries, start=1)]
    return b"".join([*parts, _record(0, Entry("TRAILER!!!", 0))])


def _record(inode: int, entry: Entry) -> bytes:
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (inode, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, *entry.device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
