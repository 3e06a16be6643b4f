# SPDX-License-Identifier: GPL-2.0-only
"""What is said of every table, whatever its layout: the conditions, how to read the numbers, exceptions."""

from __future__ import annotations

from orchestrator.catalog.probes import BASELINE
from orchestrator.report.figures import figure
from orchestrator.report.panels import Panel, benchmark_title
from orchestrator.results.contract import CellRecord

INDICATION = "an indication only"


def processors(cell: CellRecord) -> str:
    """Return how many processors the guest had."""
    return "1 CPU" if cell.smp == 1 else f"{cell.smp} CPUs"


def conditions(panel: Panel) -> str:
    """Return the line that says what the panel's cells share."""
    first = panel.first
    table = f"{first.table}: " if first.table else ""
    at = first.parameters.get("at")
    what = f"{benchmark_title(first)} at {at}, " if at else ""
    indication = f"; {INDICATION}" if panel.emulated else ""
    image, channel = first.parameters.get("image"), first.parameters.get("channel")
    where = (f"image {image}, " if image else "") + (f"channel {channel}, " if channel else "")
    return (
        f"{table}{first.cpu}, {processors(first)}, kernel {panel.kernel}, {where}handler {first.handler}, {what}"
        f"{first.metric} in {first.unit}{indication}"
    )


def caution(panel: Panel, *, compared: bool) -> list[str]:
    """Return the sentences on what the panel's unit means, also if ``compared`` with figures in another."""
    if panel.first.clock == "instructions":
        sentences = ["Instructions are a count, not time."]
        if compared:
            sentences.append("Ratios in two different units are not expected to agree.")
        return [" ".join(sentences)]
    if panel.emulated:
        return [
            f"Nanoseconds of the guest's clock in QEMU's emulator (TCG) are {INDICATION}: "
            "they tell of the emulator and this host, not of the processor."
        ]
    return ["Nanoseconds of the guest's clock, on this host's processor."]


def other_kernel(panel: Panel, cell: CellRecord) -> str | None:
    """Return what a reader has to know of a cell that was measured on another kernel than the panel's."""
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
