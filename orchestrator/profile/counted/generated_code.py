# SPDX-License-Identifier: GPL-2.0-only
"""Code that is generated while a guest runs, as the kernel lists it, with the same names in each boot."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

GENERATED = "generated code"
"""Code that was made while the guest ran, and that the kernel does not list."""


SLOT = "kprobe's slot"


BEHIND_NAMES = "\x7f"


BPF_PROGRAM = "BPF program "
"""What a profile calls a BPF program that has a name: the only code of which a program's author knows the beginning."""


BPF_TRAMPOLINE = "BPF trampoline"


_MADE = {
    r"bpf_prog_[0-9a-f]{16}_(\S+)": BPF_PROGRAM + "{}",
    r"bpf_prog_[0-9a-f]{16}": "a BPF program without a name",
    r"bpf_trampoline_\d+": BPF_TRAMPOLINE,
    r"bpf_dispatcher_\w+": "BPF dispatcher",
    r"kprobe_insn_page": SLOT,
    r"kprobe_optinsn_page": "optimised kprobe's detour",
    r"ftrace_trampoline": "function tracer's trampoline",
}
"""The kernel's names of generated code, and the lab's: the same in each boot, without a number."""


_OF_KERNEL = re.compile(r"^([0-9a-f]{8,16}) \S (\S+)\t\[(?:bpf|__builtin__\w+)\]$", re.MULTILINE)


_FARTHEST = 1 << 16
"""Bytes after a symbol that may belong to it: the kernel does not list where such code ends."""


def listed_code(listing: bytes) -> Sequence[tuple[int, str]]:
    """Generated code that the kernel lists (``/proc/kallsyms``): addresses in order, and names."""
    # The kernel's own symbols, 95,000 of Debian's, come first and name no module.
    first = listing.rfind(b"\n", 0, max(0, listing.find(b"\t["))) + 1
    lines = _OF_KERNEL.findall(listing[first:].decode("ascii", errors="replace"))
    return sorted((int(address, 16), _title(symbol)) for address, symbol in lines)


def _title(symbol: str) -> str:
    matches = ((re.fullmatch(pattern, symbol), title) for pattern, title in _MADE.items())
    return next((title.format(*match.groups()) for match, title in matches if match), symbol)


class MadeCode(NamedTuple):
    """Generated code: its name, and where it begins; 0 if the kernel lists only the pages that such code is in."""

    name: str
    start: int = 0


def made_at(made: Sequence[tuple[int, str]], address: int) -> MadeCode:
    """The last code that starts at an address or before it."""
    at = bisect_right(made, (address, BEHIND_NAMES)) - 1
    if at < 0 or address - made[at][0] >= _FARTHEST:
        return MadeCode(GENERATED)
    start, name = made[at]
    return MadeCode(name, start if name.startswith(BPF_PROGRAM) else 0)
