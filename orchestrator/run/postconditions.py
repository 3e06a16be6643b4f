# SPDX-License-Identifier: GPL-2.0-only
"""What a guest must still be after a cell was measured in it."""

from __future__ import annotations

from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.guest.taint import taint_mask
from orchestrator.probes.evidence import check_taint
from orchestrator.run.guest_checks import CLOCKSOURCE, read_clocksource


def check_clocksource(guest: Guest) -> None:
    """Raise EvidenceError unless the guest is on the clocksource that it was measured on."""
    clocksource = read_clocksource(guest)
    if clocksource != CLOCKSOURCE:
        raise EvidenceError(f"the guest's clocksource changed from {CLOCKSOURCE} to {clocksource}")


def permitted_taint(guest: Guest) -> int:
    """The kernel's taint mask. Raises EvidenceError for any but that of loading our own module, GuestError for none."""
    taint = taint_mask(guest)
    check_taint(taint)
    return taint
