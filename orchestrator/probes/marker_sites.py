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


def marker_code(code: KernelCode) -> Sequence[range]:
    """The addresses of the markers' own code: of each the load, test and branch, and the call while a probe is there.

    None where the kernel has no markers. A call ends with the first jump that has no condition: it leads back.
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
    instructions = decoded(code.read(start, _LONGEST), start, code.word)
    return next((one.end for one in instructions if one.name == "jmp"), start)
