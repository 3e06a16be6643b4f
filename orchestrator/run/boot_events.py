# SPDX-License-Identifier: GPL-2.0-only
"""What a boot reports while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from orchestrator.results.contract import CellId, CellRecord


@dataclass(frozen=True)
class Progress:
    """Something that takes noticeable time begins: a download, a build, a boot; here or on a ``worker`` of a fleet."""

    text: str
    worker: str = ""


@dataclass(frozen=True)
class CellBegan:
    """A cell is being measured."""

    cell: CellId


@dataclass(frozen=True)
class GuestBooted:
    """A guest is about to run: its name, shared with its logs, QEMU's command line, and the content of its work.

    ``restored_from`` is the key of the saved guest that it was restored from; None if it was booted. ``worker`` is the
    fleet's worker that runs it; empty here.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+@=,-]{0,249}$")]
    command_line: tuple[str, ...]
    work: Mapping[str, str] = field(default_factory=dict)
    restored_from: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")] | None = None
    worker: str = ""


@dataclass(frozen=True)
class CellRecorded:
    """A cell has a record; ``is_compared`` if everything that it is compared with was in the same boot."""

    record: CellRecord
    is_compared: bool = False


Event = Progress | CellBegan | GuestBooted | CellRecorded
