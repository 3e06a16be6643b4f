# SPDX-License-Identifier: GPL-2.0-only
"""Is room for what calls leave in a tool's buffers measured, and does a tool leave nothing behind?"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.catalog.tools import TOOLS_IMAGE, ToolCommand
from orchestrator.errors import CommandFailed, EvidenceError
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.probes.tool_attachment import pins_in, reader_beside, running_tool
from orchestrator.probes.tool_process import Ring, ToolProcess


class Rings:
    """A tool whose buffers are so full, each time that it is asked."""

    name, pid = "mine", 7

    def __init__(self, *answers: Sequence[Ring]) -> None:
        self._answers = [*answers]

    def read(self) -> None:
        """It reads what is there."""

    def rings(self) -> Sequence[Ring]:
        return self._answers.pop(0)


def ignored(calls: int) -> None:
    """Calls that are made elsewhere."""


def test_buffers_that_come_and_go_are_an_error() -> None:
    process = cast("ToolProcess", Rings([Ring(4096, 0)], [Ring(4096, 0), Ring(4096, 0)]))
    with pytest.raises(EvidenceError, match=r"^mine has other buffers after some calls than before$"):
        reader_beside(process, ignored)


def test_pins_that_cannot_be_listed_are_not_none() -> None:
    def failing(argv: Sequence[str]) -> CommandResult:
        raise CommandFailed("find failed")

    def run(argv: Sequence[str]) -> CommandResult:
        return CommandResult(tuple(argv), 1, b"", b"find: /sys/fs/bpf: no such file")

    with pytest.raises(CommandFailed):
        pins_in(cast("Guest", SimpleNamespace(succeed=failing, run=run)))


@pytest.mark.parametrize(("image", "has_other"), [(TOOLS_IMAGE, False), ("debian-amd64", True), (None, True)])
def test_the_image_with_tools_is_named_where_the_guest_has_another(image: str | None, has_other: bool) -> None:
    root = None if image is None else SimpleNamespace(name=image)

    def run(argv: Sequence[str]) -> CommandResult:
        return CommandResult(tuple(argv), 1, b"", b"")

    guest = cast("Guest", SimpleNamespace(run=run, machine=SimpleNamespace(root=root)))
    with (
        pytest.raises(EvidenceError, match=r"^the guest's image has no nosuchtool") as refused,
        running_tool(guest, ToolCommand("nosuchtool", ("nosuchtool",)), lambda: 1.0),
    ):
        pass
    assert (TOOLS_IMAGE in refused.value.hint) == has_other
    assert refused.value.hint.endswith("add its package to a recipe of yours")
