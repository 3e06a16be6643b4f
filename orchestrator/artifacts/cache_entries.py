# SPDX-License-Identifier: GPL-2.0-only
"""The cache's entries: listing, removal and verification.

Only files and folders with the names that the lab gives them are considered, and links are not followed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import inf
from pathlib import Path

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts import digests
from orchestrator.artifacts.cache import (
    ENVIRONMENT_STAMP,
    Artifact,
    Cache,
    digest,
    disk_usage,
    is_real_folder,
    tree_status,
)
from orchestrator.artifacts.digests import Known
from orchestrator.artifacts.git_tree import UNFINISHED, tree_lock
from orchestrator.artifacts.usage import claim, in_use, last_use
from orchestrator.errors import UsageError


class Kind(StrEnum):
    """The kinds of artifacts, and of other entries of the cache."""

    DEBIAN = "debian"
    INITRAMFS = "initramfs"
    KERNEL_SOURCE = "kernel-source"
    KERNELS = "kernels"
    OWN_KERNELS = "own-kernels"
    COMPILER_ANSWERS = "compiler-answers"
    MODULE_OBJECTS = "module-objects"
    MODULES = "modules"
    MODULE_FOLDERS = "module-folders"
    PROGRAMS = "programs"
    LANDMARKS = "landmarks"
    PLUGINS = "plugins"
    TOOLCHAINS = "toolchains"
    WORKLOADS = "workloads"
    VMLINUX = "vmlinux"
    ARCHIVES = "archives"
    IMAGES = "images"
    DATA_DISKS = "data-disks"
    DEBUG_INFO = "debug-info"
    KERNEL_MODULES = "kernel-modules"
    KERNEL_FUNCTIONS = "kernel-functions"
    EXECUTED_FUNCTIONS = "executed-functions"
    EVENT_HITS = "event-hits"
    PLACE_ANSWERS = "place-answers"
    BUILD_SOURCES = "build-sources"
    PREPARED_BUILDS = "prepared-builds"
    SAVED_GUESTS = "saved-guests"
    APT = "apt"
    CHECKS = "checks"
    ENVIRONMENTS = "environments"
    DAMAGED = "damaged"
    FAILED_BUILDS = "failed-builds"
    GIT_TREES = "git-trees"
    PINS = "pins"


_BESIDE = {
    Kind.APT: re.compile(r"[a-z0-9]+(-[a-z0-9]+){0,2}"),
    Kind.CHECKS: re.compile("hypothesis|mypy|pytest|ruff"),
    Kind.DAMAGED: re.compile(r"[a-z]+(-[a-z]+)?-[0-9a-f]{24}"),
    Kind.FAILED_BUILDS: re.compile(r"\w+-[0-9a-f]{24}"),
    Kind.GIT_TREES: re.compile(rf"[A-Za-z0-9._+-]+-[0-9a-f]{{6}}({re.escape(UNFINISHED)})?"),
    Kind.PINS: re.compile(r"[\w.-]+\.json"),
}
"""The file names allowed in these folders of the cache."""

ARTIFACT_KINDS = frozenset(Kind) - {*_BESIDE, Kind.ENVIRONMENTS}


@dataclass(frozen=True)
class CacheEntry:
    """An entry of the cache: when it was last ``used`` (epoch seconds), and the files that its users lock.

    ``remove`` takes a time, and returns False for an entry that is in use or was used since.
    """

    kind: Kind
    label: str
    path: Path
    used: float
    locks: tuple[Path, ...]
    remove: Callable[[float], bool]

    def in_use(self) -> bool:
        return any(in_use(file) for file in self.locks)


def cache_entries(cache: Cache) -> list[CacheEntry]:
    """Everything that can be removed. Raises UsageError if the cache is a home folder or contains one."""
    root = cache.root.resolve()
    home = Path.home().resolve()
    if root == home or root in home.parents:
        hint = "set ORCHESTRATOR_CACHE to a folder for the cache alone"
        what = "a home folder" if root == home else "a folder with a home folder in it"
        raise UsageError(f"the cache folder {root} is {what}: nothing is removed from it", hint=hint)
    readers = {Kind.ENVIRONMENTS: _environments, **dict.fromkeys(_BESIDE, _beside)}
    return [entry for kind in Kind for entry in readers.get(kind, _artifacts)(cache, kind)]


def _artifacts(cache: Cache, kind: Kind) -> Iterator[CacheEntry]:
    for place, artifact in cache.contents(kind):
        lock, remove = cache.lock_file(cache.build_lock(place)), partial(cache.remove, place)
        if artifact is not None:
            yield CacheEntry(kind, artifact.label, place, artifact.used, (lock, artifact.stamp), remove)
        elif not in_use(lock):
            yield CacheEntry(kind, f"{place.name}, incomplete", place, 0.0, (lock,), remove)


def _beside(cache: Cache, kind: Kind) -> Iterator[CacheEntry]:
    names = _BESIDE[kind]
    for path in _entries(cache.root / kind):
        if names.fullmatch(path.name) and (path.is_file() if kind is Kind.PINS else path.is_dir()):
            used, needed = partial(_last_change, path), list[str]()
            if kind is Kind.APT:
                needed = [f"apt-{arch}" for arch in ARCHITECTURES]
            elif kind is Kind.GIT_TREES:
                needed = [tree_lock(path)]
            elif kind is Kind.PINS:
                used, needed = partial(_pin_use, cache, path), [f"pin-{path.stem}"]
            locks = tuple(cache.lock_file(name) for name in needed)
            yield CacheEntry(kind, path.stem, path, used(), locks, partial(_remove_locked, cache, path, needed, used))


def _pin_use(cache: Cache, pin: Path) -> float:
    """A pin was last used when its packages were: without the pin, the lab would choose newer packages."""
    of_packages = (entry for kind in (Kind.DEBIAN, Kind.ARCHIVES, Kind.DEBUG_INFO) for entry in cache.contents(kind))
    chosen = (a.used for _, a in of_packages if a is not None and a.label == pin.stem)
    return max([_last_change(pin), *chosen])


def _remove_locked(
    cache: Cache, path: Path, locks: Iterable[str], used: Callable[[], float], unused_since: float
) -> bool:
    with ExitStack() as held:
        if not all(held.enter_context(cache.try_lock(name)) for name in locks) or used() > unused_since:
            return False
        _remove(path)
    return True


def _environments(cache: Cache, kind: Kind) -> Iterator[CacheEntry]:
    for path in _entries(cache.root):
        if re.fullmatch(r"venv-[0-9a-f]{16}", path.name) and path.is_dir():
            locks = (path.with_name(f"{path.name}.lock"), path / ENVIRONMENT_STAMP)
            remove = partial(_remove_environment, path, *locks)
            yield CacheEntry(kind, path.name, path, last_use(path / ENVIRONMENT_STAMP), locks, remove)


def _remove_environment(path: Path, lock: Path, stamp: Path, unused_since: float) -> bool:
    # The start script locks an environment while making it, and would not notice that its (empty) lock file is gone.
    with claim(lock) as not_made, claim(stamp) as not_used:
        if (lock.exists() and not not_made) or (stamp.exists() and not not_used):
            return False
        if last_use(stamp) > unused_since:
            return False
        stamp.unlink(missing_ok=True)
        _remove(path)
        path.with_name(f"{path.name}.log").unlink(missing_ok=True)
    return True


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.is_symlink()) if is_real_folder(folder) else []


def _last_change(path: Path) -> float:
    return max((result.st_mtime for result in tree_status(path)), default=0.0)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


ALL = inf
"""A time later than any use: removes everything that is not in use."""


@dataclass(frozen=True)
class Removal:
    """An attempted removal: the entry, its size in bytes on disk, and whether it is gone (one in use stays)."""

    entry: CacheEntry
    size: int
    is_done: bool


def remove(leaving: Sequence[CacheEntry], unused_since: float) -> list[Removal]:
    """Remove entries, except those in use or used since that time."""
    return [Removal(entry, disk_usage(entry.path), entry.remove(unused_since)) for entry in leaving]


def verified(cache: Cache) -> Iterator[tuple[Artifact, str | None]]:
    """Every complete artifact by kind, with its damage if any. A file that several artifacts share is read once."""
    known: Known = {}
    for kind in Kind:
        for place, complete in cache.contents(kind) if kind in ARTIFACT_KINDS else ():
            if complete is not None or cache.is_finished(place):
                artifact = complete or Artifact(kind, place.name, place, "unknown", {})
                damage = _damage(artifact, known)
                if artifact.stamp.exists():  # not removed meanwhile by another process
                    yield artifact, damage


def set_aside(cache: Cache, artifact: Artifact, damage: str) -> None:
    """Set a damaged artifact aside unless another process has rebuilt it. Raises LabError if it is in use."""

    def check(place: Path) -> str | None:
        again = dict(cache.contents(place.parent.name)).get(place)
        return damage if again is None else _damage(again, {})

    cache.set_aside(artifact, damage, check)


def _damage(artifact: Artifact, known: Known) -> str | None:
    if not artifact.inputs:
        return f"{artifact.stamp.name}: cannot be read"
    if digest(artifact.inputs) != artifact.key:
        return f"{artifact.stamp.name}: has different content"
    return digests.changed(artifact.path, known)
