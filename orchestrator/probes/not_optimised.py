# SPDX-License-Identifier: GPL-2.0-only
"""What keeps the kernel from putting a jump in place of a kprobe's int3, besides the place itself."""

from __future__ import annotations

import re

from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value
from orchestrator.probes.evidence import JUMP_BYTES, KPROBES_LIST
from orchestrator.probes.optimiser import OPTIMISATION
from orchestrator.probes.point import ProbePoint

_LISTED = re.compile(r"^([0-9a-f]{8,16}) +[krj] +(\S{1,200})", re.MULTILINE)


def why_not_optimised(guest: Guest, point: ProbePoint) -> str | None:
    """What keeps the kernel from optimising a kprobe at a point just now; None where it can only be the place."""
    if kernel_value(guest, OPTIMISATION) == "0":
        return f"the kernel's optimisation of kprobes is switched off: {OPTIMISATION} is 0"
    listing = guest.get(KPROBES_LIST).decode("ascii", errors="replace")
    for address, name in _LISTED.findall(listing):
        # arch_check_optimized_kprobe() of arch/x86/kernel/kprobes/opt.c
        if 0 < int(address, 16) - point.address < JUMP_BYTES:
            return f"another kprobe is under the jump, at {name}"
    return None
