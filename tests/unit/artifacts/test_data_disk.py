# SPDX-License-Identifier: GPL-2.0-only
"""Is a folder the same disk as long as its content is the same, and is nothing taken that is not in it?"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from file_permissions import reading_by_modes

from orchestrator import host_packages
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.data_disk import data_disk
from orchestrator.errors import HostError, UsageError

pytestmark = pytest.mark.skipif(
    any(need.location() is None for need in host_packages.load_requirements("image-packages.txt")),
    reason="needs what images/image-packages.txt lists",
)


def make(folder: Path) -> Path:
    (folder / "sub/empty").mkdir(parents=True)
    (folder / "file").write_text("content\n")
    (folder / "sub/program").write_bytes(bytes(range(256)) * 1000)
    (folder / "sub/program").chmod(0o755)
    (folder / "sub/out").symlink_to("/etc/hostname")
    (folder / "sub/beside").symlink_to("program")
    return folder


def test_the_same_content_is_the_same_bytes(
    tmp_path: Path, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    path, two = make(tmp_path / "one"), make(tmp_path / "-two [2]")
    os.utime(two / "file", (1, 1))
    first, second = data_disk(context, path), data_disk(BuildContext(Cache(tmp_path / "other")), two)
    assert first.read_bytes() == second.read_bytes()
    assert (first.stat().st_mode & 0o777, first.parent.stat().st_mode & 0o777) == (0o400, 0o700)
    assert data_disk(context, two) == first
    (tmp_path / "link").symlink_to(path)
    assert data_disk(context, tmp_path / "link") == first


def test_a_disk_holds_the_folder_and_nothing_from_elsewhere(tmp_path: Path, context: BuildContext) -> None:
    disk = data_disk(context, make(tmp_path / "one"))
    out = tmp_path / "out"
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-d", out, disk], check=True)
    assert (out / "file").read_text() == "content\n"
    assert (out / "sub/program").read_bytes() == bytes(range(256)) * 1000
    assert (out / "sub/out").readlink() == Path("/etc/hostname")
    assert (out / "sub/empty").is_dir()
    listing = subprocess.run(["unsquashfs", "-lln", disk], check=True, capture_output=True, text=True).stdout
    entries = [line.split() for line in listing.splitlines() if line.count("squashfs-root")]
    assert {owner for _, owner, *_ in entries} == {"0/0"}
    # As unpacked by an ordinary user, it would have the mode that the umask leaves.
    assert [mode for mode, *_, path in entries if path.endswith("sub/program")] == ["-rwxr-xr-x"]


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda folder: (folder / "file").write_text("another\n"),
    "mode": lambda folder: (folder / "file").chmod(0o755),
    "name": lambda folder: (folder / "file").rename(folder / "other"),
    "more": lambda folder: (folder / "sub/more").touch(),
    "folder": lambda folder: (folder / "sub/empty").rmdir(),
    "link": lambda folder: (folder / "sub/out").replace(folder / "sub/beside"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_content_is_another_disk(change: str, tmp_path: Path, context: BuildContext) -> None:
    folder = make(tmp_path / "one")
    before = data_disk(context, folder)
    CHANGES[change](folder)
    assert data_disk(context, folder) != before


def test_files_that_cannot_be_packed_are_refused(tmp_path: Path, context: BuildContext) -> None:
    folder = make(tmp_path / "one")
    with pytest.raises(UsageError, match="none does not exist"):
        data_disk(context, tmp_path / "none")
    with pytest.raises(UsageError, match="file is not a folder"):
        data_disk(context, folder / "file")
    os.mkfifo(folder / "sub/pipe")
    with pytest.raises(UsageError, match="sub/pipe is neither a file nor a folder nor a link"):
        data_disk(context, folder)
    assert list(context.cache.artifacts()) == []


@pytest.mark.parametrize("name", ["file", "sub"])
def test_what_cannot_be_read_is_named(name: str, tmp_path: Path, context: BuildContext) -> None:
    folder = make(tmp_path / "one")
    (folder / name).chmod(0)
    try:
        with reading_by_modes(), pytest.raises(HostError, match=f"one/{name}.* cannot be read: Permission denied"):
            data_disk(context, folder)
    finally:
        (folder / name).chmod(0o755)


def test_a_folder_that_changes_meanwhile_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "one")

    def touch(text: str) -> None:
        (folder / "file").write_text(text)

    context = BuildContext(Cache(tmp_path / "cache"), say=touch)
    with pytest.raises(Exception, match="changed while it was packed"):
        data_disk(context, folder)
    assert list(context.cache.artifacts()) == []
    shutil.rmtree(folder)
