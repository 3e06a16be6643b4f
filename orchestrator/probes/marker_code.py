# SPDX-License-Identifier: GPL-2.0-only
"""The markers in a kernel's own code, from the table in its image (``kmods/marker/marker.h``)."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.machine_code import decoded

_BEGIN, _END = "__start_kernel_markers", "__stop_kernel_markers"


_WORDS = 4
"""Words of a ``struct marker_site``: the marker, and three places in the code."""


_LONGEST = 256
"""Bytes to search for the end of a marker's call."""


_BEHIND_CALL = frozenset({"mov", "dec", "jne", "call"})
"""Instructions after a call that belong to it: reloading changed registers, and preempt_enable()."""


def marker_code(code: KernelCode) -> Sequence[range]:
    """The address ranges of the markers' own code: the load, test and branch, and the call made while probed.

    Empty if the kernel has no markers.
    """
    start, end = code.address(_BEGIN), code.address(_END)
    if start is None or end is None:
        return ()
    words = [code.number(address) or 0 for address in range(start, end, code.word)]
    # Where a marker begins, where the code continues without a probe, and where it goes with one.
    loads, passed, taken = (words[word::_WORDS] for word in range(1, _WORDS))
    calls = {call: _end_of_call(code, call) for call in taken}
    return [*map(range, loads, passed), *(range(*call) for call in calls.items())]


def _end_of_call(code: KernelCode, start: int) -> int:
    """The end of the jump back from the call, or of the call if it continues another way.

    A compiler may put a copy of the code after the marker behind its call: that belongs to the function.
    """
    end = None
    for instruction in decoded(code.read(start, _LONGEST), start, code.word):
        if end is None:
            end = instruction.end if instruction.name == "call" else None
        elif instruction.name == "jmp":
            return instruction.end
        elif instruction.name not in _BEHIND_CALL:
            break
    return start if end is None else end
