# SPDX-License-Identifier: GPL-2.0-only
"""Is it known whether the place alone, or something else, keeps the kernel from putting a jump there?"""

from __future__ import annotations

from typing import cast

import pytest

from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import KPROBES_LIST
from orchestrator.probes.placement import why_not_optimised
from orchestrator.probes.point import ProbePoint

POINT = ProbePoint("probed", 0x12, 0xC1000012, bytes(16))


class Settled:
    """A guest with this switch and these kprobes."""

    def __init__(self, switch: str = "1", listing: str = "") -> None:
        self.switch, self.listing = switch, listing

    def get(self, source: str, **_: object) -> bytes:
        return (self.listing if source == KPROBES_LIST else f"{self.switch}\n").encode()


def why(guest: Settled) -> str | None:
    return why_not_optimised(cast(Guest, guest), POINT)


def test_the_switch_comes_first() -> None:
    assert str(why(Settled("0"))).endswith("/proc/sys/debug/kprobes-optimization is 0")


@pytest.mark.parametrize(("behind", "is_near"), [(-1, False), (0, False), (1, True), (4, True), (5, False)])
def test_another_kprobe_under_the_jump(behind: int, is_near: bool) -> None:
    said = why(Settled(listing=f"{POINT.address + behind:08x}  k  another+0x1    [DISABLED]\n"))
    assert said == ("another kprobe is under the jump, at another+0x1" if is_near else None)
