# SPDX-License-Identifier: GPL-2.0-only
"""The page of the result contract: what ``report --format json`` prints."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from orchestrator.results.contract import (
    CellRecord,
    Evidence,
    ExecutedClasses,
    ProfileEvidence,
    ProgramRuns,
    ReferenceValue,
    RunPart,
    RunRecord,
    SwitchedBranch,
    TextEvidence,
    WorkEvidence,
)

from .markdown import fenced, filled
from .markdown import page as whole_page
from .schemas import sections_to_read

_MODELS: Mapping[str, type[BaseModel]] = {
    "Run": RunRecord,
    "Cell": CellRecord,
    "Evidence of a probe": Evidence,
    "Evidence of a whole system's work": WorkEvidence,
    "A program of a tool": ProgramRuns,
    "Evidence of the kernel's text": TextEvidence,
    "A switched branch": SwitchedBranch,
    "Evidence of a profile": ProfileEvidence,
    "A part of a program's run": RunPart,
    "What calls executed": ExecutedClasses,
    "Published figures": ReferenceValue,
}


def page() -> str:
    """All keys of a run's JSON."""
    return whole_page(
        "The result contract",
        [
            filled(
                """`./lab report RUN --format json` prints a run as one object, and each run's directory has it as
                `results.json`. [Reports](../reports.md#json) says what its version promises,
                [parameters](../reports.md#parameters-of-calls) what cells of calls have in `parameters`."""
            ),
            fenced("./lab report latest --format json\n./lab report --schema", "sh"),
            *sections_to_read(_MODELS),
        ],
    )
