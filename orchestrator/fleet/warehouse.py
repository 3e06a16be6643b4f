# SPDX-License-Identifier: GPL-2.0-only
"""Where a worker keeps the files that clients have sent: by content, each once, complete or not there at all.

A file that the machine's own cache has with the same content is taken from there: on the client's own machine nothing
is copied.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

from orchestrator.artifacts import digests
from orchestrator.errors import HostError, LabError
from orchestrator.fleet.parcel import Reference
from orchestrator.results.faults import storage_faults
from orchestrator.scratch import ScratchFolder

PIECE = 8 << 20
"""Bytes of a file that travel at once."""

_FOLDER = "fleet"
_UNFINISHED = "unfinished-"


class Warehouse:
    """The files of one worker: below ``cache``/fleet, and in the cache itself."""

    def __init__(self, cache: Path) -> None:
        self._cache, self._root = cache, cache / _FOLDER
        self._lock = threading.Lock()
        self._sound: dict[str, Path] = {}
        self._unfinished: ScratchFolder | None = None

    def place(self, name: str) -> Path:
        """Where a reference's place is here, whether something is there or not."""
        with self._lock:
            known = self._sound.get(name)
        if known is not None:
            return known
        own = self._cache / name
        return own if own.exists() else self._root / name

    def missing(self, wanted: Iterable[Reference]) -> list[Reference]:
        """Those of the files that have to be sent; all others are where ``place`` says from now on."""
        return [one for one in wanted if not self._find(one)]

    def receive(self, reference: Reference, offset: int, piece: bytes, sender: str = "") -> None:
        """Write a piece of a file; the last one makes it complete. Several senders may send the same file at once.

        Raises HostError where there is no room, LabError for a file that is not what was announced.
        """
        target = self._root / reference.place
        with self._lock, storage_faults(self._root):
            part = self._parts() / f"{hashlib.sha256(sender.encode()).hexdigest()[:16]}-{reference.sha256}"
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_room(target.parent, len(piece))
            if offset == 0:
                part.unlink(missing_ok=True)
            with part.open("ab") as file:
                if file.tell() != offset or offset + len(piece) > reference.size:
                    raise LabError(f"pieces of {reference.place} do not come one after the other")
                file.write(piece)
            if offset + len(piece) < reference.size:
                return
            with part.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != reference.sha256:
                part.unlink()
                raise LabError(f"{reference.place} is not what was sent: its SHA-256 is {found}")
            part.chmod(0o500 if reference.place.endswith(".so") else 0o400)
            part.replace(target)
            self._sound[reference.place] = target

    def _parts(self) -> Path:
        """Where files are until they are complete: this process's own, since another worker may share the cache."""
        if self._unfinished is None:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._unfinished = ScratchFolder(_UNFINISHED, self._root)
        return self._unfinished.path

    def _find(self, reference: Reference) -> bool:
        for root in (self._cache, self._root):
            path = root / reference.place
            try:
                is_it = path.stat().st_size == reference.size and digests.of_content(path) == reference.sha256
            except OSError:
                continue
            if is_it:
                with self._lock:
                    self._sound[reference.place] = path
                return True
        return False


def _check_room(folder: Path, size: int) -> None:
    # Before the disk is full: what else writes to it, a guest's overlay for one, has to go on.
    left = shutil.disk_usage(folder).free
    if left < size + (64 << 20):
        raise HostError(f"there is no room for {size} bytes in {folder}: {left >> 20} MB are free")
