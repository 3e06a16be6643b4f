# SPDX-License-Identifier: GPL-2.0-only
"""Is an artifact built once, whole or not at all, whatever other builders do: build, die, fill the disk?"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest
from file_permissions import modes_count
from namespaces import OWN_MOUNTS, fork_with_mount
from other_processes import FOR_EVER, FORK, wait_while_alive

from orchestrator.artifacts import disk_images
from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache, digest, disk_usage
from orchestrator.artifacts.cache_entries import cache_entries
from orchestrator.artifacts.usage import DAY
from orchestrator.errors import BuildError, HostError, LabError
from orchestrator.steps import step_echo

INPUTS = {"version": 1, "flags": ["-O2"]}


def test_obtaining_is_a_step_with_whether_it_was_there(tmp_path: Path) -> None:
    lines: list[str] = []
    with step_echo(lines.append):
        for _ in range(2):
            Cache(tmp_path).obtain("things", INPUTS, "a thing", lambda folder: None)
    assert [line.split()[1:5] for line in lines] == [["obtain", "things:", "a", "thing"]] * 2
    assert [line.rpartition(" ")[2] for line in lines] == ["made)", "hit)"]


def test_what_another_process_removes_meanwhile_has_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Cache(tmp_path).obtain("things", INPUTS, "a thing", lambda folder: (folder / "gone").touch())
    walk = os.walk

    def walk_late(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for found in walk(top):
            (made.path / "gone").unlink(missing_ok=True)
            yield found

    monkeypatch.setattr(os, "walk", walk_late)
    assert disk_usage(made.path) > 0
    shutil.rmtree(made.path)
    assert disk_usage(made.path) == 0


def builder(marks: Path, seconds: float = 0.0) -> Callable[[Path], None]:
    """A build that leaves a mark each time it runs, and half an artifact for a while."""

    def build(folder: Path) -> None:
        assert list(folder.iterdir()) == []
        with (marks / "builds").open("a") as file:
            file.write("x")
        (folder / "content").write_text("half")
        time.sleep(seconds)
        (folder / "content").write_text("whole")

    return build


def obtain(root: Path, marks: Path, seconds: float = 0.0) -> str:
    return (Cache(root).obtain("things", INPUTS, "a thing", builder(marks, seconds)).path / "content").read_text()


def obtain_or_exit(root: Path, marks: Path) -> None:
    sys.exit(0 if obtain(root, marks, 0.3) == "whole" else 1)


def building_for_ever(root: Path, marks: Path) -> tuple[ForkProcess, Path]:
    """A process that has written half an artifact and goes on, and the folder in which it does."""
    process = FORK.Process(target=obtain, args=(root, marks, FOR_EVER), daemon=True)
    process.start()
    place = root / "things" / f"{digest(INPUTS)}.building"
    wait_while_alive(process, (place / "content").exists)
    return process, place


def fill_the_disk(folder: Path) -> None:
    (folder / "content").symlink_to("/dev/full")
    (folder / "content").write_text("x")


def no_build(folder: Path) -> None:
    raise AssertionError(f"{folder} is built although it is there")


def test_a_cache_behind_a_link_has_the_same_artifacts(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("disk/cache")
    (tmp_path / "disk").mkdir()
    made = Cache(tmp_path / "disk/cache").obtain("things", INPUTS, "a thing", builder(tmp_path))
    linked = Cache(tmp_path / "link")
    assert linked.obtain("things", INPUTS, "a thing", no_build).key == made.key
    (artifact,) = linked.artifacts()
    assert linked.is_sound(artifact)
    assert [place for place, _ in linked.contents("things")] == [artifact.path]


def test_a_cached_artifact_is_not_built_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert cache.get("things", INPUTS) is None
    made = cache.obtain("things", INPUTS, "a thing", builder(tmp_path))
    again = cache.obtain("things", dict(reversed(INPUTS.items())), "a thing", no_build)
    assert made == again == cache.get("things", INPUTS)
    assert (made.kind, made.label, made.inputs, made.key) == ("things", "a thing", INPUTS, digest(INPUTS))
    assert disk_usage(made.path) > 0


def test_other_inputs_and_kinds_are_other_artifacts(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.obtain("things", INPUTS, "a thing", builder(tmp_path))
    assert cache.get("things", {**INPUTS, "version": 2}) is None
    assert cache.get("others", INPUTS) is None


def test_processes_that_want_the_same_build_it_once(tmp_path: Path) -> None:
    processes = [FORK.Process(target=obtain_or_exit, args=(tmp_path / "cache", tmp_path)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "builds").read_text() == "x"


def test_remains_of_a_killed_builder_are_never_used(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    process, place = building_for_ever(root, tmp_path)
    process.kill()
    process.join()
    assert place.exists()
    assert Cache(root).get("things", INPUTS) is None
    assert list(Cache(root).artifacts()) == []
    assert obtain(root, tmp_path) == "whole"
    assert (tmp_path / "builds").read_text() == "xx"
    assert not place.exists()


def test_a_process_that_waits_for_a_builder_takes_over_when_that_is_killed(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    builder_process, _ = building_for_ever(root, tmp_path)
    waiting = FORK.Process(target=obtain_or_exit, args=(root, tmp_path), daemon=True)
    waiting.start()
    wait_while_alive(waiting, lambda: is_asleep(waiting.pid))
    builder_process.kill()
    waiting.join()
    assert waiting.exitcode == 0
    assert (tmp_path / "builds").read_text() == "xx"
    builder_process.join()


def is_asleep(pid: int | None) -> bool:
    """Whether a process sleeps, as one does between two looks at a lock."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_builder_killed_before_the_last_step_is_not_listed(tmp_path: Path) -> None:
    made = Cache(tmp_path / "cache").obtain("things", INPUTS, "a thing", builder(tmp_path))
    made.path.rename(made.path.with_name(f"{made.key}.building"))
    assert list(Cache(tmp_path / "cache").artifacts()) == []


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "content").write_text("half")
        raise BuildError("no luck")

    cache = Cache(tmp_path / "cache")
    with pytest.raises(BuildError, match="no luck"):
        cache.obtain("things", INPUTS, "a thing", fail)
    assert list((tmp_path / "cache" / "things").iterdir()) == []
    assert obtain(tmp_path / "cache", tmp_path) == "whole"


def test_a_full_disk_is_the_host_s(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    with pytest.raises(HostError, match="disk of the cache folder was full a moment ago") as caught:
        cache.obtain("things", INPUTS, "a thing", fill_the_disk)
    assert (caught.value.where, "ORCHESTRATOR_CACHE=" in caught.value.hint) == (str(cache.root), True)
    assert list((cache.root / "things").iterdir()) == []
    with pytest.raises(HostError, match="was full"), cache.lock("anything"):
        Path("/dev/full").write_text("x")


def obtain_in(root: str, marks: str) -> None:
    obtain(Path(root), Path(marks))


@OWN_MOUNTS
def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    """Not even the locks' folder has room."""
    root = tmp_path / "cache"
    root.mkdir()
    mount = ("tmpfs", "size=4k,nr_inodes=2", "tmpfs", root)
    complaint = fork_with_mount(mount, obtain_in, root, tmp_path)
    assert f"HostError: {root}: the disk of the cache folder is full: it has no free inode" in complaint


@OWN_MOUNTS
def test_a_disk_that_only_reads(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.mkdir()
    complaint = fork_with_mount(("tmpfs", "ro", "tmpfs", root), obtain_in, root, tmp_path)
    assert "is not writable" in complaint


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "fixed").mkdir(mode=0o500)
    with modes_count(), pytest.raises(HostError, match="is not writable") as caught:
        obtain(tmp_path / "fixed" / "cache", tmp_path)
    assert "ORCHESTRATOR_CACHE" in caught.value.hint
    assert not (tmp_path / "builds").exists()


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(HostError, match="cannot be created"):
        obtain(tmp_path / "cache", tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"{}", b'{"label": "x"}', b"\xff\xfe"])
def test_a_damaged_manifest_hints_what_to_remove(tmp_path: Path, content: bytes) -> None:
    cache = Cache(tmp_path / "a cache")
    made = cache.obtain("things", INPUTS, "a thing", builder(tmp_path))
    (made.path / "manifest.json").write_bytes(content)
    with pytest.raises(LabError, match="cannot be read") as caught:
        cache.get("things", INPUTS)
    assert f"rm -r '{made.path}'" in caught.value.hint


def test_an_entry_that_lost_its_manifest_is_built_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    made = cache.obtain("things", INPUTS, "a thing", builder(tmp_path))
    (made.path / "manifest.json").unlink()
    (made.path / "stray").touch()
    assert cache.get("things", INPUTS) is None
    assert obtain(cache.root, tmp_path) == "whole"
    assert not (made.path / "stray").exists()


def test_artifacts_are_listed_by_kind_and_label(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert list(cache.artifacts()) == []
    for number, (kind, label) in enumerate([("b", "x"), ("a", "z"), ("a", "y")]):
        cache.obtain(kind, {"n": number}, label, lambda folder: None)
    (cache.root / "pins").mkdir()
    (cache.root / "pins" / "x.json").write_text("[]")
    assert [(a.kind, a.label) for a in cache.artifacts()] == [("a", "y"), ("a", "z"), ("b", "x")]


def test_offline_names_what_is_missing(tmp_path: Path) -> None:
    BuildContext(Cache(tmp_path)).need_network("a kernel")
    with pytest.raises(HostError, match="a kernel is not in the cache") as caught:
        BuildContext(Cache(tmp_path), offline=True).need_network("a kernel")
    assert "--offline" in caught.value.hint


# Does the cache bear a host's clock that was wrong, and was set?

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


def test_unused_entry_ages_from_the_next_look_on(tmp_path: Path) -> None:
    """Otherwise an entry whose clock was ten years ahead would be kept for ten years."""
    made = Cache(tmp_path).obtain("modules", {}, "a module", lambda folder: None)
    ahead = time.time() + WEEKS
    os.utime(made.stamp, (ahead, ahead))
    (entry,) = (entry for entry in cache_entries(Cache(tmp_path)) if entry.kind == "modules")
    assert entry.used <= time.time()
    assert made.stamp.stat().st_mtime <= time.time()


def test_a_living_builders_folder_is_kept_however_old_the_clock_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    living, abandoned = (tmp_path / f"{disk_images._WORK_PREFIX}{name}" for name in ("living", "abandoned"))
    long_ago = time.time() - WEEKS
    for folder in (living, abandoned):
        folder.mkdir()
        os.utime(folder, (long_ago, long_ago))
    descriptor = os.open(living, os.O_RDONLY)  # another process has a lock by another open file
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    with disk_images._work_folder((), 1) as work:
        assert sorted(tmp_path.iterdir()) == sorted([living, work])
    os.close(descriptor)
