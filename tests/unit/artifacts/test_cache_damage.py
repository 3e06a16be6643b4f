# SPDX-License-Identifier: GPL-2.0-only
"""Is an artifact that was changed in the cache noticed before it is used, kept for its owner, and made anew?"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from file_permissions import modes_count
from other_processes import FORK, wait_while_alive
from test_cache import INPUTS

from orchestrator.artifacts import digests
from orchestrator.artifacts.cache import Artifact, Cache
from orchestrator.artifacts.cache_entries import Kind, cache_entries
from orchestrator.artifacts.usage import release
from orchestrator.errors import HostError, LabError

CONTENT = b"\x7fELF a kernel, or so"


def build(folder: Path) -> None:
    (folder / "boot").mkdir()
    (folder / "boot" / "image").write_bytes(CONTENT)
    (folder / "boot" / "odd \\name\nof two lines").write_text("odd")
    (folder / "link").symlink_to("boot/image")
    (folder / "folder").symlink_to("boot")


def made(root: Path) -> Artifact:
    return Cache(root).obtain("kernels", INPUTS, "a kernel", build)


def image_of(artifact: Artifact) -> Path:
    return artifact.path / "boot" / "image"


def change_four_bytes(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(6)
        stream.write(b"????")


def truncate(file: Path) -> None:
    os.truncate(file, 10)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def replace_by_another(file: Path) -> None:
    other_path = file.with_suffix(".new")
    other_path.write_bytes(CONTENT.upper())
    shutil.copystat(file, other_path)
    other_path.replace(file)


def turn_the_link(file: Path) -> None:
    link = file.parents[1] / "link"
    link.unlink()
    link.symlink_to("/dev/null/")


DAMAGES: dict[Callable[[Path], None], str] = {
    change_four_bytes: "boot/image: has different content",
    truncate: "boot/image: has 10 bytes instead of 20",
    empty: "boot/image: has 0 bytes instead of 20",
    replace_by_another: "boot/image: has different content",
    Path.unlink: "boot/image: is gone",
    turn_the_link: "link: has different content",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_changed_is_set_aside_and_made_anew(
    damage: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(tmp_path)
    damage(image_of(first))
    again = Cache(tmp_path).obtain("kernels", INPUTS, "a kernel", build)
    aside = tmp_path / "damaged" / f"kernels-{first.key}"
    said = capsys.readouterr().err
    assert said == f"kernels a kernel in the cache is damaged ({DAMAGES[damage]}): set aside as {aside}\n"
    assert again == first
    assert image_of(again).read_bytes() == CONTENT
    assert (aside / "manifest.json").is_file()
    assert Cache(tmp_path).get("kernels", INPUTS) == first
    assert capsys.readouterr().err == ""


def test_what_is_left_unverified_is_verified_before_it_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(tmp_path)
    truncate(image_of(first))
    cache = Cache(tmp_path)
    assert cache.get("kernels", INPUTS, unverified="bo") == first
    assert cache.get("kernels", INPUTS, unverified="bo") == first
    assert capsys.readouterr().err == ""
    with pytest.raises(HostError, match="kernels a kernel in the cache was damaged") as raised:
        cache.verify(first.path / "link")
    assert raised.value.hint == "run again"
    assert "boot/image: has 10 bytes instead of 20" in capsys.readouterr().err
    assert cache.get("kernels", INPUTS, unverified="bo") is None


def test_all_other_files_are_verified_at_once(tmp_path: Path) -> None:
    first = made(tmp_path)
    turn_the_link(image_of(first))
    assert Cache(tmp_path).get("kernels", INPUTS, unverified="boot/") is None


def test_a_file_outside_of_the_cache_is_not_verified(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.verify(tmp_path / "tree/Makefile")
    cache.verify(tmp_path / "cache/pins")


def test_what_was_set_aside_can_be_pruned(tmp_path: Path) -> None:
    truncate(image_of(made(tmp_path)))
    cache = Cache(tmp_path)
    assert cache.get("kernels", INPUTS) is None
    (entry,) = (entry for entry in cache_entries(cache) if entry.kind is Kind.DAMAGED)
    assert entry.remove(float("inf"))
    assert list((tmp_path / "damaged").iterdir()) == []


def test_a_file_as_it_was_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(tmp_path)
    monkeypatch.setattr(digests, "_digest", lambda folder, name: pytest.fail(f"{name} is read"))
    assert Cache(tmp_path).get("kernels", INPUTS) == first


def test_a_copied_cache_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "cache")
    shutil.copytree(tmp_path / "cache", tmp_path / "copy", symlinks=True)
    assert Cache(tmp_path / "copy").get("kernels", INPUTS) is not None
    monkeypatch.setattr(digests, "_digest", lambda folder, name: pytest.fail(f"{name} is read"))
    assert Cache(tmp_path / "copy").get("kernels", INPUTS) is not None
    assert not list((tmp_path / "copy").rglob(".*"))


def test_a_record_that_is_not_whole_is_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = made(tmp_path).path / digests.RECORD
    record.write_text("".join(record.read_text().splitlines(keepends=True)[:2]))
    assert Cache(tmp_path).get("kernels", INPUTS) is None
    assert "digests.txt: cannot be read (it is not whole)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("whole", "damaged"), [(" 20:", " x0:"), ("boot/image", "boot/\0mage"), ("boot/image\n", "\n"), (" 20:", "x20:")]
)
def test_a_damaged_line_of_a_record_is_damage(
    whole: str, damaged: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = made(tmp_path).path / digests.RECORD
    record.write_text(record.read_text().replace(whole, damaged))
    assert Cache(tmp_path).get("kernels", INPUTS) is None
    assert "digests.txt: cannot be read (a line of it is damaged)" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    first = made(tmp_path)
    tmp_path.chmod(0o500)
    first.path.chmod(0o500)
    try:
        with modes_count():
            assert Cache(tmp_path).get("kernels", INPUTS) == first
        truncate(image_of(first))
        with modes_count(), pytest.raises(HostError, match=r"kernels a kernel in the cache is damaged \(boot/image: "):
            Cache(tmp_path).get("kernels", INPUTS)
    finally:
        tmp_path.chmod(0o700)
        first.path.chmod(0o700)


def use(root: Path, mark: Path) -> None:
    assert Cache(root).get("kernels", INPUTS) is not None
    mark.touch()
    multiprocessing.Event().wait()


def test_what_another_process_uses_is_not_taken_from_it(tmp_path: Path) -> None:
    first = made(tmp_path / "cache")
    user = FORK.Process(target=use, args=(tmp_path / "cache", tmp_path / "mark"))
    user.start()
    try:
        wait_while_alive(user, (tmp_path / "mark").exists)
        truncate(image_of(first))
        with pytest.raises(LabError, match=r"is damaged .* and another process uses it") as caught:
            Cache(tmp_path / "cache").get("kernels", INPUTS)
        assert caught.value.hint == "run again when that process has ended"
        assert first.path.is_dir()
    finally:
        user.kill()
        user.join()


def obtain_sound(root: Path, marks: Path) -> None:
    def marked(folder: Path) -> None:
        with (marks / "builds").open("a") as file:
            file.write("x")
        build(folder)

    artifact = Cache(root).obtain("kernels", INPUTS, "a kernel", marked)
    sys.exit(0 if image_of(artifact).read_bytes() == CONTENT else 1)


def test_processes_that_find_the_same_damage_repair_it_once(tmp_path: Path) -> None:
    first = made(tmp_path / "cache")
    truncate(image_of(first))
    release(first.stamp)  # a forked process would share what we hold
    processes = [FORK.Process(target=obtain_sound, args=(tmp_path / "cache", tmp_path)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "builds").read_text() == "x"
    assert len(list((tmp_path / "cache" / "damaged").iterdir())) == 1


def test_reading_the_key_alone_waits_for_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(tmp_path)
    monkeypatch.setattr(digests, "changed", lambda folder: pytest.fail("it is checked"))
    assert Cache(tmp_path).find("kernels", INPUTS) == first
