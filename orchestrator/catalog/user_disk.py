# SPDX-License-Identifier: GPL-2.0-only
"""A user's disk image, named by its path: a root file system to start guests from."""

from __future__ import annotations

import hashlib
import shlex
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.catalog.other_files import BEGIN, other_file
from orchestrator.catalog.similar_file import similar_file
from orchestrator.errors import ConfigError
from orchestrator.paths import user_path

_QCOW2 = b"QFI\xfb"
_HEADER = struct.Struct(">4sIQ56xQ")
"""Magic, version, where the backing file's name is, and (version 3) the incompatible features."""
_EXTERNAL_DATA = 1 << 2
_QCOW2_VERSIONS = (2, 3)
_SMALLEST = 1 << 20
_SUFFIXES = (".qcow2", ".qcow", ".img", ".raw")
_BOOT_RECORD = (0x1FE, b"\x55\xaa")
_EXT4 = (0x438, b"\x53\xef")


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
        raise _no_file(name, path)
    try:
        facts = path.stat()
        with path.open("rb") as file:
            begin = file.read(BEGIN)
    except OSError as error:
        raise ConfigError(f"found {name!r}; it cannot be read: {error.strerror}") from None
    format_: Literal["qcow2", "raw"] = "raw"
    if begin.startswith(_QCOW2):
        format_ = "qcow2"
        _refuse_qcow2(name, begin)
    else:
        _refuse_raw(name, path, facts.st_size, begin)
    key = hashlib.sha256(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}".encode()).hexdigest()[:24]
    return UserDisk(path.name, key, path, format_)


def _no_file(name: str, path: Path) -> ConfigError:
    if path.is_dir():
        hint = "a disk is a file; --data gives a guest a folder of the host"
        return ConfigError(f"found {name!r}; that is a folder", hint=hint)
    if path.exists():
        return ConfigError(f"found {name!r}; a disk is a file, which this is not")
    return ConfigError(f"found {name!r}; there is no such file", hint=similar_file(path, _SUFFIXES))


def _refuse_raw(name: str, path: Path, size: int, begin: bytes) -> None:
    other = other_file(begin)
    if other is not None:
        hint = other.hint.format(old=shlex.quote(str(path)), new=shlex.quote(f"{path.stem}.qcow2"))
        raise ConfigError(f"found {name!r}; it is {other.what}, and no disk in the form qcow2 or raw", hint=hint)
    if path.suffix == ".yml":
        raise ConfigError(f"found {name!r}; a recipe's name ends with .yaml")
    if size < _SMALLEST:
        raise ConfigError(f"found {name!r}; it is too small for a disk (qcow2 or raw)")
    if not any(begin[place:].startswith(mark) for place, mark in (_BOOT_RECORD, _EXT4)):
        what = "it has neither a table of partitions nor an ext4 file system"
        raise ConfigError(f"found {name!r}; {what}", hint="a disk holds a system on ext4, in a partition or without")


def _refuse_qcow2(name: str, begin: bytes) -> None:
    """Refuse a qcow2 that QEMU cannot have, or that names another file.

    That can be any file of the host, which the guest could then read.
    """
    if len(begin) < _HEADER.size:
        raise ConfigError(f"found {name!r}; it is not a whole qcow2", hint="copy it again")
    _, version, backing, features = _HEADER.unpack_from(begin)
    if version not in _QCOW2_VERSIONS:
        hint = "qemu-img convert -O qcow2 OLD NEW makes one that the lab takes"
        raise ConfigError(f"found {name!r}; it is a qcow of version {version}, not 2 or 3", hint=hint)
    if backing or (version >= 3 and features & _EXTERNAL_DATA):
        raise ConfigError(
            f"found {name!r}; it has a backing file or a data file, and a disk is one file",
            hint="put all into one: qemu-img convert -O qcow2 OLD NEW",
        )
