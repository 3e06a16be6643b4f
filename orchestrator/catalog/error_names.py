# SPDX-License-Identifier: GPL-2.0-only
"""The errors of system calls by name, from Python's table.

i386 and x86_64 both have the numbers of include/uapi/asm-generic/errno.h.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from functools import lru_cache

LARGEST = 4095
"""MAX_ERRNO of include/linux/err.h: a result from -4095 to -1 is an error."""


@lru_cache(maxsize=1)
def error_numbers() -> Mapping[str, int]:
    """Error numbers by name; a number may have several names."""
    return {name: number for name, number in vars(errno).items() if isinstance(number, int)}


def error_name(number: int) -> str:
    """The kernel's name of an error; ``errno 4000`` for one without a name."""
    names = {**errno.errorcode, errno.EDEADLK: "EDEADLK", errno.EOPNOTSUPP: "EOPNOTSUPP"}  # not their synonyms
    return names.get(number, f"errno {number}")
