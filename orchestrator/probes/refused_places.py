# SPDX-License-Identifier: GPL-2.0-only
"""Which places of a kernel kprobes refuse, and why: by the list of one that runs, or by that of its image."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.artifacts.kernel_code import KernelCode
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
_LISTED = ("__start_kprobe_blacklist", "__stop_kprobe_blacklist")
_MOST_LISTED = 4096


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
        marked = [_Range(int(one[1], 16), int(one[2], 16), _MARKED) for one in _LINE.finditer(listed)]
        return cls([*_sections(symbols.anywhere), *marked])

    @classmethod
    def of_image(cls, code: KernelCode) -> RefusedPlaces:
        """Those that a kernel's image lists (populate_kprobe_blacklist() of kernel/kprobes.c).

        One without CONFIG_KALLSYMS_ALL does not say where its list is: its boot answers.
        """
        marked = [_Range(one, code.following(one) or one, _MARKED) for one in _unprobed(code)]
        first, behind = (code.address(f"__kprobes_text_{edge}") for edge in ("start", "end"))
        if first is not None and behind is not None:
            marked.append(_Range(first, behind, _MARKED))
        return cls([*_sections(code.address), *marked])

    def reason(self, address: int) -> str | None:
        """Why no kprobe may be at an address; None where the kernel names no reason."""
        return next((one.reason for one in self._ranges if one.start <= address < one.end), None)


def _sections(find: Callable[[str], int | None]) -> Iterator[_Range]:
    """The sections that are refused as a whole, by the addresses that ``find`` has of names."""
    for name, reason in _SECTIONS.items():
        start, end = (find(f"__{name}_text_{edge}") for edge in ("start", "end"))
        if start is not None and end is not None:
            yield _Range(start, end, reason)


def _unprobed(code: KernelCode) -> Iterator[int]:
    """The functions of the image's list, as far as its symbols say where that is."""
    first, behind = (code.address(name) for name in _LISTED)
    if first is not None and behind is not None:
        for place in range(first, min(behind, first + _MOST_LISTED * code.word), code.word):
            address = code.number(place)
            if address:
                yield address
