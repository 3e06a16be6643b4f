# SPDX-License-Identifier: GPL-2.0-only
"""What a boot reports while it is done: progress, guests, and the outcomes of its cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.results.contract import CellRecord


@dataclass(frozen=True)
class Progress:
    """Something that takes a person's time begins: a download, a build, a boot; on a ``worker`` of a fleet or here."""

    text: str
    worker: str = ""


@dataclass(frozen=True)
class CellBegan:
    """A cell is being measured."""

    cell: str


@dataclass(frozen=True)
class GuestBooted:
    """A guest runs: its name, which its logs have too, QEMU's command line, and the content of the work in it.

    ``restored_from`` is the key of the saved guest that it was restored from; None for one that was booted. ``worker``
    is the fleet's worker that runs it; empty here.
    """

    name: str
    command_line: tuple[str, ...]
    work: Mapping[str, str] = field(default_factory=dict)
    restored_from: str | None = None
    worker: str = ""


@dataclass(frozen=True)
class Outcome:
    """A cell has a record; ``is_compared`` where all that it is compared with were of the same boot."""

    record: CellRecord
    is_compared: bool = False


Event = Progress | CellBegan | GuestBooted | Outcome
