# SPDX-License-Identifier: GPL-2.0-only
"""List 15 of the djprobe document: the capabilities of each probe, the document's text above the measured result."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from orchestrator.benchmarks.calls.capabilities import SHOWN_FOR, ListRow, capability_list, capability_names
from orchestrator.benchmarks.calls.report.purpose_rows import purpose_sentences
from orchestrator.benchmarks.calls.report.wording import outcomes
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.evidence import proof_lists
from orchestrator.report.figures import NOTHING
from orchestrator.report.findings import Finding, Rank
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panel import Panel
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import processors
from orchestrator.results.contract import CellRecord

TITLE = "List 15 Probes' function"
_WIDTH = 16
_DIFFERENT = "Different from the document"


def shows_capabilities(panel: Panel) -> bool:
    """Whether the panel has probes, and all of them are List 15's."""
    probed = [cell.probe for cell in panel.cells if cell.probe != BASELINE]
    return bool(probed) and all(probe in capability_names() for probe in probed)


def capability_sheet(panel: Panel) -> Sheet:
    """Return a panel that shows capabilities as List 15."""
    cells = [cell for cell in panel.cells if cell.probe != BASELINE]
    footnotes = Footnotes(cells, _name, lambda _: None)
    first, returned = panel.first, outcomes(cells, _name)
    return Sheet(
        title=TITLE,
        facts=[f"{first.cpu}, {processors(first)}, kernel {panel.kernel}", *returned.failing],
        grid=Grid(SHOWN_FOR, list(_blocks({cell.probe: cell for cell in cells}, footnotes)), together=len(SHOWN_FOR)),
        sentences=[
            capability_list().footnote,
            "yes 1000/1000: in 1000 of 1000 calls the handler saw what it must see; "
            "no 1000/1000: in 1000 of 1000 calls it saw that these registers were not saved.",
            *_places(cells),
            "Published: djprobe-2005, section 7.",
            *_deviations(cells),
            *purpose_sentences(cells, _name),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=proof_lists(cells, _name),
    )


def capability_findings(panel: Panel) -> Iterator[Finding]:
    """Whether all results agree with the document, or which do not."""
    for sentence in _deviations([cell for cell in panel.cells if cell.probe != BASELINE]):
        rank = Rank.CONTRADICTED if sentence.startswith(_DIFFERENT) else Rank.PUBLISHED
        yield Finding(rank, f"{TITLE}: {sentence}")


def _blocks(cells: Mapping[str, CellRecord], footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    for key, row in capability_list().rows.items():
        block = [*_words(row)]
        for name, capability in capability_list().capabilities.items():
            if capability.row == key:
                shown = [_shown(cells.get(f"{probe}.{name}"), footnotes) for probe in SHOWN_FOR]
                block.append(Row(f"  {capability.title}", shown))
        yield block


def _words(row: ListRow) -> Iterator[Row]:
    """The document's text, in as many rows as it has lines."""
    columns = [textwrap.wrap(row.published.get(probe, NOTHING), _WIDTH) for probe in SHOWN_FOR]
    labels = textwrap.wrap(row.title, _WIDTH)
    for label, *words in zip_longest(labels, *columns, fillvalue=""):
        yield Row(label, words, style="bold")


def _shown(cell: CellRecord | None, footnotes: Footnotes) -> str:
    """The measured result for a capability, in a word or two."""
    if cell is None:
        return NOTHING
    marks = footnotes.marks(cell)
    has = _has(cell)
    if has is None:
        return f"{cell.status}{marks}"
    if cell.evidence is None:
        return f"no{marks}"
    return f"{'yes' if has else 'no'} {cell.evidence.hits}/{cell.evidence.calls}{marks}"


def _has(cell: CellRecord) -> bool | None:
    """Whether the probe showed the capability; None where that is unknown."""
    probe, name = capability_names()[cell.probe]
    grant = capability_list().capabilities[name].probes[probe]
    if cell.status == "ok":
        # Where the document grants nothing, the handler counts the hits in which the capability was missing.
        return grant.grants or grant.shown == "refusal"
    return False if cell.status == "unsupported" and grant.shown == "refusal" else None


def _deviations(cells: Sequence[CellRecord]) -> list[str]:
    """The sentence that lists deviations from the document, or states that there are none."""
    wrong = []
    for cell in cells:
        probe, name = capability_names()[cell.probe]
        capability = capability_list().capabilities[name]
        has = _has(cell)
        if has is not None and has != capability.probes[probe].grants:
            wrong.append(f"{probe}: {capability.title}")
    if wrong:
        return [f"{_DIFFERENT}: {', '.join(wrong)}."]
    complete = all(_has(cell) is not None for cell in cells) and len(cells) == len(capability_names())
    return ["All results agree with the document."] if complete else []


def _places(cells: Sequence[CellRecord]) -> list[str]:
    """What the document's "almost" excludes: instructions of the probed function, and of a sample of others."""
    sentences = []
    for cell in cells:
        found = cell.parameters
        if "places" in found:
            sentences.append(
                f"{cell.probe}: probes at {found['places_taken']} of the function's {found['places']} instructions "
                "at once."
            )
        if "sampled" in found:
            sentences.append(
                f"{cell.probe}: {found['sampled_taken']} of the {found['sampled']} instructions of "
                f"{found['sampled_functions']} functions from all over the kernel took a probe; "
                "kprobes refuse the rest."
            )
    return sentences


def _name(cell: CellRecord) -> str:
    """The probe's name in the experiment: titles are for the table's rows."""
    return cell.probe
