# SPDX-License-Identifier: GPL-2.0-only
"""The instructions that were the instrumentation's own, beside a whole system's total and its A/A difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.benchmarks.system.report.comparison import parameter, percent, row_title
from orchestrator.program import PROGRAM
from orchestrator.report.figures import NOTHING, number
from orchestrator.report.panel import Panel
from orchestrator.results.contract import CellRecord

HEADINGS = ("own", "own, %")
_OWN = "instrumentation"
_TRAPS = ("int3",)


def is_counted(panel: Panel) -> bool:
    """Whether a cell's profile has counted it."""
    return any(parameter(cell, _OWN) is not None for cell in panel.cells)


def figures(cell: CellRecord) -> Sequence[str]:
    """Its instructions of the middle run, and their share of the run."""
    own = parameter(cell, _OWN)
    if own is None:
        return (NOTHING, NOTHING)
    return number(own), f"{100 * own / cell.value:.4f}" if own and cell.value else ""


def sentences(panel: Panel) -> Iterator[str]:
    """What it is, and how it compares with what a difference has to exceed."""
    if not is_counted(panel):
        return
    yield (
        "Own: the instrumentation's own instructions of a run, executed in the kernel's markers, in the module beside "
        "the work, in code made for its probes, and at probe points. QEMU counted each one."
    )
    for cell in panel.cells:
        own, smallest = parameter(cell, _OWN), parameter(cell, "resolvable")
        if not own:
            continue
        least, most = (number(parameter(cell, f"{_OWN}_{end}") or own) for end in ("least", "most"))
        bound = percent(cell, smallest)
        against = "" if bound is None else f", where a difference of totals has to exceed {bound:.4f} %"
        share = 100 * own / cell.value if cell.value else 0
        yield f"Own of {row_title(panel, cell)}: {least} to {most} in the runs, {share:.4f} %{against}."
    if any(cell.work is not None and cell.work.mechanism in _TRAPS for cell in panel.cells):
        yield f"What the kernel itself executes for a breakpoint is not in it: {PROGRAM} profile has that by symbol."
