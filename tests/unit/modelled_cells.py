# SPDX-License-Identifier: GPL-2.0-only
"""What real guests counted for the published tables, and modelled times of it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml
from record_builders import any_evidence, run, table_cell

from orchestrator.catalog.price_list import Input
from orchestrator.model.modelled_run import catalogue_prices, modelled_cell, used_prices, why_no_time
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.modelled import ModelledCell, ModelledRun

COUNTED: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("modelled_counts.yaml").read_text())
KERNELS = {
    "list4": "lab-i386-smp",
    "list11": "lab-i386-smp-hook",
    "list12": "lab-i386-up-hook",
    "list13": "lab-i386-up-hook",
    "list14": "lab-i386-up-hook",
    "x86-32": "lab-i386-smp",
    "x86-64": "lab-x86_64-smp",
    **dict.fromkeys(("trap-nop", "trap-push", "trap-ret", "freelist"), "debian-amd64"),
    **dict.fromkeys(("syscall-nop", "syscall-push", "syscall-ret", "objpool"), "debian-amd64@6.12"),
}
SHA = "5e" * 32
BASE = 360


def counted(table: str) -> dict[str, dict[Input, int]]:
    """What each probe of a table adds to a call."""
    found: dict[str, dict[Input, int]] = COUNTED[table]["probes"]
    return found


def record(table: str, probe: str) -> CellRecord:
    """The exact cell of a probe, or of none, with the digest of a profile."""
    about = COUNTED[table]
    counts = counted(table).get(probe, {})
    # The returns of traps and system calls are instructions of their own; others are none, or have been counted.
    more = sum(counts.values()) + counts.get("trap", 0) + counts.get("system call", 0)  # of a single step only the iret
    more -= counts.get("recorded line", 0) + counts.get("mispredicted return", 0)
    int3 = counts.get("trap", 0)
    calls = 1000
    return table_cell(
        about["reference"],
        probe,
        BASE + more,
        BASE,
        cpu=about["cpu"],
        kernel=KERNELS.get(table, "lab-i386-up"),
        handler=about["handler"],
        evidence=any_evidence(probe) | {"int3": int3 * calls, "calls": calls, "hits": 0 if probe == "none" else calls},
        profile={"sha256": SHA, "calls": 500, "instructions": 500 * (BASE + more), "int3": 500 * int3},
    )


def modelled_table(table: str) -> tuple[list[CellRecord], list[ModelledCell]]:
    """A table's exact cells, and the modelled ones of its probes."""
    baseline = record(table, "none")
    probed = [record(table, probe) for probe in counted(table)]
    prices = catalogue_prices()[COUNTED[table]["cpu"]]
    names = ("id", "table", "cpu", "kernel", "probe", "handler", "benchmark")
    times = []
    for cell in probed:
        counts = {name: Fraction(one) for name, one in counted(table)[cell.probe].items()}
        reason = prices.unusable or why_no_time(cell, counts, prices.prices.priced)
        without = {name: getattr(cell, name) for name in names} | {"reason": reason}
        is_timed = reason is None
        times.append(
            modelled_cell(cell, baseline.id, counts, prices) if is_timed else ModelledCell.model_validate(without)
        )
    return [baseline, *probed], times


def modelled_tables(*tables: str) -> tuple[RunRecord, ModelledRun]:
    """A run of these tables, and its modelled times."""
    both = [modelled_table(table) for table in tables]
    cells = run(*(cell for exact, _ in both for cell in exact))
    modelled = tuple(cell for _, times in both for cell in times)
    prices = used_prices(modelled, catalogue_prices())
    return cells, ModelledRun(run=cells.run, experiment=cells.experiment, costs=prices, cells=modelled)


def apart(
    times: Mapping[str, float], bands: Mapping[str, tuple[float, float]]
) -> dict[str, dict[str, tuple[float, float]]]:
    """The ranges of times that vary independently of each other within these bands."""
    return {name: {name: (low - times[name], high - times[name])} for name, (low, high) in bands.items()}
