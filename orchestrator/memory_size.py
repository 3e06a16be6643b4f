# SPDX-License-Identifier: GPL-2.0-only
"""Sizes of memory as people write them, such as ``256M`` and ``1G``."""

from __future__ import annotations

import re

GUEST_SIZES = "expected a size from 64M to 4G, such as 256M or 1G; a number alone is in MiB"
"""What a guest's memory may be, for whoever has written something else."""

_SIZE = re.compile(r"([1-9][0-9]{0,6})([MG])")
_NUMBER = re.compile(r"[1-9][0-9]{0,6}")
_MIB = {"M": 1, "G": 1024}
_GUEST_MIB = (64, 4096)


def size_mib(text: str) -> int | None:
    """The MiB of a size such as ``1500M`` or ``8G``; None for anything else."""
    found = _SIZE.fullmatch(text)
    return None if found is None else int(found[1]) * _MIB[found[2]]


def guest_mib(value: object) -> int | None:
    """The MiB of a guest's memory: a size, or a number of MiB as a number or as text; None for no ``GUEST_SIZES``."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    mib = int(text) if _NUMBER.fullmatch(text) else size_mib(text)
    low, high = _GUEST_MIB
    return mib if mib is not None and low <= mib <= high else None
