# SPDX-License-Identifier: GPL-2.0-only
"""What it takes to ask something of a guest's kernel: to run programs, and to read files. A guest is one such thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrator.guest.channel import COMMAND_LIMIT, OUTPUT_MAX, CommandResult, Listener


class GuestCommands(Protocol):
    """Runs programs in a guest, and reads its files. Both raise GuestError; ``time_limit`` is in host seconds."""

    def run(
        self, argv: Sequence[str], *, time_limit: float = COMMAND_LIMIT, listener: Listener | None = None
    ) -> CommandResult:
        """Run a program and wait for it, whatever its status. A ``listener`` receives what it prints."""

    def get(self, source: str, *, time_limit: float = COMMAND_LIMIT, largest: int = OUTPUT_MAX) -> bytes:
        """Read a file of at most ``largest`` bytes, by its absolute path."""
