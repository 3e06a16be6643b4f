# SPDX-License-Identifier: GPL-2.0-only
"""Where are the markers in a kernel's own code? Its table of them, read from its image (``kmods/marker/marker.h``)."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.artifacts.instructions import decoded
from orchestrator.artifacts.kernel_code import KernelCode

_BEGIN, _END = "__start_kernel_markers", "__stop_kernel_markers"
_WORDS = 4
"""Of a ``struct marker_site``: the marker, and three places in the code."""
_LONGEST = 256
"""Bytes that are looked at for the end of a marker's call."""
_BEHIND_CALL = frozenset({"mov", "dec", "jne", "call"})
"""What follows a call and is its own: registers that it has changed, and preempt_enable()."""


def marker_code(code: KernelCode) -> Sequence[range]:
    """The addresses of the markers' own code: of each the load, test and branch, and the call while a probe is there.

    None where the kernel has no markers.
    """
    start, end = code.address(_BEGIN), code.address(_END)
    if start is None or end is None:
        return ()
    sites = [_site(code, address) for address in range(start, end, _WORDS * code.word)]
    calls = {taken: _end_of_call(code, taken) for _, _, taken in sites}
    return [*(range(load, passed) for load, passed, _ in sites), *(range(*call) for call in calls.items())]


def _site(code: KernelCode, address: int) -> tuple[int, int, int]:
    """Where a marker begins, where the code goes on without a probe, and where it goes with one."""
    load, passed, taken = (code.number(address + word * code.word) or 0 for word in range(1, _WORDS))
    return load, passed, taken


def _end_of_call(code: KernelCode, start: int) -> int:
    """Behind the jump that leads back from the call, or behind the call where another way leads on from there.

    A compiler may put a copy of what follows the marker behind its call: that is the function's own.
    """
    end = None
    for one in decoded(code.read(start, _LONGEST), start, code.word):
        if end is None:
            end = one.end if one.name == "call" else None
        elif one.name == "jmp":
            return one.end
        elif one.name not in _BEHIND_CALL:
            break
    return start if end is None else end
