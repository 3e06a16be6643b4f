# SPDX-License-Identifier: GPL-2.0-only
"""The kernel functions that thousands of kprobes are placed on."""

from __future__ import annotations

import hashlib
import random
import re
from bisect import bisect_right
from itertools import accumulate

from orchestrator.errors import EvidenceError, UnsupportedError

_SYMBOL = re.compile(rb"^([0-9a-f]{8,16}) ([tT]) ([A-Za-z0-9_.$]{1,200})$", re.MULTILINE)
_PADDING = b"__pfx_"
_FORBIDDEN = re.compile(rb"^0x([0-9a-f]{8,16})-0x([0-9a-f]{8,16})\s", re.MULTILINE)
SPARE = 1.1
"""Candidates for each address that is needed: kprobes refuse one function in a hundred."""
EVENT_SPARE = 1.5
"""The same for events: these also refuse what ftrace must not trace, up to a third of a kernel's functions."""
_SPACING = 16
"""Bytes between a model's addresses within a function: the alignment of the kernel's functions."""
_PARTS = 8


def choose_sites(listing: bytes, blacklist: bytes, count: int, seed: int, spare: float = SPARE) -> list[int]:
    """Start addresses of ``count`` times ``spare`` of the kernel's own functions, in an order that ``seed`` decides.

    Fewer where the kernel has too few for that, but at least ``count``.

    ``listing`` is the guest's /proc/kallsyms, ``blacklist`` its list of what kprobes must not touch: functions there
    are left out, and so is what is freed after the boot. Raises UnsupportedError where the kernel has too few.
    """
    allowed = _allowed(listing, blacklist, count)
    random.Random(seed).shuffle(allowed)  # noqa: S311 - which functions, not a secret
    return allowed[: int(count * spare)]


def choose_sites_by_name(listing: bytes, blacklist: bytes, count: int, seed: int, spare: float) -> list[int]:
    """The same, in an order that depends on the functions' names alone: kernels that differ little have the same ones.

    What a load passes depends on which functions are probed.
    """
    allowed = _allowed(listing, blacklist, count)
    names = {int(address, 16): name for address, _, name in reversed(_SYMBOL.findall(listing))}
    allowed.sort(key=lambda address: hashlib.sha256(b"%d %s" % (seed, names[address])).digest())
    return allowed[: int(count * spare)]


def _allowed(listing: bytes, blacklist: bytes, count: int) -> list[int]:
    """The addresses of functions that kprobes may touch, of which there must be so many."""
    forbidden = sorted((int(start, 16), int(end, 16)) for start, end in _FORBIDDEN.findall(blacklist))
    starts = [start for start, _ in forbidden]
    # How far the ranges so far reach, since they may overlap: hundreds of them are compared with 40,000 functions.
    reach = [0, *accumulate((end for _, end in forbidden), max)]
    allowed = [address for address in functions(listing) if address >= reach[bisect_right(starts, address)]]
    if len(allowed) < count:
        raise UnsupportedError(f"this kernel has {len(allowed)} functions that take a kprobe, not {count}")
    return allowed


def choose_addresses(listing: bytes, count: int, seed: int) -> list[int]:
    """``count`` addresses of the kernel's text for the model, which puts no probe there.

    They are the starts of functions and, where these are too few, places inside functions.
    """
    known = functions(listing)
    ends = [*known[1:], known[-1]]
    found: list[int] = []
    for part in range(_PARTS):
        found += [
            start + part * _SPACING
            for start, end in zip(known, ends, strict=True)
            if not part or start + part * _SPACING < end
        ]
        if len(found) >= count:
            break
    else:
        raise UnsupportedError(f"this kernel's functions have {len(found)} places, not {count}")
    random.Random(seed).shuffle(found)  # noqa: S311 - as above
    return found[:count]


def functions(listing: bytes) -> list[int]:
    """The addresses of a kernel's own functions, each once, in order: from _stext to _etext.

    Raises EvidenceError where the list has none.
    """
    symbols = [(int(address, 16), name) for address, _, name in _SYMBOL.findall(listing)]
    bounds = {name: address for address, name in symbols if name in (b"_stext", b"_etext")}
    if len(bounds) != 2:
        raise EvidenceError("the guest's kernel does not list the bounds of its text (_stext, _etext)")
    low, high = bounds[b"_stext"], bounds[b"_etext"]
    # CONFIG_CALL_PADDING puts nops before each function, with a symbol, where kprobes refuse to be (since Linux 6.2).
    found = sorted({address for address, name in symbols if low <= address < high and not name.startswith(_PADDING)})
    if not found:
        raise EvidenceError("the guest's kernel lists no functions of its own, or hides their addresses")
    return found
