# SPDX-License-Identifier: GPL-2.0-only
"""The store of everything built or fetched: found again by what it was made from, complete or not there at all.

An artifact is a directory ``<kind>/<key>`` with a ``manifest.json``. It is built beside its place and renamed
into it, under a lock of its own, so that two processes wanting the same artifact build it once and a process killed in
the middle leaves nothing that anyone would use.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.errors import HostError, LabError

_MANIFEST = "manifest.json"
_UNFINISHED = ".building"
_LOCK_LIMIT = 3600.0
"""Seconds to wait for another process that builds the same artifact; kernels take several minutes."""


@dataclass(frozen=True)
class Artifact:
    """A complete artifact: its folder, what it is for people, and the exact inputs it was made from."""

    kind: str
    key: str
    path: Path
    label: str
    inputs: Mapping[str, object]

    def size(self) -> int:
        """Bytes on disk."""
        return sum(f.lstat().st_blocks * 512 for f in self.path.rglob("*"))


def digest(inputs: object) -> str:
    """A stable name for a JSON value: 24 hex digits of its SHA-256."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class Cache:
    """The artifacts of one user, below ``root``; made when first needed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, kind: str, inputs: Mapping[str, object]) -> Artifact | None:
        """The artifact of these inputs, if it is complete."""
        return self._read(self.root / kind / digest(inputs))

    def obtain(self, kind: str, inputs: Mapping[str, object], label: str, build: Callable[[Path], None]) -> Artifact:
        """The artifact of these inputs; ``build`` fills an empty folder with it when it is not there yet."""
        found = self.get(kind, inputs)
        if found is not None:
            return found
        place = self.root / kind / digest(inputs)
        with self.lock(f"{kind}-{place.name}"):
            found = self._read(place)
            return found if found is not None else self._build(place, inputs, label, build)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold a lock between processes; the system releases it when its holder dies."""
        lock = FileLock(self.root / "locks" / f"{name}.lock")
        with _disk_errors(self.root):
            Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                lock.acquire(timeout=_LOCK_LIMIT)
            except Timeout:
                raise LabError(f"another process has held {lock.lock_file} for an hour") from None
            try:
                yield
            finally:
                lock.release()

    def artifacts(self) -> Iterator[Artifact]:
        """All complete artifacts, by kind and label."""
        places = (manifest.parent for manifest in self.root.glob(f"*/*/{_MANIFEST}"))
        found = (self._read(place) for place in places if place.suffix != _UNFINISHED)
        yield from sorted((a for a in found if a is not None), key=lambda a: (a.kind, a.label, a.key))

    def _build(self, place: Path, inputs: Mapping[str, object], label: str, build: Callable[[Path], None]) -> Artifact:
        unfinished = place.with_name(place.name + _UNFINISHED)
        # A leftover can only be a dead builder's (a living one would hold the lock), and an entry that has lost its
        # manifest is nobody's.
        for leftover in (unfinished, place):
            shutil.rmtree(leftover, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            build(unfinished)
            manifest = {"label": label, "inputs": inputs, "made": int(time.time())}
            with (unfinished / _MANIFEST).open("w") as file:
                json.dump(manifest, file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(place)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        artifact = self._read(place)
        assert artifact is not None
        return artifact

    def _read(self, place: Path) -> Artifact | None:
        try:
            manifest = json.loads((place / _MANIFEST).read_text())
            return Artifact(place.parent.name, place.name, place, manifest["label"], manifest["inputs"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise LabError(
                f"the cache entry {place} cannot be read ({error})", hint=f"remove it and run again: rm -r '{place}'"
            ) from None


@contextlib.contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    """Turn what a disk says into an error for a person."""
    try:
        yield
    except Timeout:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = f"free some space in {root}, or set ORCHESTRATOR_CACHE"
            raise HostError("the disk of the cache folder is full", hint=hint) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            hint = "set ORCHESTRATOR_CACHE to a folder of yours"
            raise HostError(f"the cache folder {root} is not writable", hint=hint) from error
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            hint = "set ORCHESTRATOR_CACHE to a folder"
            raise HostError(f"the cache folder {root} cannot be made: {error}", hint=hint) from error
        raise
