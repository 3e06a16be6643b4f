# SPDX-License-Identifier: GPL-2.0-only
"""The overlay: what a guest writes to its image's disk, in a qcow2 file over the image."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from orchestrator.errors import GuestError, HostError
from orchestrator.guest.machine import RootImage
from orchestrator.process import run

_OVERLAY_LIMIT = 60.0


_HEADER = struct.Struct(">4sIQI52xQ")
"""Magic, version, offset and length of the base's name, and (version 3) the incompatible features."""


_EXTERNAL_DATA = 1 << 2


def make_overlay(root: RootImage, file: Path) -> None:
    """Make an overlay file: reads come from the image, writes go to the file. Raises HostError."""
    _qemu_img("create", root, file, f"cannot make an overlay over the image {root.name}")


def _qemu_img(command: str, root: RootImage, overlay: Path, failure: str) -> None:
    options = ["-q", "-f", "qcow2", "-F", root.format, "-b", str(root.base.absolute())]
    finished = run(["qemu-img", command, *options, str(overlay)], time_limit=_OVERLAY_LIMIT)
    if finished.status != 0:
        raise HostError(failure, detail=finished.complaint())


def check_overlay(overlay: Path, base: Path) -> None:
    """Raise GuestError if an overlay names another base: a later guest would get that file's content.

    A guest cannot write the header, but a QEMU that it has taken over could.
    """
    with overlay.open("rb") as file:
        header = file.read(_HEADER.size)
        magic, version, place, length, features = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
        file.seek(min(place, 1 << 30))
        name = file.read(min(length, 4096))
    if magic != b"QFI\xfb" or version != 3 or features & _EXTERNAL_DATA or name != str(base.absolute()).encode():
        what = "the guest's disk overlay names another file than its image"
        raise GuestError(what, where=str(overlay), hint="do not use it: the guest may have taken over QEMU")


def keep_overlay(root: RootImage, overlay: Path, base: Path, target: Path) -> None:
    """Copy a stopped guest's overlay, rebased on the image itself. Raises GuestError, HostError, OSError."""
    shutil.copyfile(overlay, target)
    check_overlay(target, base)
    # A restored guest's overlay is based on the saved guest's, which the cache may remove.
    _qemu_img("rebase", root, target, f"cannot keep what the guest has written to {root.name}")
