# SPDX-License-Identifier: GPL-2.0-only
"""The table of programs by system call: a row for each part of a run, columns for the baseline and each probe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from typing import get_args

from orchestrator.benchmarks.calls.benchmarks import COUNTED_BENCHMARK
from orchestrator.benchmarks.calls.tables.layout import Layout, benchmark_title, conditions, probe_title, probed
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.kind import (
    Panel,
    other_kernel,
    unit_meaning,
)
from orchestrator.report.sheet import (
    COUNTED,
    NOTHING,
    Grid,
    Row,
    Sheet,
    number,
    signed_figure,
)
from orchestrator.results.contract import BACKGROUND, CellRecord, PartKind, RunPart
from orchestrator.results.statistics import median


def shows_parts(panel: Panel) -> bool:
    """Whether the panel's cells run a program whose parts are counted."""
    return panel.first.benchmark == COUNTED_BENCHMARK


_PARTS: Mapping[PartKind, str] = {
    "user": "user space",
    "call": "system calls",
    "exception": "exceptions",
    "interrupt": "interrupts",
    "kernel": "rest of the kernel",
}


_OWN = [kind for kind in get_args(PartKind) if kind not in BACKGROUND]


def parts_sheet(panel: Panel) -> Sheet:
    """A run by system call: calls, instructions, and what each probe adds to them."""
    layout = Layout([panel.cells], probe_title, partial(other_kernel, panel))
    marks, other_cells = layout.footnotes.marks, probed(panel)
    base = next((cell for cell in panel.cells if cell.probe == BASELINE), panel.first)
    headings = ["calls", "instructions", "a call", "+-"]
    headings += [text for cell in other_cells for text in (f"{probe_title(cell)}{marks(cell)}", "+-")]
    runs, title = max(len(cell.samples) for cell in panel.cells), benchmark_title(panel.first)
    cells = [base, *other_cells]
    return layout.sheet(
        f"A program by system call on {cpu(panel.first.cpu).title}",
        [conditions(panel), f"{title}: the median of {runs} runs, whose parts add up to it"],
        Grid(headings, list(_part_blocks(cells)), together=2, narrowest=20),
        [
            "A run is from before the fork of its first process to after its end, with all processes that it starts: "
            "the fork and the wait of what runs it are among the calls.",
            "A call of user space: its instructions between two system calls, on the mean.",
            "+-: how far runs of a guest lie apart. What a probe adds is the median of its runs less that of runs "
            "without it, right before and behind; in brackets where both kinds of run lie farther apart together.",
            "Interrupts and page faults have rows of their own, wherever they happen. Interrupts and the rest of the "
            "kernel (its threads, processes that begin) depend on when a timer ticks, and are not the program's.",
            unit_meaning(panel),
        ],
    )


def _part_blocks(cells: Sequence[CellRecord]) -> Iterator[list[Row]]:
    names: dict[PartKind, dict[str, None]] = {}
    for part in (part for cell in cells for part in _parts(cell)):
        names.setdefault(part.kind, {})[part.name] = None
    system_calls = sum(part.calls for part in _parts(cells[0]) if part.kind == "call")
    for kinds, whole, of in ((_OWN, "the program", _OWN), (BACKGROUND, "all", [*_OWN, *BACKGROUND])):
        rows = []
        for kind in kinds:
            if kind != "exception":
                rows.append(_part_row(_PARTS[kind], cells, {kind}, calls=system_calls if kind == "user" else None))
            for name in filter(None, names.get(kind, ())):
                label, depth = (name, 2) if kind == "call" else (f"{_PARTS[kind]}: {name}", 0)
                rows.append(_part_row(label, cells, {kind}, name, depth=depth))
        yield [*rows, _part_row(whole, cells, {*of}, calls=0)]


def _parts(cell: CellRecord) -> Sequence[RunPart]:
    return () if cell.profile is None else cell.profile.parts


def _part_row(
    label: str,
    cells: Sequence[CellRecord],
    kinds: Set[PartKind],
    name: str | None = None,
    *,
    depth: int = 0,
    calls: int | None = None,
) -> Row:
    """The parts of these kinds, or the one of this name; ``calls`` are others than theirs, which are not printed."""
    base, *other_parts = (
        [part for part in _parts(cell) if part.kind in kinds and name in (None, part.name)] for cell in cells
    )
    total, calls_of_parts = (
        sum(part.instructions for part in base),
        sum(part.calls for part in base) if calls is None else 0,
    )
    each = calls_of_parts if calls is None else calls
    texts = [NOTHING] * 4
    if _parts(cells[0]):
        texts = [str(calls_of_parts or NOTHING), str(total), number(round(total / each, 1)) if each else NOTHING]
        runs = _sums([part.runs for part in base])
        texts.append(number(max(runs) - min(runs)))
    for cell, parts in zip(cells[1:], other_parts, strict=True):
        if not _parts(cell):
            texts += [cell.status if len(kinds) > 1 and cell.status != "ok" else NOTHING, NOTHING]
            continue
        runs, plain = _sums([part.runs for part in parts]), _sums([part.plain for part in parts])
        added, spread = median(runs) - median(plain), max(runs) - min(runs) + max(plain) - min(plain)
        text = signed_figure(added, COUNTED)
        texts += [f"({text})" if 0 < abs(added) <= spread else text, number(spread)]
    return Row(label, texts, "bold" if len(kinds) > 1 else "", depth)


def _sums(parts: Sequence[Sequence[int]]) -> Sequence[float]:
    """The instructions of each run in all of the ``parts``, each of which has its own of every run."""
    return [float(sum(run)) for run in zip(*parts, strict=True)] or [0.0]
