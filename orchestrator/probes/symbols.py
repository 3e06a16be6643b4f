# SPDX-License-Identifier: GPL-2.0-only
"""Where the guest's kernel says its functions and modules are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest


class Symbols:
    """The kernel's own list of symbols (``/proc/kallsyms``), read once a boot: packages come with none."""

    def __init__(self, listing: bytes) -> None:
        self._listing = listing

    @classmethod
    def of(cls, guest: Guest) -> Symbols:
        """Read the guest's list."""
        return cls(guest.get("/proc/kallsyms"))

    def address(self, symbol: str) -> int:
        """The address of a function of the kernel itself. Raises EvidenceError when it is not there exactly once."""
        found = re.findall(rb"^([0-9a-f]{8,16}) [tTwW] " + re.escape(symbol.encode()) + rb"$", self._listing, re.M)
        if len(found) != 1:
            raise EvidenceError(f"the guest's kernel has {len(found) or 'no'} function(s) {symbol}")
        return int(found[0], 16)


@dataclass(frozen=True)
class LoadedModule:
    """A module's memory, from its first byte to behind its last."""

    start: int
    end: int

    @classmethod
    def of(cls, guest: Guest, name: str) -> LoadedModule:
        """Look the module up in ``/proc/modules``. Raises EvidenceError when it is not loaded."""
        listing = guest.get("/proc/modules").decode("ascii", errors="replace")
        found = re.search(rf"^{re.escape(name)} (\d+) \S+ \S+ Live (0x[0-9a-f]+)", listing, re.MULTILINE)
        if found is None:
            raise EvidenceError(f"module {name} is not among the guest's loaded modules")
        start = int(found[2], 16)
        return cls(start, start + int(found[1]))
