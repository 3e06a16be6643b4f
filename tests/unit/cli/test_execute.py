# SPDX-License-Identifier: GPL-2.0-only
"""Does ``exec`` bring what the guest has, also where one of the files is not there?"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from orchestrator.errors import GuestConnectionLost, GuestError, HostError
from orchestrator.guest import fetched_folder
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.fetched_folder import fetch_folder
from orchestrator.guest.guest import Guest
from orchestrator.library.fetched_files import FetchedFiles


class GuestWithFile:
    """A guest that has /there, and is gone once /gone was asked for."""

    has_failed = False

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)

    def run(self, argv: Sequence[str], *, time_limit: float) -> CommandResult:
        assert list(argv[:2]) == ["test", "-d"]
        return CommandResult(tuple(argv), 1, b"", b"")

    def get(self, source: str, *, time_limit: float) -> bytes:
        assert time_limit == 5.0
        if source == "/gone":
            self.has_failed = True
            raise GuestConnectionLost("it is gone")
        if source != "/there":
            raise GuestError(f"cannot read {source}")
        return b"content"


@pytest.mark.parametrize(("first", "brought"), [("/absent", ["there"]), ("/gone", [])])
def test_the_other_files_of_a_guest_that_lives_are_brought(first: str, brought: list[str], tmp_path: Path) -> None:
    files = FetchedFiles([first, "/there", "/absent2"], tmp_path / "out")
    with pytest.raises(GuestError, match=f"cannot read {first}$|gone"):
        files.fetch(cast("Guest", GuestWithFile()), 5.0)
    assert sorted(file.name for file in tmp_path.glob("out/*")) == brought


# Can a guest that lies about its files write beside the copy of its folder, or make it grow without bounds?


class ListedGuest:
    """A guest whose find prints these names, whatever they are, and which has a content for each of them."""

    def __init__(self, printed: Sequence[bytes], contents: Mapping[str, bytes]) -> None:
        self._printed, self._contents = printed, contents

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)

    def run(self, argv: Sequence[str], *, time_limit: float) -> CommandResult:
        printed = b"" if "!" in argv else b"".join(name + b"\0" for name in self._printed)
        return CommandResult(tuple(argv), 0, printed, b"")

    def get(self, source: str, *, time_limit: float) -> bytes:
        return self._contents.get(source, b"content")


def fetch(target: Path, *printed: bytes, **contents: bytes) -> None:
    given = {f"/scratch/{name}": content for name, content in contents.items()}
    fetch_folder(cast("Guest", ListedGuest(printed, given)), "/scratch", target, 5.0)


def test_names_that_leave_the_copy_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = [
        b"/scratch/./../up",
        b"/etc/passwd",
        b"../up",
        b"/scratch/./a/../../up",
        b"/scratch/./a//b",
        b"/scratch/./.",
    ]
    hostile += [b"/scratch/./\x1b[2J", b"/scratch/./a\nb", b"/scratch/./\xff", b"/scratch/./" + b"x" * 256]
    fetch(tmp_path / "out" / "copy", *hostile, b"/scratch/./a/good")
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [Path("out/copy/a/good")]
    assert f"{len(hostile)} of /scratch were left out: links, " in capsys.readouterr().err


@pytest.mark.parametrize("names", [(b"a", b"a"), (b"a", b"a/b")], ids=["twice", "file and folder"])
def test_a_listing_that_cannot_be_true_leaves_nothing(tmp_path: Path, names: Sequence[bytes]) -> None:
    with pytest.raises(HostError, match="cannot write the guest's /scratch"):
        fetch(tmp_path / "copy", *(b"/scratch/./" + name for name in names))
    assert not list(tmp_path.iterdir())


def test_a_copy_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [b"/scratch/./%d" % number for number in range(fetched_folder.MOST_FILES + 1)]
    with pytest.raises(GuestError, match="has 1001 files, and at most 1000 are copied") as refused:
        fetch(tmp_path / "copy", *many)
    with pytest.raises(GuestError, match="has more names than 1000 files can have, and at most 1000 files are copied"):
        fetch(tmp_path / "copy", b"/scratch/./" + b"\0a" * (2048 * fetched_folder.MOST_FILES))
    assert "tar -czf /tmp/packed.tar.gz -C /scratch ." in refused.value.hint
    monkeypatch.setattr(fetched_folder, "MOST_BYTES", 1 << 20)
    with pytest.raises(GuestError, match="has more than 1 MiB, and no more are copied"):
        fetch(tmp_path / "copy", b"/scratch/./a", b"/scratch/./b", a=bytes(1 << 20), b=b"x")
    assert not list(tmp_path.iterdir())
    fetch(tmp_path / "copy", *many[:-1])
    assert len(list((tmp_path / "copy").iterdir())) == fetched_folder.MOST_FILES


def test_nothing_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").touch()
    with pytest.raises(HostError, match="cannot write"):
        fetch(tmp_path / "copy", b"/scratch/./a")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["mine"]
