# SPDX-License-Identifier: GPL-2.0-only
"""The cache of everything built or fetched: artifacts and their locks.

An artifact is a directory ``<kind>/<key>`` with a ``manifest.json``. It is built in a sibling directory under its own
lock and then renamed: processes that want the same artifact build it once, and a killed process leaves nothing that
is ever used. What a process has obtained stays until that process ends.

A process verifies an artifact on first use (see ``digests``). It moves a changed one to ``damaged`` and builds it anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.artifacts import digests
from orchestrator.artifacts.cache_faults import build_faults, cache_faults
from orchestrator.artifacts.usage import claim, hold, last_use, release
from orchestrator.errors import HostError, LabError
from orchestrator.program import PROGRAM
from orchestrator.steps import step

ENVIRONMENT_STAMP = "lab-complete"
"""Marks a Python environment that ``./lab`` has made in the cache as complete."""

_MANIFEST = "manifest.json"
_UNFINISHED = ".building"
DAMAGED = "damaged"
"""The folder for damaged artifacts."""


@dataclass(frozen=True)
class Artifact:
    """A complete artifact: its folder, a readable label, and the exact inputs it was made from."""

    kind: str
    key: str
    path: Path
    label: str
    inputs: Mapping[str, object]

    @property
    def used(self) -> float:
        return last_use(self.stamp)

    @property
    def stamp(self) -> Path:
        return self.path / _MANIFEST


def tree_status(path: Path) -> Iterator[os.stat_result]:
    """The status of a file, or of a folder and everything in it. Skips files that another process removes meanwhile."""
    below = (Path(folder, name) for folder, *names in os.walk(path) for name in chain(*names))
    for place in chain([path], below):
        with suppress(FileNotFoundError):
            yield place.lstat()


def disk_usage(path: Path) -> int:
    """Bytes on disk. A file with several links counts in part: patched kernel sources share most of their files."""
    return sum(
        result.st_blocks * 512 // (1 if stat.S_ISDIR(result.st_mode) else result.st_nlink)
        for result in tree_status(path)
    )


def digest(inputs: object) -> str:
    """A stable name for a JSON value: the first 24 hex digits of its SHA-256."""
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class Cache:
    """One user's artifacts below ``root``, created on first use. It reports each artifact set aside on stderr."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sound: set[tuple[Path, str]] = set()
        hold(Path(sys.prefix) / ENVIRONMENT_STAMP)

    def get(self, kind: str, inputs: Mapping[str, object], *, unverified: str = "") -> Artifact | None:
        """The artifact of these inputs, verified but for paths that begin with ``unverified``: see ``verify``."""
        artifact = self.artifact(self.root / kind / digest(inputs))
        return self._use(artifact.path) if artifact is not None and self.is_sound(artifact, unverified) else None

    def find(self, kind: str, inputs: Mapping[str, object]) -> Artifact | None:
        """The complete artifact of these inputs, unverified: for callers who need only its key."""
        return self._use(self.root / kind / digest(inputs))

    def is_sound(self, artifact: Artifact, unverified: str = "") -> bool:
        """Verify an artifact, and set a damaged one aside. Raises LabError if another process uses it, HostError.

        Files whose paths in it begin with ``unverified`` are left to ``verify``.
        """
        if not self._sound.intersection([(artifact.path, ""), (artifact.path, unverified)]):
            if (damage := digests.changed(artifact.path, unverified=unverified)) is not None:
                self.set_aside(artifact, damage, digests.changed)
                return False
            self._sound.add((artifact.path, unverified))
        return True

    def verify(self, file: Path) -> None:
        """Verify all files of the artifact that has ``file``, before what ``get`` left out is used.

        Raises HostError if one was changed; the artifact is then set aside. Files outside the cache are not verified.
        """
        if file.is_relative_to(self.root) and len(parts := file.relative_to(self.root).parts) > 2:
            artifact = self.artifact(self.root.joinpath(*parts[:2]))
            if artifact is not None and not self.is_sound(artifact):
                raise HostError(f"{artifact.kind} {artifact.label} in the cache was damaged", hint="run again")

    def set_aside(self, artifact: Artifact, damage: str, check: Callable[[Path], str | None]) -> None:
        """Move an artifact away, unless another process has replaced it and ``check`` finds no damage any more."""
        what = f"{artifact.kind} {artifact.label} in the cache is damaged ({damage})"
        place, aside = artifact.path, self.root / DAMAGED / f"{artifact.kind}-{artifact.key}"
        try:
            with step(f"set aside {what}"), self.lock(self.build_lock(place)):
                if not self.is_finished(place) or check(place) is None:
                    return
                release(artifact.stamp)
                with claim(artifact.stamp) as unused:
                    if not unused:
                        hint = "run again when that process has ended"
                        raise LabError(f"{what}, and another process uses it", where=str(place), hint=hint)
                    if aside.exists():
                        shutil.rmtree(aside)
                    aside.parent.mkdir(exist_ok=True)
                    place.rename(aside)
        except HostError as error:
            raise HostError(f"{what}, and cannot be set aside: {error.what}", hint=error.hint) from None
        self._forget(place)
        print(f"{what}: set aside as {aside}", file=sys.stderr, flush=True)

    def obtain(self, kind: str, inputs: Mapping[str, object], label: str, build: Callable[[Path], object]) -> Artifact:
        """The artifact of these inputs; if missing, ``build`` makes it in an empty folder."""
        with step(f"obtain {kind}: {label}") as obtaining:
            artifact = self.get(kind, inputs)
            if artifact is not None:
                obtaining.note("hit")
                return artifact
            place = self.root / kind / digest(inputs)
            with self.lock(self.build_lock(place)):
                artifact = self._use(place)
                obtaining.note("made" if artifact is None else "made by another process")
                return artifact if artifact is not None else self._build(place, inputs, label, build)

    def obtain_file(
        self, kind: str, inputs: Mapping[str, object], label: str, name: str, write: Callable[[Path], object]
    ) -> Path:
        """The same for an artifact of one file, called ``name``, which ``write`` makes."""
        return self.obtain(kind, inputs, label, lambda folder: write(folder / name)).path / name

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold an inter-process lock; the system releases it when the holder dies."""
        with self.try_lock(name, 3600.0) as locked:  # kernels take several minutes to build
            if not locked:
                raise LabError(f"another process has held {self.lock_file(name)} for an hour")
            yield

    def lock_file(self, name: str) -> Path:
        return self.root / "locks" / f"{name}.lock"

    @contextlib.contextmanager
    def try_lock(self, name: str, patience: float = 0.0) -> Iterator[bool]:
        """Hold a lock if it gets free within ``patience`` seconds; the context's value says whether it did."""
        lock = FileLock(self.lock_file(name))
        with cache_faults(self.root):
            (self.root / "locks").mkdir(parents=True, exist_ok=True, mode=0o700)
            with suppress(Timeout):
                lock.acquire(timeout=patience)
            try:
                yield lock.is_locked
            finally:
                lock.release()

    def artifacts(self) -> Iterator[Artifact]:
        """All complete artifacts by kind and label, except those set aside. Raises LabError for a damaged one."""
        artifacts = (self.artifact(place) for place in self.places())
        yield from sorted((a for a in artifacts if a is not None), key=lambda a: (a.kind, a.label, a.key))

    def places(self) -> Sequence[Path]:
        """The folders of all artifacts, damaged ones included, without those set aside."""
        paths = (manifest.parent for manifest in self.root.glob(f"*/*/{_MANIFEST}"))
        return sorted(place for place in paths if place.suffix != _UNFINISHED and place.parent.name != DAMAGED)

    def artifact(self, place: Path) -> Artifact | None:
        """The artifact in a folder, or None. Raises LabError if its manifest cannot be read."""
        try:
            manifest = json.loads((place / _MANIFEST).read_text())
            return Artifact(place.parent.name, place.name, place, manifest["label"], manifest["inputs"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is damaged"
            what = f"the cache entry {place} cannot be read: its {_MANIFEST}: {why}"
            hint = f"set it aside: {PROGRAM} cache verify; or remove it: rm -r {shlex.quote(str(place))}"
            raise LabError(what, hint=hint) from None

    def contents(self, kind: str) -> Iterator[tuple[Path, Artifact | None]]:
        """The folders of a kind: complete artifacts, and (None) builds in progress or abandoned."""
        folder = self.root / kind
        for place in sorted(folder.iterdir()) if is_real_folder(folder) else ():
            if re.fullmatch(rf"[0-9a-f]{{24}}({re.escape(_UNFINISHED)})?", place.name) and is_real_folder(place):
                yield place, self.complete(place)

    def is_finished(self, place: Path) -> bool:
        """Whether the build of a folder finished. Its content may have been damaged since."""
        return place.suffix != _UNFINISHED and (place / _MANIFEST).exists()

    def build_lock(self, place: Path) -> str:
        """The name of the lock held during the build of a folder or of its unfinished sibling."""
        return f"{place.parent.name}-{place.name.removesuffix(_UNFINISHED)}"

    def remove(self, place: Path, unused_since: float) -> bool:
        """Remove an artifact, or what a killed build left.

        False if a process builds it, uses it, or has used it since that time (epoch seconds).
        """
        with self.try_lock(self.build_lock(place)) as locked:
            if not locked or not is_real_folder(place):
                return False
            artifact = self.complete(place)
            if artifact is None:
                shutil.rmtree(place)
                return True
            with claim(artifact.stamp) as unused:
                if not unused or artifact.used > unused_since:
                    return False
                self._remove(place)
        return True

    def discard(self, artifact: Artifact, is_wrong: Callable[[Path], bool]) -> None:
        """Remove an artifact even if in use, if ``is_wrong`` still holds: another process may have rebuilt it."""
        place = artifact.path
        with step(f"discard {artifact.kind}: {artifact.label}"), self.lock(self.build_lock(place)):
            release(artifact.stamp)
            if is_wrong(place) and is_real_folder(place):
                self._remove(place)
        self._forget(place)

    def _forget(self, place: Path) -> None:
        self._sound = {(path, left) for path, left in self._sound if path != place}

    def _remove(self, place: Path) -> None:
        # No process uses the unfinished name, even if this removal is interrupted.
        unfinished = place.with_name(place.name + _UNFINISHED)
        shutil.rmtree(unfinished, ignore_errors=True)
        place.rename(unfinished)
        shutil.rmtree(unfinished)

    def _use(self, place: Path) -> Artifact | None:
        artifact = self.artifact(place)
        return artifact if artifact is not None and hold(place / _MANIFEST) else None

    def complete(self, place: Path) -> Artifact | None:
        try:
            return self.artifact(place) if place.suffix != _UNFINISHED else None
        except LabError:
            return None

    def _build(self, place: Path, inputs: Mapping[str, object], label: str, make: Callable[[Path], object]) -> Artifact:
        unfinished = place.with_name(place.name + _UNFINISHED)
        # Leftovers of a killed build: a running one would hold the lock. No process uses an entry without a manifest.
        for leftover in (unfinished, place):
            shutil.rmtree(leftover, ignore_errors=True)
        unfinished.mkdir(parents=True)
        with build_faults(self.root, unfinished):
            make(unfinished)
            digests.record(unfinished, _MANIFEST)
            manifest = {"label": label, "inputs": inputs, "made": int(time.time())}
            with (unfinished / _MANIFEST).open("w") as file:
                json.dump(manifest, file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(place)
            self._sound.add((place, ""))
        artifact = self._use(place)
        assert artifact is not None
        return artifact


def is_real_folder(path: Path) -> bool:
    """Whether it is a folder and not a link: what a link points to does not belong to the cache."""
    return path.is_dir() and not path.is_symlink()
