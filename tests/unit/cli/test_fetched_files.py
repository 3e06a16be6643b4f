# SPDX-License-Identifier: GPL-2.0-only
"""Does ``exec`` bring what the guest has, also where one of the files is not there?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from orchestrator.cli.execute import FetchedFiles
from orchestrator.errors import GuestConnectionLost, GuestError
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest


class GuestWithFile:
    """A guest that has /there, and is gone once /gone was asked for."""

    has_failed = False

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
