# SPDX-License-Identifier: GPL-2.0-only
"""A user's folder as a read-only disk of a guest."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.squashfs import OPTIONS, pack
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import sha256_of
from orchestrator.host_packages import check_installed


def data_disk(context: BuildContext, folder: Path) -> Path:
    """A user's folder as a private squashfs; links are not followed. Raises UsageError, HostError, BuildError."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {what}: a data disk is made from a folder")
    folder = folder.resolve()
    content = _content(folder)

    def build(file: Path) -> None:
        file.parent.chmod(0o700)  # who may not read the folder may not read its disk
        check_installed("image-packages.txt", "making a data disk")
        context.say(f"packing {folder}")
        pack(folder, file, str(folder))
        if _content(folder) != content:
            raise LabError(f"{folder} changed while it was packed", hint="retry when nothing writes there")
        file.chmod(0o400)

    inputs = {"content": content, "options": list(OPTIONS)}
    return context.cache.obtain_file("data-disks", inputs, folder.name or "root", "data.squashfs", build)


def _content(folder: Path) -> str:
    def give_up(error: OSError) -> None:
        raise error

    try:
        whole = hashlib.sha256(b"d %o\0" % stat.S_IMODE(folder.stat().st_mode))
        for parent, folders, files in os.walk(folder, onerror=give_up):
            folders.sort()
            for path in (Path(parent, name) for name in sorted((*folders, *files))):
                whole.update(os.fsencode(path.relative_to(folder)) + b"\0" + _facts(path) + b"\0")
    except OSError as error:
        raise HostError(f"{error.filename} cannot be read: {error.strerror}") from None
    return whole.hexdigest()


def _facts(path: Path) -> bytes:
    mode = path.lstat().st_mode
    permissions = stat.S_IMODE(mode)
    if stat.S_ISLNK(mode):
        return b"l " + os.fsencode(path.readlink())
    if stat.S_ISDIR(mode):
        return b"d %o" % permissions
    if stat.S_ISREG(mode):
        return b"f %o " % permissions + bytes.fromhex(sha256_of(path))
    raise UsageError(f"{path} is neither a file nor a folder nor a link, and cannot be on a data disk")
