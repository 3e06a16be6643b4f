# SPDX-License-Identifier: GPL-2.0-only
"""A user's disk image, named by its path: a root file system to start guests from."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.errors import ConfigError
from orchestrator.paths import user_path

_QCOW2 = b"QFI\xfb"
_HEADER = struct.Struct(">4sIQ56xQ")
"""Magic, version, where the backing file's name is, and (version 3) the incompatible features."""
_EXTERNAL_DATA = 1 << 2
_SMALLEST = 1 << 20


@dataclass(frozen=True)
class UserDisk:
    """A disk whose first ext4 file system holds a system with its own init; guests never write to it.

    ``key`` changes when the file does: it is of its path, size and time, since hashing a whole disk would take long.
    """

    name: str
    key: str
    file: Path
    format: Literal["qcow2", "raw"]


def is_user_disk(name: str) -> bool:
    """Whether an image's name means a disk, not a recipe: it is a path, but not of a .yaml file."""
    return "/" in name and not name.endswith(".yaml")


def find_disk(name: str) -> UserDisk:
    """Return the disk at a path. Raises ConfigError for a file that is missing or cannot be used."""
    path = user_path(name)
    if not path.is_file():
        raise ConfigError(f"found {name!r}; there is no such file")
    try:
        facts = path.stat()
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
    except OSError as error:
        raise ConfigError(f"found {name!r}; it cannot be read: {error.strerror}") from None
    if facts.st_size < _SMALLEST and not header.startswith(_QCOW2):
        raise ConfigError(f"found {name!r}; it is too small for a disk (qcow2 or raw)")
    format_: Literal["qcow2", "raw"] = "raw"
    if header.startswith(_QCOW2):
        format_ = "qcow2"
        _refuse_other_files(name, header)
    key = hashlib.sha256(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}".encode()).hexdigest()[:24]
    return UserDisk(path.name, key, path, format_)


def _refuse_other_files(name: str, header: bytes) -> None:
    """Refuse a qcow2 that names another file: it can be any file of the host, which the guest could then read."""
    _, version, backing, features = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
    if backing or (version >= 3 and features & _EXTERNAL_DATA):
        raise ConfigError(
            f"found {name!r}; its content is in another file, which it names itself",
            hint="put all into one: qemu-img convert -O qcow2 OLD NEW",
        )
