# SPDX-License-Identifier: GPL-2.0-only
"""Which places of a guest's kernel kprobes refuse, and why: the kernel's own list of them, and where they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import Symbols

BLACKLIST = "/sys/kernel/debug/kprobes/blacklist"
BLACKLIST_MAX = 1 << 20
"""Bytes; a Debian kernel's has 40 KB."""
_LINE = re.compile(r"^0x([0-9a-f]{1,16})-0x([0-9a-f]{1,16})\t", re.MULTILINE)

# Sections of the text by the linker's names, in Linux 6.1 (include/asm-generic/vmlinux.lds.h).
_SECTIONS = {
    "noinstr": "it is noinstr: no trap may happen there",
    "entry": "it is entry code: the kernel is not yet, or no longer, in a state to take a trap",
}
_MARKED = "it is on kprobes' blacklist (NOKPROBE_SYMBOL)"


@dataclass(frozen=True)
class _Range:
    start: int
    end: int
    reason: str


@dataclass(frozen=True)
class RefusedPlaces:
    """Places that no kprobe may be at."""

    _ranges: Sequence[_Range]

    @classmethod
    def of(cls, guest: Guest, symbols: Symbols) -> RefusedPlaces:
        """Read a guest's."""
        listed = guest.get(BLACKLIST, largest=BLACKLIST_MAX).decode("ascii", errors="replace")
        sections = []
        for name, reason in _SECTIONS.items():
            start, end = (symbols.anywhere(f"__{name}_text_{edge}") for edge in ("start", "end"))
            if start is not None and end is not None:
                sections.append(_Range(start, end, reason))
        return cls([*sections, *(_Range(int(one[1], 16), int(one[2], 16), _MARKED) for one in _LINE.finditer(listed))])

    def reason(self, address: int) -> str | None:
        """Why no kprobe may be at an address; None where the kernel names no reason."""
        return next((one.reason for one in self._ranges if one.start <= address < one.end), None)
