# SPDX-License-Identifier: GPL-2.0-only
"""Which files of a user's folder become a module, and is one that cannot be read an error for the user?"""

from __future__ import annotations

from pathlib import Path

import pytest
from file_permissions import reading_by_modes

from orchestrator.artifacts import sources
from orchestrator.artifacts.sources import read_sources
from orchestrator.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    (made / "deep").mkdir(parents=True)
    (made / "Kbuild").write_text("obj-m := mine.o\n")
    (made / "mine.c").write_text("c")
    (made / "deep" / "part.h").write_text("h")
    return made


def test_what_a_build_has_left_and_hidden_files_are_not_among_them(folder: Path) -> None:
    for name in ("mine.o", "mine.ko", "mine.mod.c", ".mine.ko.cmd", "Module.symvers", "deep/.hidden"):
        (folder / name).write_text("x")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    assert dict(read_sources(folder)) == {"Kbuild": b"obj-m := mine.o\n", "mine.c": b"c", "deep/part.h": b"h"}


def test_a_link_to_a_folder_is_followed_within_the_folder_only(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    (folder / "inside").symlink_to("deep")
    (folder / "outside").symlink_to(tmp_path / "elsewhere")
    (folder / "up").symlink_to("..")
    (folder / "linked.c").symlink_to(tmp_path / "elsewhere" / "secret")  # a file is what it leads to
    assert set(read_sources(folder)) == {"Kbuild", "mine.c", "deep/part.h", "inside/part.h", "linked.c"}
    (tmp_path / "link").symlink_to(folder)
    assert set(read_sources(tmp_path / "link")) == set(read_sources(folder))


def test_links_in_a_circle_and_to_nothing_end(folder: Path) -> None:
    (folder / "deep" / "round").symlink_to("..")
    (folder / "one").mkdir()
    (folder / "other").mkdir()
    (folder / "one" / "other").symlink_to("../other")
    (folder / "other" / "one").symlink_to("../one")
    (folder / "itself").symlink_to("itself")
    (folder / "nothing").symlink_to("nonesuch")
    assert set(read_sources(folder)) == {"Kbuild", "mine.c", "deep/part.h"}


@pytest.mark.parametrize("name", ["mine.c", "deep"])
def test_what_cannot_be_read_is_named(folder: Path, name: str) -> None:
    (folder / name).chmod(0)
    try:
        with (
            reading_by_modes(),
            pytest.raises(ConfigError, match="cannot be read: Permission denied") as refused,
        ):
            read_sources(folder)
    finally:
        (folder / name).chmod(0o700)
    assert refused.value.where == str(folder / name)


def test_more_than_is_a_modules_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST_FILES", 3)
    assert len(read_sources(folder)) == 3
    (folder / "one_more.c").touch()
    with pytest.raises(ConfigError, match="too much for a module"):
        read_sources(folder)
    (folder / "one_more.c").unlink()
    monkeypatch.setattr(sources, "_MOST_BYTES", 10)
    with pytest.raises(ConfigError, match="too much for a module"):
        read_sources(folder)
