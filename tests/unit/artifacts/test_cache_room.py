# SPDX-License-Identifier: GPL-2.0-only
"""Is a full disk told as such, whatever program meets it, and is nothing that is half written ever used?"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from full_disk import room
from namespaces import OWN_MOUNTS, fork_with_mount
from other_processes import FORK

from orchestrator.artifacts.cache import Cache
from orchestrator.errors import BuildError, HostError
from orchestrator.files import is_lack_of_room

INPUTS = {"version": 1}
CONTENT = os.urandom(1024) * 40
FILES = 5
WHOLE_KIB = 40 * (FILES + 1)


def by_program(folder: Path) -> None:
    """Make an artifact by a program, as a compiler does: what it says is all that is known of its failure."""
    (folder / "0").write_bytes(CONTENT)
    for number in range(1, FILES + 1):
        done = subprocess.run(["cp", folder / "0", folder / str(number)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError("module lab does not build", detail=done.stderr.splitlines())


def in_silence(folder: Path) -> None:
    """Fail on a full disk without its words, as one that a signal ends."""
    try:
        by_program(folder)
    except BuildError as error:
        raise BuildError(error.what) from None


def by_hand(folder: Path) -> None:
    """Write it ourselves: the system's error does not say which file it was."""
    for number in range(FILES + 1):
        (folder / str(number)).write_bytes(CONTENT)


def by_copies(folder: Path) -> None:
    """Copy a whole folder: the error is one of many, without a number of its own."""
    with tempfile.TemporaryDirectory() as source:
        by_hand(Path(source))
        shutil.copytree(source, folder, dirs_exist_ok=True)


def in_temporary_folder(folder: Path) -> None:
    """Write what belongs to no artifact."""
    by_program(Path(tempfile.gettempdir()))
    (folder / "0").touch()


BUILDS: dict[str, Callable[[Path], None]] = {
    build.__name__: build for build in (by_program, in_silence, by_hand, by_copies)
}


def attempt(root: Path, inputs: dict[str, object], name: str) -> HostError | None:
    """Obtain a whole artifact, or the error."""
    try:
        made = Cache(root).obtain("things", inputs, "a thing", BUILDS[name])
    except HostError as error:
        return error
    assert all((made.path / str(number)).read_bytes() == CONTENT for number in range(FILES + 1))
    return None


def fill_again_and_again(disk: str, name: str) -> None:
    """Build with more and more room until that succeeds; nothing is ever found half, and the next build is whole."""
    root = Path(disk) / "cache"
    Cache(root).obtain("things", {}, "a first thing", lambda folder: None)
    for kib in range(0, WHOLE_KIB + 200, 28):
        inputs: dict[str, object] = {"room": kib}
        with room(Path(disk), kib):
            error = attempt(root, inputs, name)
        if error is None:
            assert kib >= WHOLE_KIB
            return
        assert (error.where, error.exit_status) == (str(root), 3)
        assert error.what.startswith("the disk of the cache folder is full: 0.")
        assert "ORCHESTRATOR_CACHE=" in error.hint
        assert Cache(root).get("things", inputs) is None
        assert not list(root.glob("things/*.building"))
        assert attempt(root, inputs, name) is None
    raise AssertionError("it never had room")


def fill_temporary_folder(disk: str, root: str) -> None:
    tempfile.tempdir = disk  # pytest has looked for one already
    with room(Path(disk), 60), pytest.raises(HostError, match="disk of temporary files is full") as caught:
        Cache(Path(root)).obtain("things", INPUTS, "a thing", in_temporary_folder)
    assert (caught.value.where, "TMPDIR=" in caught.value.hint) == (disk, True)


@OWN_MOUNTS
@pytest.mark.parametrize("name", BUILDS)
def test_a_disk_that_fills_up_at_any_moment(tmp_path: Path, name: str) -> None:
    mount = ("tmpfs", "size=64m", "tmpfs", tmp_path)
    assert fork_with_mount(mount, fill_again_and_again, tmp_path, name) == ""


@OWN_MOUNTS
def test_a_full_disk_of_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    mount = ("tmpfs", "size=1m", "tmpfs", tmp_path / "disk")
    assert fork_with_mount(mount, fill_temporary_folder, tmp_path / "disk", tmp_path / "cache") == ""


@pytest.mark.parametrize(
    ("words", "is_room"),
    [
        ("cc1: fatal error: error writing to /tmp/cc.s: No space left on device", True),
        ("collect2: fatal error: ld terminated with signal 7 [Bus error], core dumped", True),
        ("E: You don't have enough free space in /root/archives/.", True),
        ('lab.c:3:9: error: expected ";" before printk\n 3 | printk("x: No space left on device") {', False),
    ],
)
def test_the_words_of_programs(tmp_path: Path, words: str, is_room: bool) -> None:
    assert is_lack_of_room(BuildError("it fails", detail=words.splitlines()), [tmp_path]) == is_room


def test_what_fails_with_room_left_fails_for_its_own_reason(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise BuildError("module lab does not build", detail=["lab.c:1:1: error: expected ';'"])

    with pytest.raises(BuildError, match="module lab does not build"):
        Cache(tmp_path).obtain("things", INPUTS, "a thing", fail)


def fill_every_disk(root: str) -> None:
    Cache(Path(root)).obtain("things", {}, "a first thing", lambda folder: None)
    with pytest.raises(HostError, match="disk of the cache folder") as caught:
        Cache(Path(root)).obtain("things", INPUTS, "a thing", without_room)
    assert caught.value.where == root


def without_room(folder: Path) -> None:
    """Fail where nothing can be written, temporary files neither."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    tempfile.tempdir = None
    (folder / "0").write_bytes(CONTENT)


def test_a_full_disk_that_temporary_files_are_on_as_well(tmp_path: Path) -> None:
    process = FORK.Process(target=fill_every_disk, args=(str(tmp_path),))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert not list(tmp_path.glob("things/*.building"))
