# SPDX-License-Identifier: GPL-2.0-only
"""A table's figures, measured or published, in the form that claims are computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator.catalog.probes import BASELINE, probes
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.report.evidence import traps_per_hit
from orchestrator.report.panel import Panel
from orchestrator.results.contract import CellRecord
from orchestrator.results.modelled import ModelledCell

PLAIN, EXTRA = "probe_bytes_plain", "probe_bytes_extra"
"""Parameters of an optimised probe's cell: bytes of a probe that is not, and how many more it takes."""

_Fact = TypeVar("_Fact")


@dataclass(frozen=True)
class Facts:
    """By kind of probe: overhead, breakpoint traps a hit, size to that of a plain probe, bytes more than it, mechanism.

    ``undecided`` are the probes whose overhead the host's drift hides, ``bands`` those of modelled overheads.
    """

    overheads: Mapping[str, float]
    traps: Mapping[str, float]
    sizes: Mapping[str, float]
    extra_bytes: Mapping[str, int]
    mechanisms: Mapping[str, str] = field(default_factory=dict)
    undecided: frozenset[str] = frozenset()
    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def measured_facts(panel: Panel) -> Facts:
    """Return the figures of the panel's valid cells."""
    cells = {cell.probe: cell for cell in panel.cells if cell.status == "ok" and cell.probe != BASELINE}
    return Facts(
        overheads=_known(cells, lambda cell: cell.overhead),
        traps=_known(cells, traps_per_hit),
        sizes=_known(cells, _size),
        extra_bytes=_known(cells, lambda cell: _bytes(cell, EXTRA)),
        mechanisms=_known(cells, lambda cell: cell.evidence.mechanism if cell.evidence else None),
        undecided=frozenset(probe for probe, cell in cells.items() if cell.verdict == "none"),
    )


def modelled_facts(cells: Sequence[ModelledCell]) -> Facts:
    """Return the modelled times of cells, in nanoseconds."""
    return Facts(
        overheads={cell.probe: cell.overhead for cell in cells if cell.overhead is not None},
        traps={},
        sizes={},
        extra_bytes={},
        bands={cell.probe: cell.interval for cell in cells if cell.interval is not None},
    )


def published_facts(table: ReferenceTable) -> Facts:
    """Return the document's figures."""
    names = {kind.column: kind.name for kind in probes().values() if kind.column is not None}
    return Facts(
        overheads={names[column]: table.overhead(column) for column in table.columns if column in names},
        traps={names[column]: count for column, count in table.int3_per_hit.items()},
        sizes={names[column]: ratio for column, ratio in table.size_ratio.items()},
        extra_bytes={names[column]: count for column, count in table.extra_bytes.items()},
    )


def _known(cells: Mapping[str, CellRecord], fact: Callable[[CellRecord], _Fact | None]) -> dict[str, _Fact]:
    return {probe: value for probe, cell in cells.items() if (value := fact(cell)) is not None}


def _size(cell: CellRecord) -> float | None:
    plain, extra = _bytes(cell, PLAIN), _bytes(cell, EXTRA)
    return (plain + extra) / plain if plain and extra is not None else None


def _bytes(cell: CellRecord, name: str) -> int | None:
    value = cell.parameters.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
