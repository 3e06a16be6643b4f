# SPDX-License-Identifier: GPL-2.0-only
"""Where a kernel's code calls a function, or jumps to it, by its address."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.artifacts.kernel_code import KernelCode

_BYTES = 5
# call, jmp, and behind a byte 0f the long conditional jumps; each with four bytes of distance from its own end.
_BRANCH = re.compile(rb"[\xe8\xe9\x80-\x8f](?=(....))", re.DOTALL)


def direct_calls(code: KernelCode, function: int) -> Iterator[int]:
    """The addresses of the calls of a function, and of jumps to it; there are none of calls through a pointer.

    Bytes that only look like such a call are not told apart: among some million of them, one in 4 billion fits.
    """
    start, end = code.address("_stext"), code.address("_etext")
    if start is None or end is None:
        return
    for found in _BRANCH.finditer(code.read(start, end - start)):
        behind = start + found.start() + _BYTES
        if (behind + int.from_bytes(found[1], "little", signed=True) - function) % (1 << 32) == 0:
            yield behind - _BYTES
