# SPDX-License-Identifier: GPL-2.0-only
"""What a guest writes to the disk of its image: a qcow2 overlay over it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from orchestrator.errors import GuestError, HostError
from orchestrator.guest.machine import RootImage
from orchestrator.process import run

_LIMIT = 60.0
_HEADER = struct.Struct(">4sIQI52xQ")
"""Magic, version, place and length of the base's name, and (version 3) the incompatible features."""
_EXTERNAL_DATA = 1 << 2


def make_overlay(root: RootImage, file: Path) -> None:
    """Make a file an overlay: reads come from the image, writes go to the file. Raises HostError."""
    options = ["-q", "-f", "qcow2", "-F", root.format, "-b", str(root.base.absolute())]
    finished = run(["qemu-img", "create", *options, str(file)], time_limit=_LIMIT)
    if finished.status != 0:
        raise HostError(f"cannot make an overlay over the image {root.name}", detail=finished.complaint())


def check_overlay(overlay: Path, base: Path) -> None:
    """Raise GuestError where an overlay names another file than its base: the next guest would get its content.

    A guest cannot write that, but a QEMU that it has taken over could.
    """
    with overlay.open("rb") as file:
        header = file.read(_HEADER.size)
        magic, version, place, length, features = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
        file.seek(min(place, 1 << 30))
        name = file.read(min(length, 4096))
    if magic != b"QFI\xfb" or version != 3 or features & _EXTERNAL_DATA or name != str(base.absolute()).encode():
        what = "what the guest has written to its disk names another file than its image"
        raise GuestError(what, where=str(overlay), hint="do not use it: the guest may have taken QEMU over")


def keep_overlay(root: RootImage, overlay: Path, base: Path, target: Path) -> None:
    """Write a stopped guest's overlay to another file, over the image alone. Raises GuestError, HostError, OSError."""
    shutil.copyfile(overlay, target)
    check_overlay(target, base)
    # A restored guest's overlay is over the saved one's, which the cache may remove.
    options = ["-q", "-f", "qcow2", "-F", root.format, "-b", str(root.base.absolute())]
    finished = run(["qemu-img", "rebase", *options, str(target)], time_limit=_LIMIT)
    if finished.status != 0:
        raise HostError(f"cannot keep what the guest has written to {root.name}", detail=finished.complaint())
