# SPDX-License-Identifier: GPL-2.0-only
"""A folder as a disk that guests only read: compressed squashfs, the same bytes for the same content."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.image_build import EPOCH
from orchestrator.errors import BuildError, HostError, LabError, UsageError
from orchestrator.process import run
from orchestrator.requirements import check_installed

_KIND = "data-disks"
_FILE = "data.squashfs"
_LIMIT = 1800.0

# lz4: an emulated CPU is slow at anything denser. The rest: nothing in the bytes but the content.
OPTIONS = (
    *("-comp", "lz4", "-noappend", "-no-progress", "-quiet"),
    *("-all-root", "-no-xattrs", "-all-time", str(EPOCH), "-mkfs-time", str(EPOCH)),
)


def data_disk(context: BuildContext, folder: Path) -> Path:
    """The squashfs file of a folder of the user's, private to the user; made when its content is not in the cache.

    All in it belongs to root. Links stay what they are: nothing is taken from outside the folder.
    Raises UsageError for what cannot be packed, HostError, BuildError.
    """
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "is not there"
        raise UsageError(f"{folder} {what}: a data disk is made of a folder")
    folder = folder.resolve()
    content = _content(folder)

    def build(place: Path) -> None:
        place.chmod(0o700)  # users who may not read the folder may not read its disk either
        check_installed("image-packages.txt", "making a data disk")
        context.say(f"packing {folder}")
        file = place / _FILE
        finished = run(
            ["mksquashfs", str(folder), str(file), *OPTIONS],
            time_limit=_LIMIT,
            environment={"SOURCE_DATE_EPOCH": None},
        )
        if finished.status != 0:
            raise BuildError(f"{folder} cannot be packed", detail=finished.complaint())
        if _content(folder) != content:
            raise LabError(f"{folder} changed while it was packed", hint="try again when nothing writes there")
        file.chmod(0o400)

    inputs = {"content": content, "options": list(OPTIONS)}
    return context.cache.obtain(_KIND, inputs, folder.name or "root", build).path / _FILE


def _content(folder: Path) -> str:
    """The SHA-256 of all that the disk will hold: paths, modes, contents, and targets of links."""
    whole = hashlib.sha256()
    for line in _lines(folder):
        whole.update(line + b"\0")
    return whole.hexdigest()


def _lines(folder: Path) -> Iterator[bytes]:
    def give_up(error: OSError) -> None:
        raise _unreadable(error)

    yield b"d %o" % stat.S_IMODE(folder.stat().st_mode)
    for parent, folders, files in os.walk(folder, onerror=give_up):
        folders.sort()
        for path in (Path(parent, name) for name in sorted((*folders, *files))):
            try:
                yield os.fsencode(path.relative_to(folder)) + b"\0" + _facts(path)
            except OSError as error:
                raise _unreadable(error) from None


def _facts(path: Path) -> bytes:
    mode = path.lstat().st_mode
    permissions = stat.S_IMODE(mode)
    if stat.S_ISLNK(mode):
        return b"l " + os.fsencode(path.readlink())
    if stat.S_ISDIR(mode):
        return b"d %o" % permissions
    if stat.S_ISREG(mode):
        with path.open("rb") as file:
            return b"f %o " % permissions + hashlib.file_digest(file, "sha256").digest()
    raise UsageError(f"{path} is neither a file nor a folder nor a link, and cannot be on a data disk")


def _unreadable(error: OSError) -> HostError:
    return HostError(f"{error.filename} cannot be read: {error.strerror}")
