# SPDX-License-Identifier: GPL-2.0-only
"""The errors that a system call may return, by their names.

Python's table of a Linux host: i386 and x86_64 have the numbers of include/uapi/asm-generic/errno.h.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from functools import lru_cache

LARGEST = 4095
"""MAX_ERRNO of include/linux/err.h: a result from -4095 to -1 is an error, and any other a success."""
_ALIASES = ("EWOULDBLOCK", "EDEADLOCK", "ENOTSUP")
"""Second names, of EAGAIN, EDEADLK and EOPNOTSUPP."""


@lru_cache(maxsize=1)
def error_numbers() -> Mapping[str, int]:
    """Return the errors' numbers, above 0, by their names; a number may have several."""
    return {name: number for name, number in vars(errno).items() if isinstance(number, int)}


def error_name(number: int) -> str:
    """Return the kernel's name of the error ``number``; ``errno 4000`` for one without a name."""
    return _names().get(number, f"errno {number}")


@lru_cache(maxsize=1)
def _names() -> Mapping[int, str]:
    return {number: name for name, number in error_numbers().items() if name not in _ALIASES}
