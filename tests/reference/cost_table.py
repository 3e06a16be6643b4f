# SPDX-License-Identifier: GPL-2.0-only
"""The page of cost tables, which users may write for modelled times."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from orchestrator.catalog import cost_table

from .attributes import attribute_docs
from .markdown import fenced, filled, inline, listed
from .markdown import page as whole_page
from .schemas import sections_to_write

_MODELS: Mapping[str, type[BaseModel]] = {
    "Cost table": cost_table.CostTable,
    "Constant": cost_table.Constant,
    "Declaration": cost_table.Declaration,
    "Exclusion": cost_table.Exclusion,
    "Fitted": cost_table.Fitted,
    "Calibration cell": cost_table.CalibrationCell,
    "Fitted cost": cost_table.FittedCost,
}
_EXAMPLE = """\
cpu: pentium4
mhz: {value: 3060, low: 3060, high: 3060, source: published, where: "djprobe-2005, 4.2: Pentium4 3.06GHz"}
constants:
  popf: {value: 52, low: 40, high: 60, source: unverified, where: "remembered of A. Fog, Instruction tables"}
declared:
  date: "2026-11-22"
  fit: [instruction, trap]
  calibration: {djprobe-2005/list5: [kprobe, jprobe, djprobe]}
  kernels: {djprobe-2005/list5: lab-i386-up}
  validation: {djprobe-2005/list12: [kprobe, jprobe, djprobe, lkst]}
  exclusions: []
  remarks: []
"""


def page() -> str:
    """All keys of a cost table."""
    return whole_page(
        "Cost tables",
        [
            filled(
                """What a CPU takes for what calls execute, as a YAML file. [Modelled time](../modelled-time.md) says
                how one is made and judged; `./lab model show CPU --format yaml` prints one to begin with."""
            ),
            fenced(_EXAMPLE, "yaml"),
            filled(f"{listed(cost_table.INPUTS)}: {inline(attribute_docs(cost_table)['Input'])}"),
            *sections_to_write(_MODELS),
        ],
    )
