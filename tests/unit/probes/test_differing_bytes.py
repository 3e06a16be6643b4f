# SPDX-License-Identifier: GPL-2.0-only
"""Are all bytes found in which two texts differ, and no others?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probes.kernel_text import differing

SIZE = 3 * 4096 + 7


@given(st.sets(st.integers(0, SIZE - 1)), st.integers(1, 255))
def test_runs_are_the_bytes_that_differ(places: set[int], change: int) -> None:
    before = bytes(index % 251 for index in range(SIZE))
    after = bytearray(before)
    for place in places:
        after[place] ^= change
    found = list(differing(before, bytes(after)))
    assert [at for first, end in found for at in range(first, end)] == sorted(places)
    assert all(first < end for first, end in found)
