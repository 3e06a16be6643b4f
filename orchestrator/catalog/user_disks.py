# SPDX-License-Identifier: GPL-2.0-only
"""Users' disks: what a file is, and which the lab refuses to give to a guest."""

from __future__ import annotations

import hashlib
import shlex
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.catalog.data import read, similar_file
from orchestrator.errors import ConfigError
from orchestrator.paths import user_path

BEGIN = 33 << 10
"""Bytes to read of a file to identify it: a CD's mark is after 32 KiB."""

_EXTERNAL_DATA = 1 << 2
_BOOT_RECORD, _EXT4 = (0x1FE, b"\x55\xaa"), (0x438, b"\x53\xef")
_HEADER = struct.Struct(">4sIQ56xQ")
"""Magic, version, offset of the backing file's name, and (version 3) the incompatible features."""


@dataclass(frozen=True)
class UserDisk:
    """A disk with a system on its first ext4. ``key`` hashes path, size and time, since hashing the disk is slow."""

    name: str
    key: str
    file: Path
    format: Literal["qcow2", "raw"]


def is_user_disk(name: str) -> bool:
    """Whether an image's name is a path of a disk: not of a .yaml file."""
    return "/" in name and not name.endswith(".yaml")


def find_disk(name: str) -> UserDisk:
    """The disk at a path. Raises ConfigError for a file that is missing or unusable."""
    path = user_path(name)
    if not path.is_file():
        what, hint = "this file does not exist", similar_file(path, (".qcow2", ".qcow", ".img", ".raw"))
        if path.is_dir():
            what, hint = "this is a folder", "a disk is a file; --data gives a guest a folder of the host"
        elif path.exists():
            what, hint = "this is not a regular file", ""
        raise ConfigError(f"found {name!r}; {what}", hint=hint)
    try:
        facts = path.stat()
        with path.open("rb") as file:
            begin = file.read(BEGIN)
    except OSError as error:
        raise ConfigError(f"found {name!r}; it cannot be read: {error.strerror}") from None
    format_: Literal["qcow2", "raw"] = "raw"
    if begin.startswith(b"QFI\xfb"):
        format_ = "qcow2"
        _refuse_qcow2(name, begin)
    else:
        _refuse_raw(name, path, facts.st_size, begin)
    key = hashlib.sha256(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}".encode()).hexdigest()[:24]
    return UserDisk(path.name, key, path, format_)


def _refuse_raw(name: str, path: Path, size: int, begin: bytes) -> None:
    for form in read("other_files.yaml")["files"]:
        if begin[form["at"] :].startswith(bytes.fromhex(form["mark"])):
            hint = form["hint"].format(old=shlex.quote(str(path)), new=shlex.quote(f"{path.stem}.qcow2"))
            raise ConfigError(f"found {name!r}; it is {form['what']}, not a qcow2 or raw disk", hint=hint)
    if path.suffix == ".yml":
        raise ConfigError(f"found {name!r}; a recipe's name ends with .yaml")
    if size < 1 << 20:
        raise ConfigError(f"found {name!r}; it is too small for a disk (qcow2 or raw)")
    if not any(begin[place:].startswith(mark) for place, mark in (_BOOT_RECORD, _EXT4)):
        what = "it has neither a partition table nor an ext4 file system"
        raise ConfigError(f"found {name!r}; {what}", hint="a disk holds a system on ext4, in a partition or without")


def _refuse_qcow2(name: str, begin: bytes) -> None:
    """Refuse unsupported versions, and names of other files: the guest could read any file of the host."""
    if len(begin) < _HEADER.size:
        raise ConfigError(f"found {name!r}; it is not a whole qcow2", hint="copy it again")
    _, version, backing, features = _HEADER.unpack_from(begin)
    if version not in (2, 3):
        hint = "convert it: qemu-img convert -O qcow2 OLD NEW"
        raise ConfigError(f"found {name!r}; it is a qcow of version {version}, not 2 or 3", hint=hint)
    if backing or (version >= 3 and features & _EXTERNAL_DATA):
        what = f"found {name!r}; it has a backing file or a data file, and a disk must be one file"
        raise ConfigError(what, hint="merge them: qemu-img convert -O qcow2 OLD NEW")
