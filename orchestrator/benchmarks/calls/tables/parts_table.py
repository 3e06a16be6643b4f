# SPDX-License-Identifier: GPL-2.0-only
"""The table of programs by system call: a row for each part of a run, columns for the baseline and each probe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import get_args

from orchestrator.benchmarks.calls.benchmarks import COUNTED_BENCHMARK
from orchestrator.benchmarks.calls.tables.layout import Layout, benchmark_title, conditions, probe_title, probed
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import COUNTED, NOTHING, number, signed_figure
from orchestrator.report.grid import Row
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import (
    CellGroup,
    other_kernel,
    unit_meaning,
)
from orchestrator.results.contract import BACKGROUND, CellRecord, PartKind, RunPart
from orchestrator.results.statistics import median


def shows_parts(group: CellGroup) -> bool:
    """Whether the group's cells run a program whose parts are counted."""
    return group.first.benchmark == COUNTED_BENCHMARK


_PARTS: Mapping[PartKind, str] = {
    "user": "user space",
    "call": "system calls",
    "exception": "exceptions",
    "interrupt": "interrupts",
    "kernel": "rest of the kernel",
}


_OWN = [kind for kind in get_args(PartKind) if kind not in BACKGROUND]


def parts_sheet(group: CellGroup) -> Sheet:
    """A run by system call: calls, instructions, and what each probe adds to them."""
    layout = Layout([group.cells], probe_title, partial(other_kernel, group))
    marks, other_cells = layout.footnotes.marks, probed(group)
    base = next((cell for cell in group.cells if cell.probe == BASELINE), group.first)
    columns = Columns(_columns([f"{probe_title(cell)}{marks(cell)}" for cell in other_cells]), together=2, narrowest=20)
    runs, title = max(len(cell.samples) for cell in group.cells), benchmark_title(group.first)
    cells = [base, *other_cells]
    return layout.sheet(
        f"A program by system call on {cpu(group.first.cpu).title}",
        [conditions(group), f"{title}: the median of {runs} runs, whose parts add up to it"],
        columns.grid(*_part_blocks(columns, cells)),
        [
            "A run is from before the fork of its first process to after its end, with all processes that it starts: "
            "the fork and the wait of what runs it are among the calls.",
            "A call of user space: its instructions between two system calls, on the mean.",
            "+-: how far runs of a guest lie apart. What a probe adds is the median of its runs less that of runs "
            "without it, right before and behind; in brackets where both kinds of run lie farther apart together.",
            "Interrupts and page faults have rows of their own, wherever they happen. Interrupts and the rest of the "
            "kernel (its threads, processes that begin) depend on when a timer ticks, and are not the program's.",
            unit_meaning(group),
        ],
    )


@dataclass(frozen=True)
class _Figures:
    """A part of a run: its calls, instructions and their spread, and what each probe adds to them with its spread."""

    calls: str = NOTHING
    instructions: str = NOTHING
    a_call: str = NOTHING
    spread: str = NOTHING
    added: Sequence[tuple[str, str]] = ()


def _columns(probes: Sequence[str]) -> Iterator[Column[_Figures]]:
    """Columns of the run without a probe, and of what each of the ``probes`` adds."""

    def added(index: int, place: int) -> Callable[[_Figures], str]:
        return lambda figures: figures.added[index][place]

    yield Column("calls", attrgetter("calls"))
    yield Column("instructions", attrgetter("instructions"))
    yield Column("a call", attrgetter("a_call"))
    yield Column("+-", attrgetter("spread"))
    for index, heading in enumerate(probes):
        yield Column(heading, added(index, 0))
        yield Column("+-", added(index, 1))


def _part_blocks(columns: Columns[_Figures], cells: Sequence[CellRecord]) -> Iterator[list[Row]]:
    names: dict[PartKind, dict[str, None]] = {}
    for part in (part for cell in cells for part in _parts(cell)):
        names.setdefault(part.kind, {})[part.name] = None
    system_calls = sum(part.calls for part in _parts(cells[0]) if part.kind == "call")
    for kinds, whole, of in ((_OWN, "the program", _OWN), (BACKGROUND, "all", [*_OWN, *BACKGROUND])):
        rows = []
        for kind in kinds:
            if kind != "exception":
                calls = system_calls if kind == "user" else None
                rows.append(columns.row(_PARTS[kind], _part(cells, {kind}, calls=calls)))
            for name in filter(None, names.get(kind, ())):
                label, depth = (name, 2) if kind == "call" else (f"{_PARTS[kind]}: {name}", 0)
                rows.append(columns.row(label, _part(cells, {kind}, name), depth=depth))
        yield [*rows, columns.row(whole, _part(cells, {*of}, calls=0), "bold")]


def _parts(cell: CellRecord) -> Sequence[RunPart]:
    return () if cell.profile is None else cell.profile.parts


def _part(
    cells: Sequence[CellRecord], kinds: Set[PartKind], name: str | None = None, *, calls: int | None = None
) -> _Figures:
    """The parts of these kinds, or the one of this name; ``calls`` are others than theirs, which are not printed."""

    def chosen(cell: CellRecord) -> Sequence[RunPart]:
        return [part for part in _parts(cell) if part.kind in kinds and name in (None, part.name)]

    def added(cell: CellRecord) -> tuple[str, str]:
        if not _parts(cell):
            return cell.status if len(kinds) > 1 and cell.status != "ok" else NOTHING, NOTHING
        runs, plain = _sums([part.runs for part in chosen(cell)]), _sums([part.plain for part in chosen(cell)])
        more, spread = median(runs) - median(plain), max(runs) - min(runs) + max(plain) - min(plain)
        text = signed_figure(more, COUNTED)
        return f"({text})" if 0 < abs(more) <= spread else text, number(spread)

    base, with_probes = chosen(cells[0]), [added(cell) for cell in cells[1:]]
    if not _parts(cells[0]):
        return _Figures(added=with_probes)
    total, calls_of_parts = sum(part.instructions for part in base), 0
    if calls is None:
        calls = calls_of_parts = sum(part.calls for part in base)
    runs = _sums([part.runs for part in base])
    return _Figures(
        str(calls_of_parts or NOTHING),
        str(total),
        number(round(total / calls, 1)) if calls else NOTHING,
        number(max(runs) - min(runs)),
        with_probes,
    )


def _sums(parts: Sequence[Sequence[int]]) -> Sequence[float]:
    """The instructions of each run in all of the ``parts``, each of which has its own of every run."""
    return [float(sum(run)) for run in zip(*parts, strict=True)] or [0.0]
