# SPDX-License-Identifier: GPL-2.0-only
"""List 15 of the djprobe document: the capabilities of each probe. The document's text is above the measured result."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from operator import attrgetter

from orchestrator.benchmarks.calls.benchmarks import SHOWN_FOR, capability_grants, capability_list
from orchestrator.benchmarks.calls.tables.layout import Layout, probed, purpose_sentences
from orchestrator.report.columns import Columns, Figure, columns_of
from orchestrator.report.figures import NOTHING
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Row
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import (
    CellGroup,
    processors,
)
from orchestrator.results.contract import CellRecord

CAPABILITIES_TITLE = "List 15 Probes' function"


_probe = attrgetter("probe")


def shows_capabilities(group: CellGroup) -> bool:
    """Whether all probes of the group verify capabilities."""
    cells = probed(group)
    return bool(cells) and all(cell.probe in capability_grants() for cell in cells)


def capability_sheet(group: CellGroup) -> Sheet:
    """A row for each capability, a column for each probe."""
    cells = probed(group)
    layout, first, deviating = Layout([cells], _probe), group.first, deviations(cells)
    columns = Columns(columns_of(SHOWN_FOR, str), together=len(SHOWN_FOR))
    blocks = _capability_blocks(columns, {cell.probe: cell for cell in cells}, layout.footnotes)
    return layout.sheet(
        CAPABILITIES_TITLE,
        [f"{first.cpu}, {processors(first)}, kernel {group.kernel}"],
        columns.grid(*blocks),
        [
            capability_list().footnote,
            "yes 1000/1000: in 1000 of 1000 calls the handler saw what it must see; "
            "no 1000/1000: in 1000 of 1000 calls it saw that these registers were not saved.",
            *_places(cells),
            "Published: djprobe-2005, section 7.",
            *([] if deviating is None else [deviating]),
            *purpose_sentences(cells, _probe),
        ],
    )


def _capability_blocks(
    columns: Columns[Figure[str]], cells: Mapping[str, CellRecord], footnotes: Footnotes
) -> Iterator[Sequence[Row]]:
    for key, row in capability_list().rows.items():
        # The document's text takes as many rows as it has lines.
        texts = [textwrap.wrap(text, 16) for text in (row.title, *(row.published.get(p, NOTHING) for p in SHOWN_FOR))]
        block = [columns.texts(label, words, "bold") for label, *words in zip_longest(*texts, fillvalue="")]
        for name, capability in capability_list().capabilities.items():
            if capability.row == key:
                block.append(columns.row(f"  {capability.title}", _shown(name, cells, footnotes)))
        yield block


def _shown(name: str, cells: Mapping[str, CellRecord], footnotes: Footnotes) -> Figure[str]:
    return lambda probe: _capability(cells.get(f"{probe}.{name}"), footnotes)


def _capability(cell: CellRecord | None, footnotes: Footnotes) -> str:
    if cell is None:
        return NOTHING
    has = _has(cell)
    if has is None:
        text: str = cell.status
    elif cell.evidence is None:
        text = "no"
    else:
        text = f"{'yes' if has else 'no'} {cell.evidence.hits}/{cell.evidence.calls}"
    return text + footnotes.marks(cell)


def _has(cell: CellRecord) -> bool | None:
    """Whether the probe showed the capability; None where that is unknown."""
    *_, grant = capability_grants()[cell.probe]
    if cell.status == "ok":
        # Where the document grants nothing, the handler counts the hits in which the capability was missing.
        return grant.grants or grant.shown == "refusal"
    return False if cell.status == "unsupported" and grant.shown == "refusal" else None


def deviations(cells: Sequence[CellRecord]) -> str | None:
    """A sentence on how the results differ from the document; None where they agree and some are unknown."""
    wrong = []
    for cell in cells:
        probe, capability, grant = capability_grants()[cell.probe]
        if _has(cell) not in (None, grant.grants):
            wrong.append(f"{probe}: {capability.title}")
    if wrong:
        return f"Different from the document: {', '.join(wrong)}."
    complete = all(_has(cell) is not None for cell in cells) and len(cells) == len(capability_grants())
    return "All results agree with the document." if complete else None


def _places(cells: Sequence[CellRecord]) -> Iterator[str]:
    for cell in cells:
        facts = cell.parameters
        if "places" in facts:
            yield (
                f"{cell.probe}: probes at {facts['places_taken']} of the function's {facts['places']} instructions "
                "at once."
            )
        if "sampled" in facts:
            yield (
                f"{cell.probe}: {facts['sampled_taken']} of the {facts['sampled']} instructions of "
                f"{facts['sampled_functions']} functions from all over the kernel took a probe; "
                "kprobes refuse the rest."
            )
