# SPDX-License-Identifier: GPL-2.0-only
"""The parts of a printed table, in any format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.report.evidence import ProofList
from orchestrator.report.footnotes import Footnote
from orchestrator.report.grid import Grid


@dataclass(frozen=True)
class Sheet:
    """A table with its title, what it was measured on (``facts``), sentences on how to read it, and its evidence."""

    title: str
    facts: Sequence[str]
    grid: Grid
    sentences: Sequence[str]
    footnotes: Sequence[Footnote]
    proofs: Sequence[ProofList]
