# SPDX-License-Identifier: GPL-2.0-only
"""The cache's entries: what each is, which are removed, and whether all are as they were made.

Only what has the name and the shape of something that the lab makes is ever looked at, and links are not followed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import inf
from pathlib import Path
from stat import S_ISDIR

from orchestrator.artifacts import digests
from orchestrator.artifacts.cache import (
    ENVIRONMENT_STAMP,
    Artifact,
    Cache,
    claim,
    digest,
    in_use,
    is_real_folder,
    last_use,
)
from orchestrator.artifacts.debian import DEBIAN_ARCHITECTURE
from orchestrator.artifacts.digests import Damage, Known
from orchestrator.artifacts.git_tree import UNFINISHED, tree_lock
from orchestrator.errors import UsageError

# The entries of the cache: what can be removed by itself.


class Kind(StrEnum):
    """The kinds of artifacts, and of what lies beside them in the cache."""

    DEBIAN = "debian"
    INITRAMFS = "initramfs"
    KERNEL_SOURCE = "kernel-source"
    KERNELS = "kernels"
    MODULE_OBJECTS = "module-objects"
    MODULES = "modules"
    MODULE_FOLDERS = "module-folders"
    PROGRAMS = "programs"
    PLUGINS = "plugins"
    TOOLCHAINS = "toolchains"
    WORKLOADS = "workloads"
    VMLINUX = "vmlinux"
    ARCHIVES = "archives"
    IMAGES = "images"
    DATA_DISKS = "data-disks"
    KERNEL_MODULES = "kernel-modules"
    KERNEL_FUNCTIONS = "kernel-functions"
    EXECUTED_FUNCTIONS = "executed-functions"
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
    LOCKS = "locks"


_BESIDE = {
    Kind.APT: re.compile(r"[a-z0-9]+(-[a-z0-9]+){0,2}"),
    Kind.CHECKS: re.compile("hypothesis|mypy|pytest|ruff"),
    Kind.DAMAGED: re.compile(r"[a-z]+(-[a-z]+)?-[0-9a-f]{24}"),
    Kind.FAILED_BUILDS: re.compile(r"\w+-[0-9a-f]{24}"),
    Kind.GIT_TREES: re.compile(rf"[A-Za-z0-9._+-]+-[0-9a-f]{{6}}({re.escape(UNFINISHED)})?"),
    Kind.PINS: re.compile(r"[\w.-]+\.json"),
}
"""The names that things may have in these folders of the cache."""


def artifact_kinds() -> list[Kind]:
    """The kinds that are artifacts, what they are made of before what is made of it."""
    return [kind for kind in Kind if kind not in (*_BESIDE, Kind.ENVIRONMENTS, Kind.LOCKS)]


_ENVIRONMENT = re.compile(r"venv-[0-9a-f]{16}")


@dataclass(frozen=True)
class CacheEntry:
    """Something in the cache. ``used`` is the time of its last use in epoch seconds, 0 for what cannot be used.

    A process that makes or uses it locks one of the files ``locks``. ``remove`` takes a time like ``used`` and removes
    the entry, unless it is in use or was used since; then it returns False.
    """

    kind: Kind
    label: str
    path: Path
    used: float
    locks: tuple[Path, ...]
    remove: Callable[[float], bool]
    artifact: Artifact | None = None

    def in_use(self) -> bool:
        """Whether a process makes or uses it now."""
        return any(in_use(file) for file in self.locks)

    def files(self) -> Iterator[Path]:
        """Everything that is removed with it."""
        return _tree(self.path)


def cache_entries(cache: Cache) -> list[CacheEntry]:
    """All that can be removed. Raises UsageError where the cache is a home folder, or one above it."""
    root = cache.root.resolve()
    home = Path.home().resolve()
    if root == home or root in home.parents:
        hint = "set ORCHESTRATOR_CACHE to a folder for the cache alone"
        what = "a home folder" if root == home else "a folder with a home folder in it"
        raise UsageError(f"the cache folder {root} is {what}: nothing is removed from it", hint=hint)
    others = {Kind.ENVIRONMENTS: _environments, Kind.LOCKS: _locks, **dict.fromkeys(_BESIDE, _beside)}
    return [entry for kind in Kind for entry in others.get(kind, _artifacts)(cache, kind)]


def _artifacts(cache: Cache, kind: Kind) -> Iterator[CacheEntry]:
    for place, artifact in cache.contents(kind):
        lock = cache.lock_file(cache.build_lock(place))
        if artifact is not None:
            remove, locks = partial(cache.remove, artifact), (lock, artifact.stamp)
            yield CacheEntry(kind, artifact.label, place, artifact.used, locks, remove, artifact)
        elif not in_use(lock):
            yield CacheEntry(kind, f"{place.name}, not complete", place, 0.0, (lock,), partial(_leftover, cache, place))


def _leftover(cache: Cache, place: Path, unused_since: float) -> bool:
    del unused_since
    return cache.remove_leftover(place)


def _beside(cache: Cache, kind: Kind) -> Iterator[CacheEntry]:
    names = _BESIDE[kind]
    for path in _entries(cache.root / kind):
        if names.fullmatch(path.name) and (path.is_file() if kind is Kind.PINS else path.is_dir()):
            used, needed = partial(_last_change, path), list[str]()
            if kind is Kind.APT:
                needed = [f"apt-{arch}" for arch in DEBIAN_ARCHITECTURE]
            elif kind is Kind.GIT_TREES:
                needed = [tree_lock(path)]
            elif kind is Kind.PINS:
                used, needed = partial(_pin_use, cache, path), [f"pin-{path.stem}"]
            locks = tuple(cache.lock_file(name) for name in needed)
            yield CacheEntry(kind, path.stem, path, used(), locks, partial(_remove_locked, cache, path, needed, used))


def _pin_use(cache: Cache, pin: Path) -> float:
    """A choice of packages is in use as long as these are: without it, newer ones would be chosen."""
    of_packages = (entry for kind in (Kind.DEBIAN, Kind.ARCHIVES) for entry in cache.contents(kind))
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
        if _ENVIRONMENT.fullmatch(path.name) and path.is_dir():
            locks = (path.with_name(f"{path.name}.lock"), path / ENVIRONMENT_STAMP)
            remove = partial(_remove_environment, path, *locks)
            yield CacheEntry(kind, path.name, path, last_use(path / ENVIRONMENT_STAMP), locks, remove)


def _remove_environment(path: Path, lock: Path, stamp: Path, unused_since: float) -> bool:
    # The start script locks one while it makes it, and would not notice if the lock's (empty) file were removed.
    with claim(lock) as not_made, claim(stamp) as not_used:
        if (lock.exists() and not not_made) or (stamp.exists() and not not_used):
            return False
        if last_use(stamp) > unused_since:
            return False
        stamp.unlink(missing_ok=True)
        _remove(path)
        path.with_name(f"{path.name}.log").unlink(missing_ok=True)
    return True


def _locks(cache: Cache, kind: Kind) -> Iterator[CacheEntry]:
    """All locks are one entry: their names are of no interest to the user."""
    files = [path for path in _entries(cache.root / kind) if path.suffix == ".lock" and path.is_file()]
    if files:
        used = min(last_use(path) for path in files)

        def remove(unused_since: float) -> bool:
            return cache.remove_locks(path.stem for path in files if last_use(path) <= unused_since) > 0

        yield CacheEntry(kind, "old ones", cache.root / kind, used, (), remove)


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.is_symlink()) if is_real_folder(folder) else []


def _last_change(path: Path) -> float:
    return max((facts.st_mtime for facts in map(status, _tree(path)) if facts is not None), default=0.0)


def status(path: Path) -> os.stat_result | None:
    """The status of a file, if it is still there: other processes work in the cache meanwhile."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _tree(path: Path) -> Iterator[Path]:
    yield path
    for folder, folders, files in os.walk(path):  # which passes over what has just gone
        yield from (Path(folder, name) for name in (*folders, *files))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


# Which entries of the cache are removed? Those unused for some time, unless another one needs them.

ALL = inf
"""A time after which nothing was used: all that is not in use may go."""


@dataclass(frozen=True)
class Fate:
    """An entry and the reason why it stays; it is removed where there is none."""

    entry: CacheEntry
    stays: str = ""


def fates(found: Sequence[CacheEntry], unused_since: float, kinds: Iterable[Kind]) -> list[Fate]:
    """Decide on the entries of ``kinds`` that were not used since then (epoch seconds, or ``ALL``).

    What a staying artifact was made from stays as well, unless it is ``ALL`` that are to go.
    """
    wanted = frozenset(kinds)
    staying = [entry for entry in found if entry.kind not in wanted or entry.used > unused_since]
    needed_by = {} if unused_since == ALL else _needs(found, staying)
    decided = []
    for entry in found:
        if entry.kind in wanted and entry.used <= unused_since:
            by = needed_by.get(entry.artifact.key) if entry.artifact is not None else None
            decided.append(Fate(entry, f"needed by {by.kind} {by.label}" if by is not None else ""))
    return decided


@dataclass(frozen=True)
class Removal:
    """An entry that was to be removed, what it takes on disk in bytes, and whether it is gone: one in use stays."""

    entry: CacheEntry
    size: int
    is_done: bool


def remove(leaving: Sequence[CacheEntry], unused_since: float) -> list[Removal]:
    """Remove entries, unless one is in use or was used since then."""
    freed_by = zip(leaving, freed(leaving), strict=True)
    return [Removal(entry, size, entry.remove(unused_since)) for entry, size in freed_by]


def freed(leaving: Iterable[CacheEntry]) -> list[int]:
    """The bytes on disk that each of these entries frees when they are removed in this order."""
    links: Counter[tuple[int, int]] = Counter()
    return [_weight(entry, links) for entry in leaving]


def _weight(entry: CacheEntry, links: Counter[tuple[int, int]]) -> int:
    weight = 0
    for path in entry.files():
        facts = status(path)
        if facts is None:
            continue
        if facts.st_nlink > 1 and not S_ISDIR(facts.st_mode):
            # Patched kernel sources share their files with the plain one: the last to go frees them.
            links[facts.st_dev, facts.st_ino] += 1
            if links[facts.st_dev, facts.st_ino] < facts.st_nlink:
                continue
        weight += facts.st_blocks * 512
    return weight


def _needs(found: Iterable[CacheEntry], staying: Iterable[CacheEntry]) -> dict[str, CacheEntry]:
    """Keys that the staying artifacts' inputs hold, and the inputs of those, each with an entry that needs it."""
    by_key = {entry.artifact.key: entry for entry in found if entry.artifact is not None}
    needed_by: dict[str, CacheEntry] = {}
    left = list(staying)
    while left:
        entry = left.pop()
        for word in _words(entry.artifact.inputs) if entry.artifact is not None else ():
            if word in by_key and word not in needed_by:
                needed_by[word] = entry
                left.append(by_key[word])
    return needed_by


def _words(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _words(part)


# Is everything in the cache as it was made? All files of all artifacts are read.


@dataclass(frozen=True)
class Verified:
    """An artifact and what is wrong with it. ``is_new``: it had no record yet, and was recorded as it is."""

    artifact: Artifact
    damage: Damage | None = None
    is_new: bool = False


class Verification:
    """Reads the artifacts of a cache; files that several of them share are read once."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._known: Known = {}

    def all(self) -> Iterator[Verified]:
        """Every artifact that is complete, by kind. One that another process removes is left out."""
        for kind in artifact_kinds():
            for place, artifact in self._cache.contents(kind):
                if artifact is not None:
                    verified = self._verified(artifact)
                elif self._cache.is_finished(place):
                    nameless = Artifact(kind, place.name, place, "unknown", {})
                    verified = Verified(nameless, Damage(nameless.stamp.name, "cannot be read"))
                else:
                    continue
                if verified.artifact.stamp.exists():
                    yield verified

    def set_aside(self, verified: Verified) -> None:
        """Set a damaged artifact aside. Raises LabError where that is not possible now."""
        assert verified.damage is not None

        def damage_still(place: Path) -> Damage | None:  # another process may have made it anew
            again = dict(self._cache.contents(place.parent.name)).get(place)
            return verified.damage if again is None else self._verified(again).damage

        self._cache.set_aside(verified.artifact, verified.damage, damage_still)

    def _verified(self, artifact: Artifact) -> Verified:
        if digest(artifact.inputs) != artifact.key:
            return Verified(artifact, Damage(artifact.stamp.name, "has another content"))
        if digests.has_record(artifact.path):
            return Verified(artifact, digests.differing(artifact.path, self._known))
        try:
            digests.record(artifact.path, artifact.stamp.name)
        except OSError as error:
            return Verified(artifact, Damage(digests.RECORD, f"cannot be made ({error.strerror})"))
        return Verified(artifact, is_new=True)
