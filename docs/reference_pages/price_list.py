# SPDX-License-Identifier: GPL-2.0-only
"""The page of price lists, which users may write for modelled times."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from orchestrator.attribute_docs import attribute_docs
from orchestrator.catalog import price_list

from .markdown import fenced, filled, inline, listed
from .markdown import page as whole_page
from .schemas import sections_to_write

_MODELS: Mapping[str, type[BaseModel]] = {
    "Price list": price_list.PriceList,
    "Constant": price_list.Constant,
    "Declaration": price_list.Declaration,
    "Exclusion": price_list.Exclusion,
    "Fitted": price_list.Fitted,
    "Calibration cell": price_list.CalibrationCell,
    "Fitted price": price_list.FittedPrice,
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
    """All keys of a price list."""
    return whole_page(
        "Price lists",
        [
            filled(
                """What a CPU takes for what calls execute, as a YAML file. [Modelled time](../modelled-time.md) says
                how one is made and judged; `./lab model show CPU --format yaml` prints one to begin with."""
            ),
            fenced(_EXAMPLE, "yaml"),
            filled(f"{listed(price_list.INPUTS)}: {inline(attribute_docs(price_list)['Input'])}"),
            *sections_to_write(_MODELS),
        ],
    )
