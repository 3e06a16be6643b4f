# SPDX-License-Identifier: GPL-2.0-only
"""A guest's state in files: what a guest continues from, and what it consists of while it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.guest.guest_files import GuestFiles
from orchestrator.guest.machine import Machine
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.qemu_command import MemoryFile


@dataclass(frozen=True)
class WrittenState:
    """What a guest continues from, in place of a boot."""

    verb: str
    """What is done, in the steps' log: restore."""
    done: str
    """The same in errors: restored."""
    make_files: Callable[[Machine, Path], GuestFiles]
    """Makes the files of a guest of the machine, beside its console's log, which it may begin."""
    memory: MemoryFile | None
    """None for memory that ``load`` loads."""
    load: Callable[[Monitor], None]
    """Loads the state into a machine whose CPUs stay stopped."""
    is_kept: bool = False
    """Whether it is a kept guest itself, with the agent as its channel, and not a copy with a new identity."""


@dataclass(frozen=True)
class GuestParts:
    """What a running guest consists of, besides its memory."""

    monitor: Monitor
    written: Path | None
    """The overlay, what it has written to its image's disk; None without an image."""
    base: Path | None
    """The file that the overlay is over."""
