# SPDX-License-Identifier: GPL-2.0-only
"""Is it known whether the place alone, or something else, keeps the kernel from putting a jump there?"""

from __future__ import annotations

import pytest
from guest_with_files import guest_with

from orchestrator.probes.evidence import KPROBES_LIST
from orchestrator.probes.final_form import OPTIMISATION
from orchestrator.probes.placement import why_not_optimised
from orchestrator.probes.point import ProbePoint

POINT = ProbePoint("probed", 0x12, 0xC1000012, bytes(16))


def why(switch: str = "1", listing: str = "") -> str | None:
    return why_not_optimised(guest_with({OPTIMISATION: f"{switch}\n".encode(), KPROBES_LIST: listing.encode()}), POINT)


def test_the_switch_comes_first() -> None:
    assert str(why("0")).endswith("/proc/sys/debug/kprobes-optimization is 0")


@pytest.mark.parametrize(("behind", "is_near"), [(-1, False), (0, False), (1, True), (4, True), (5, False)])
def test_another_kprobe_under_the_jump(behind: int, is_near: bool) -> None:
    said = why(listing=f"{POINT.address + behind:08x}  k  another+0x1    [DISABLED]\n")
    assert said == ("another kprobe is under the jump, at another+0x1" if is_near else None)
