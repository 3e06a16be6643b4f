# SPDX-License-Identifier: GPL-2.0-only
"""Is it seen in what bpftrace prints that a hit's events were lost?"""

from __future__ import annotations

import pytest

from orchestrator.errors import EvidenceError
from orchestrator.probes.bpftrace import check_all_kept


@pytest.mark.parametrize("printed", [b"Lost 5 events\n", b"Attaching 1 probe...\n123 123 Lost 12 events\n123 "])
def test_lost_events_fail_the_cell(printed: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"^bpftrace's buffer had no room .*: Lost (5|12) events") as raised:
        check_all_kept(printed)
    assert "fewer calls" in raised.value.hint


def test_output_that_fills_its_file_is_not_believed() -> None:
    with pytest.raises(EvidenceError, match=r"^bpftrace printed more than 8 MB$"):
        check_all_kept(b"x" * (8 << 20))


def test_what_was_kept_is_fine() -> None:
    check_all_kept(b"Attaching 1 probe...\n\n@[workload]: 1000\n")
