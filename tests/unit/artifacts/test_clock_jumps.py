# SPDX-License-Identifier: GPL-2.0-only
"""Does the cache bear a host's clock that was wrong, and was set?"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from orchestrator.artifacts import images
from orchestrator.artifacts.cache import DAY, BuildContext, Cache, digest
from orchestrator.artifacts.cache_entries import cache_entries
from orchestrator.artifacts.debian import AptRoot

SOURCES = {"bookworm": "deb http://a.invalid/debian bookworm main\n"}
WEEKS = 21 * DAY


@pytest.mark.parametrize(("age", "fresh"), [(30.0, True), (3600.0, False), (-3600.0, False), (-WEEKS, False)])
def test_lists_of_the_future_are_fetched_again(tmp_path: Path, age: float, fresh: bool) -> None:
    """A clock that was ahead, and was set back, has left them: they would be fresh until it is there again."""
    root = AptRoot(BuildContext(Cache(tmp_path)), ["i386"])
    stamp = root._stamp
    stamp.parent.mkdir(parents=True)
    stamp.write_text(digest(SOURCES))
    made = time.time() - age
    os.utime(stamp, (made, made))
    assert root._is_fresh(SOURCES) == fresh


def test_a_use_in_the_future_gives_way_to_the_next_one(tmp_path: Path) -> None:
    made = Cache(tmp_path).obtain("modules", {}, "a module", lambda folder: None)
    ahead = time.time() + WEEKS
    os.utime(made.stamp, (ahead, ahead))
    assert Cache(tmp_path).get("modules", {}) is not None
    assert made.used < ahead - WEEKS / 2


def test_what_is_not_used_again_ages_from_the_next_look_on(tmp_path: Path) -> None:
    """Otherwise an entry whose clock was ten years ahead would be kept for ten years."""
    made = Cache(tmp_path).obtain("modules", {}, "a module", lambda folder: None)
    ahead = time.time() + WEEKS
    os.utime(made.stamp, (ahead, ahead))
    (entry,) = (entry for entry in cache_entries(Cache(tmp_path)) if entry.kind == "modules")
    assert entry.used <= time.time()
    assert made.stamp.stat().st_mtime <= time.time()


def test_a_living_builders_folder_is_kept_however_old_the_clock_makes_it(tmp_path: Path) -> None:
    living, abandoned = (tmp_path / f"{images._WORK_PREFIX}{name}" for name in ("living", "abandoned"))
    long_ago = time.time() - WEEKS
    for folder in (living, abandoned):
        folder.mkdir()
        os.utime(folder, (long_ago, long_ago))
    descriptor = os.open(living, os.O_RDONLY)  # another process has a lock by another open file
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    images._remove_abandoned((), tmp_path)
    assert list(tmp_path.iterdir()) == [living]
    os.close(descriptor)
