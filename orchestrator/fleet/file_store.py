# SPDX-License-Identifier: GPL-2.0-only
"""A worker's store of files that clients have sent: by content, each once, complete or absent.

A file with the same content in the machine's own cache is used from there: on the client's own machine nothing is
copied.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from orchestrator.artifacts import digests
from orchestrator.errors import HostError, LabError
from orchestrator.files import ScratchFolder, sha256_of
from orchestrator.fleet.transfer import FileReference
from orchestrator.results.faults import storage_faults

PIECE = 8 << 20
"""Bytes of a file that are sent at once."""


class FileStore:
    """The files of one worker: below ``cache``/fleet, and in the cache itself."""

    def __init__(self, cache: Path) -> None:
        self._cache, self._root = cache, cache / "fleet"
        self._lock = threading.Lock()
        self._sound: dict[str, Path] = {}
        self._unfinished: ScratchFolder | None = None

    def place(self, name: str) -> Path:
        """The local path of a reference's place, whether or not it exists."""
        path = self._cache / name
        return self._sound.get(name) or (path if path.exists() else self._root / name)

    def missing(self, references: Iterable[FileReference]) -> list[FileReference]:
        """The files that must be sent; all others are then available at ``place``."""
        return [reference for reference in references if not self._find(reference)]

    def receive(self, reference: FileReference, offset: int, piece: bytes, sender: str = "") -> None:
        """Write a piece of a file; the last one completes it. Several senders may send the same file at once.

        Raises HostError if the disk is full, LabError if a file differs from its reference.
        """
        target = self._root / reference.place
        with self._lock, storage_faults(self._root):
            if self._unfinished is None:  # own folder, as another worker may share the cache
                self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._unfinished = ScratchFolder("unfinished-", self._root)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_room(target.parent, len(piece))
            part = self._unfinished.path / f"{sender}-{reference.sha256}"
            if offset == 0:
                part.unlink(missing_ok=True)
            with part.open("ab") as file:
                if file.tell() != offset or offset + len(piece) > reference.size:
                    raise LabError(f"pieces of {reference.place} are out of order")
                file.write(piece)
            if offset + len(piece) < reference.size:
                return
            digest = sha256_of(part)
            if digest != reference.sha256:
                part.unlink()
                raise LabError(f"{reference.place} is not what was sent: its SHA-256 is {digest}")
            part.chmod(0o500 if target.suffix == ".so" else 0o400)
            part.replace(target)
            self._sound[reference.place] = target

    def _find(self, reference: FileReference) -> bool:
        for path in (self._cache / reference.place, self._root / reference.place):
            with suppress(OSError):
                if path.stat().st_size == reference.size and digests.of_content(path) == reference.sha256:
                    self._sound[reference.place] = path
                    return True
        return False


def _check_room(folder: Path, size: int) -> None:
    # Stop before the disk is full, as other files on it must grow, such as a guest's overlay.
    left = shutil.disk_usage(folder).free
    if left < size + (64 << 20):
        raise HostError(f"there is no room for {size} bytes in {folder}: {left >> 20} MB are free")
