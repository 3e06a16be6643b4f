# SPDX-License-Identifier: GPL-2.0-only
"""A table for all output formats: a grid with its title, facts, sentences, footnotes and evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.report.footnotes import Footnote
from orchestrator.report.grid import Grid
from orchestrator.report.proofs import ProofList


@dataclass(frozen=True)
class Sheet:
    """A table with its title, facts on the measurement, explanations (``sentences``), footnotes and evidence."""

    title: str
    facts: Sequence[str]
    grid: Grid
    sentences: Sequence[str]
    footnotes: Sequence[Footnote] = ()
    proofs: Sequence[ProofList] = ()


def shared_parts(names: Sequence[Sequence[str]]) -> Sequence[bool]:
    """For each part, whether it is equal in all names; empty if the names have different numbers of parts."""
    if len({len(name) for name in names}) != 1:
        return []
    return [len(set(column)) == 1 for column in zip(*names, strict=True)]
