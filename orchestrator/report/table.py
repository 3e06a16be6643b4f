# SPDX-License-Identifier: GPL-2.0-only
"""A run as tables in the layout of the documents it is compared with.

The 2005 document sets its lists as one column per probe with the unprobed kernel first, and a row for each sample,
the average and the overhead. The published figures stand below ours in the same columns, in their own unit.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.text import Text

from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE, probes
from orchestrator.catalog.reference import reference_tables
from orchestrator.report.grid import GAP, Grid, Row
from orchestrator.results.contract import CellRecord, Evidence, RunRecord
from orchestrator.results.statistics import ratio

NOTHING = "-"
_COMPARED_WITH = "djprobe"
_WIDEST_PROSE = 100
_SHOWN_BYTES = 5  # as long as a jump
_UNBROKEN = "\N{NO-BREAK SPACE}"
_AS_IN_THE_DOCUMENTS = {"ns": "nsec"}


def print_table(run: RunRecord, console: Console) -> None:
    """Print a run's tables, set for the console's width.

    They are plain text where the console has no colours, and plain ASCII where its encoding is not a Unicode one.
    """
    ascii_only = console.options.ascii_only
    for line in _lines(run, console.width, "-" if ascii_only else "─"):
        if ascii_only:
            line.plain = line.plain.encode("ascii", "replace").decode("ascii")
        # A line that is too long is left to the terminal: cutting it would lose figures.
        console.print(line, soft_wrap=True)


def number(value: float) -> str:
    """Return a measured figure: whole numbers whole, others with up to four decimals.

    Four are enough for a count shared between up to 10 000 calls. A figure that only rounds to a whole number keeps
    its zeros, so that it does not pass for one.
    """
    if value.is_integer():
        return str(int(value))
    text = f"{value:.4f}"
    return text if text.endswith(".0000") else text.rstrip("0")


def _lines(run: RunRecord, width: int, rule: str) -> Iterator[Text]:
    if not run.cells:
        yield Text("No cell of this run has an outcome yet.")
    tables: dict[tuple[object, ...], list[CellRecord]] = {}
    for cell in run.cells:
        key = (cell.cpu, cell.smp, cell.kernel, cell.benchmark, cell.metric, cell.handler, cell.clock, cell.unit)
        tables.setdefault(key, []).append(cell)
    for index, cells in enumerate(tables.values()):
        if index:
            yield Text("\n")
        yield from _table(cells, width, rule)


def _table(cells: Sequence[CellRecord], width: int, rule: str) -> Iterator[Text]:
    first = cells[0]
    prose = min(width, _WIDEST_PROSE)
    yield from _paragraph(f"Overhead of probes on {cpu(first.cpu).title}", prose, style="bold")
    cpus = "1 CPU" if first.smp == 1 else f"{first.smp} CPUs"
    yield from _paragraph(
        f"{first.cpu}, {cpus}, kernel {first.kernel}, handler {first.handler}, {first.metric} in {first.unit}",
        prose,
    )
    yield Text()
    published = list(dict.fromkeys(cell.reference.table for cell in cells if cell.reference))
    blocks = [_measured(cells), *(_published(cells, table) for table in published)]
    yield from Grid([_heading(cell) for cell in cells], blocks).lines(width, rule)
    yield Text()
    for table in published:
        yield from _paragraph(_source(table), prose)
    yield from _paragraph(_caution(first.unit, compared=bool(published)), prose)
    yield from _notes(cells, prose)
    yield from _evidence(cells, prose)


def _heading(cell: CellRecord) -> str:
    if cell.probe == BASELINE:
        return f"linux-{cell.parameters.get('kernel_release', cell.kernel)}"
    return _title(cell)


def _title(cell: CellRecord) -> str:
    kind = probes().get(cell.probe)
    return kind.title if kind else cell.probe


def _measured(cells: Sequence[CellRecord]) -> list[Row]:
    unit = _AS_IN_THE_DOCUMENTS.get(cells[0].unit, cells[0].unit)
    rows = [
        Row(
            f"{cells[0].benchmark}(sample{index + 1})",
            [number(cell.samples[index]) if index < len(cell.samples) else NOTHING for cell in cells],
        )
        for index in range(max(len(cell.samples) for cell in cells))
    ]
    marks = {cell.id: f"{cell.status} [{note}]" for note, cell in _noted(cells)}
    averages = [marks[cell.id] if cell.value is None else number(cell.value) for cell in cells]
    rows.append(Row(f"average({unit})", averages))
    rows += _overheads(cells, [cell.overhead for cell in cells], f"overhead({unit})", f"ratio to {_COMPARED_WITH}")
    return rows


def _published(cells: Sequence[CellRecord], table: str) -> list[Row]:
    references = [cell.reference if cell.reference and cell.reference.table == table else None for cell in cells]
    unit = next(reference.unit for reference in references if reference)
    unit = _AS_IN_THE_DOCUMENTS.get(unit, unit)
    averages = [number(reference.value) if reference else NOTHING for reference in references]
    overheads = [reference.overhead if reference else None for reference in references]
    return [
        Row(f"published average({unit})", averages),
        *_overheads(cells, overheads, f"published overhead({unit})", f"published ratio to {_COMPARED_WITH}"),
    ]


def _overheads(
    cells: Sequence[CellRecord], overheads: Sequence[float | None], label: str, ratio_label: str
) -> Iterator[Row]:
    yield Row(label, [NOTHING if overhead is None else number(overhead) for overhead in overheads], style="bold")
    base = next((o for cell, o in zip(cells, overheads, strict=True) if cell.probe == _COMPARED_WITH), None)
    if base is None or len(cells) == 1:
        return
    ratios = [
        None if overhead is None or cell.probe == BASELINE else ratio(overhead, base)
        for cell, overhead in zip(cells, overheads, strict=True)
    ]
    yield Row(ratio_label, [NOTHING if value is None else f"{value:.2f}" for value in ratios])


def _source(table_id: str) -> str:
    table = reference_tables().get(table_id)
    if table is None:  # a run of another version of this program
        return f"Published: {table_id}."
    return f"Published: {table.title} ({table.id}); linux-{table.kernel}, {table.processor}."


def _caution(unit: str, *, compared: bool) -> str:
    sentence = f"{unit.capitalize()} are a count, not time."
    return f"{sentence} Ratios in two different units are not expected to agree." if compared else sentence


def _evidence(cells: Iterable[CellRecord], width: int) -> Iterator[Text]:
    proved = [(cell, cell.evidence) for cell in cells if cell.status == "ok" and cell.evidence]
    titles = max((len(_title(cell)) for cell, _ in proved), default=0)
    mechanisms = max((len(evidence.mechanism) for _, evidence in proved), default=0)
    for (symbol, clocksource), group in groupby(proved, lambda pair: (pair[1].symbol, pair[1].clocksource)):
        yield Text()
        yield from _paragraph(f"Evidence at {symbol} (clocksource {clocksource})", width, style="bold")
        for cell, evidence in group:
            start = f"  {_title(cell):{titles}}{GAP}{evidence.mechanism:{mechanisms}}{GAP}"
            facts = f"{_bytes(evidence.probe_bytes)}{GAP}{_proof(evidence)}"
            yield from _paragraph(start + facts, width, hanging=" " * len(start))


def _bytes(digits: str) -> str:
    return bytes.fromhex(digits)[:_SHOWN_BYTES].hex(" ")


def _proof(evidence: Evidence) -> str:
    if evidence.mechanism == "none":
        return f"no probe, {evidence.calls} calls"
    facts = [f"{evidence.hits} hits = {evidence.calls} calls"]
    if evidence.int3:
        facts.append(f"{number(evidence.int3 / evidence.hits)} int3 a hit")
    facts.append("bytes restored")
    if evidence.detour:
        facts.append(f"detour {evidence.detour}")
    if evidence.disturbed:
        facts.append(f"disturbed batches repeated: {evidence.disturbed}")
    # One fact stays on one line.
    return ", ".join(fact.replace(" ", _UNBROKEN) for fact in facts)


def _noted(cells: Iterable[CellRecord]) -> Iterable[tuple[int, CellRecord]]:
    return enumerate((cell for cell in cells if cell.reason), start=1)


def _notes(cells: Iterable[CellRecord], width: int) -> Iterator[Text]:
    for note, cell in _noted(cells):
        yield Text()
        lines = (cell.reason or "").splitlines()
        first = f"[{note}] {_title(cell)} {cell.status}: {lines[0]}"
        yield from _paragraph(first, width, hanging="    ", style="red")
        for line in lines[1:]:
            yield from _paragraph(f"    {line}", width, hanging="    ")


def _paragraph(text: str, width: int, *, hanging: str = "", style: str = "") -> Iterator[Text]:
    for line in textwrap.wrap(
        text, width, subsequent_indent=hanging, break_on_hyphens=False, break_long_words=False
    ) or [""]:
        yield Text(line.replace(_UNBROKEN, " "), style=style)
