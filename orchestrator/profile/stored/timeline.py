# SPDX-License-Identifier: GPL-2.0-only
"""The time line of one call: the functions that it is in, one after the other; an instruction is a nanosecond."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, StringConstraints

from orchestrator.files import write_whole
from orchestrator.profile.stored.cell_profile import FunctionPlace, Offset, Place
from orchestrator.profile.stored.profile_files import file_beside
from orchestrator.results.contract import CellId, Count, Record
from orchestrator.results.faults import storage_faults

Mark = Annotated[str, StringConstraints(pattern=r"^[a-z0-9 ]*$", max_length=20)]


class TimelineSpan(NamedTuple):
    """A stay in a function, from the instruction ``start`` of the call on; ``depth`` functions are around it.

    ``own`` are its instructions outside of those that it calls. ``entered`` and ``left`` are the instructions that led
    in and out, where these are no call, jump or return: ``int3``, ``sysenter``, ``iretd``; or ``exception``.
    """

    name: FunctionPlace
    place: Place
    address: Offset
    depth: Count
    start: Count
    instructions: Count
    own: Count
    entered: Mark = ""
    left: Mark = ""

    @property
    def end(self) -> int:
        return self.start + self.instructions


class Timeline(Record):
    """The spans of a cell's call in the order in which they begin, callers first; the first one is the program."""

    cell: CellId
    spans: Annotated[tuple[TimelineSpan, ...], Field(min_length=1)]

    @property
    def instructions(self) -> int:
        return self.spans[0].instructions

    def write(self, profile: Path) -> None:
        """Write it beside the cell's profile. Raises HostError if the disk is full."""
        file = file_beside(profile)
        with storage_faults(file):
            file.parent.mkdir(exist_ok=True)
            write_whole(file, self.model_dump_json())
