# SPDX-License-Identifier: GPL-2.0-only
"""Sentences that several kinds' tables share."""

from __future__ import annotations

from orchestrator.catalog.probes import BASELINE
from orchestrator.report.figures import figure
from orchestrator.report.panel import Panel
from orchestrator.results.contract import CellRecord

INDICATION = "an indication only"


def processors(cell: CellRecord) -> str:
    """Return how many processors the guest had."""
    return "1 CPU" if cell.smp == 1 else f"{cell.smp} CPUs"


def unit_meaning(panel: Panel) -> str:
    """Return the sentence that explains what the panel's unit means."""
    if panel.first.clock == "instructions":
        return "Instructions are a count, not time."
    if panel.emulated:
        return (
            f"Nanoseconds of the guest's clock in QEMU's emulator (TCG) are {INDICATION}: "
            "they are times of the emulator on this host, not of the processor."
        )
    return "Nanoseconds of the guest's clock, on this host's processor."


def other_kernel(panel: Panel, cell: CellRecord) -> str | None:
    """Return the remark on a valid cell that was measured on another kernel than the panel's; None for any other."""
    if not panel.elsewhere(cell) or cell.status != "ok":
        return None
    if cell.probe == BASELINE:
        return f"of {cell.kernel}, for the probes measured there"
    own = next(
        (one for one in panel.cells if one.kernel == cell.kernel and one.probe == BASELINE and one.value is not None),
        None,
    )
    against = f", against that kernel's own baseline of {figure(own.value, own.unit)}" if own else ""
    return f"measured on {cell.kernel}{against}"
