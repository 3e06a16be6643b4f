# SPDX-License-Identifier: GPL-2.0-only
"""Is it seen in what bpftrace prints that a hit's events were lost, and does one that is busy have an end?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from orchestrator.errors import EvidenceError, GuestHang
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.probes.bpf_attachment import _Process, check_all_kept


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


class Busy:
    """A guest whose bpftrace works for ever."""

    ticks = 0

    def succeed(self, argv: Sequence[str], *, time_limit: float = 0.0) -> CommandResult:
        return CommandResult(tuple(argv), 0, b"7\n", b"")

    def run(self, argv: Sequence[str]) -> CommandResult:
        self.ticks += 1
        state = f"running\n7 (bpftrace) R {'0 ' * 10}{self.ticks} 0 \n"
        return CommandResult(tuple(argv), 0, state.encode(), b"")


@pytest.mark.parametrize("pauses", [0, 3])
def test_a_busy_one_liner_has_the_time_of_its_cell(pauses: int) -> None:
    left = [1.0] * pauses

    def time_left() -> float:
        if not left:
            raise GuestHang("the cell's time limit of 4 s is over")
        return left.pop()

    guest = Busy()
    with pytest.raises(GuestHang, match="the cell's time limit"):
        _Process(cast(Guest, guest), "BEGIN { while (1) { } }", time_left).attach()
    assert guest.ticks == pauses + 1
