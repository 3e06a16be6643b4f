# SPDX-License-Identifier: GPL-2.0-only
"""Is the same place a function's entry by its kernel's image and by its code in a guest's memory?"""

from __future__ import annotations

import pytest

from orchestrator.probes.point import find_entry
from orchestrator.run.ready_guest import ReadyGuest

KERNEL = "lab-x86_64-smp-ibt-ftrace"

pytestmark = [
    pytest.mark.kernels(KERNEL),
    pytest.mark.guest(kernel=KERNEL, cpu="xeon-e5410", timing="instructions"),
]


@pytest.mark.parametrize(
    ("symbol", "offset"),
    [
        ("__x64_sys_getppid", 9),  # the table of system calls is jumped through
        ("vfs_read", 9),  # nothing jumps to it, so the kernel seals its endbr
        ("perf_group_attach", 5),  # static and only called: no endbr
        ("exc_int3", 4),  # noinstr: not traced
        ("get_total_entries", 0),  # neither
    ],
)
def test_the_image_and_the_memory_agree(ready: ReadyGuest, symbol: str, offset: int) -> None:
    assert ready.artifacts.kernel.entry_offset(symbol) == offset
    assert find_entry(ready.guest, ready.symbols, symbol, offset).is_entry
