# SPDX-License-Identifier: GPL-2.0-only
"""What the tables of calls share: titles, conditions, figures and the sentences below a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from orchestrator.benchmarks.calls.benchmarks import capability_grants
from orchestrator.catalog.probes import BASELINE, probe_in_catalogue
from orchestrator.catalog.purposes import in_order, purpose_title
from orchestrator.report.figures import NOTHING, UNDECIDED, figure, ratio_figure
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid
from orchestrator.report.proofs import proof_lists
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import (
    FIT,
    INDICATION,
    CellGroup,
    processors,
    time_figures,
    unit_meaning,
)
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord
from orchestrator.results.modelled import ModelledCell

_Name = Callable[[CellRecord], str]
"""A cell's name in its table."""


FigureOf = Callable[[CellRecord], float | None]


overhead_of: FigureOf = attrgetter("overhead")


def benchmark_title(cell: CellRecord) -> str:
    """What the cell runs, without its point."""
    if cell.benchmark == "gtodbench":
        return cell.benchmark
    return parameters.WORKLOAD.of(cell) or parameters.CALL.of(cell) or cell.benchmark


def _at_named_point(cell: CellRecord, what: str) -> str:
    """``what``, with the probe point where the experiment names one."""
    at = None if parameters.POINTS in cell.parameters else parameters.AT.of(cell)
    return f"{what} at {at}" if at else what


def called(cell: CellRecord) -> str:
    """What the cell calls, with the probe point where the experiment names one."""
    title = benchmark_title(cell)
    return _at_named_point(cell, "gettimeofday" if title == "gtodbench" else title)


def probe_title(cell: CellRecord) -> str:
    """Return the cell's probe as the documents name it; a bpftrace one-liner is shortened."""
    one_liner = parameters.ONE_LINER.of(cell)
    if one_liner is not None:
        return one_liner
    if cell.probe in capability_grants():
        probe, capability, _ = capability_grants()[cell.probe]
        return f"{probe}, {capability.title}"
    kind = probe_in_catalogue(cell.probe)
    return kind.title if kind else cell.probe


def heading(cell: CellRecord) -> str:
    """Return the heading of the cell's column: for the unprobed kernel its release."""
    if cell.probe == BASELINE:
        return f"linux-{parameters.KERNEL_RELEASE.of(cell) or cell.kernel}"
    return probe_title(cell)


def probed(group: CellGroup) -> Sequence[CellRecord]:
    """The group's cells without its baselines."""
    return [cell for cell in group.cells if cell.probe != BASELINE]


def conditions(group: CellGroup) -> str:
    """A line on what all cells of the group have in common."""
    first, title = group.first, benchmark_title(group.first)
    table = f"{first.table}: " if first.table else ""
    at = _at_named_point(first, title)
    what = f"{at}, " if at != title else ""
    indication = f"; {INDICATION}" if group.emulated else ""
    named = {parameters.IMAGE: "image", parameters.CHANNEL: "channel", parameters.KERNEL_MODULES: "with its modules"}
    where = "".join(f"{title} {value}, " for fact, title in named.items() if (value := fact.of(first)))
    return (
        f"{table}{first.cpu}, {processors(first)}, kernel {group.kernel}, {where}handler {first.handler}, {what}"
        f"{first.metric} in {first.unit}{indication}"
    )


def _outcomes(cells: Sequence[CellRecord], name: _Name) -> tuple[Sequence[str], Sequence[str]]:
    """Sentences on what calls of valid cells return: first those of calls that failed, then the others.

    A system call's is ``close(-1): always EBADF``, a user's function's ``mine.c: ioctl always ENOTTY; read always 1``.
    Where cells of one call differ, ``name`` names the cells.
    """
    calls: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.status == "ok" and parameters.OUTCOME in cell.parameters:
            arguments, call = (parameters.ARGUMENTS.of(cell) or "...").strip("[]"), parameters.CALL.of(cell)
            title = benchmark_title(cell) if call is None else f"{call}({arguments})"
            calls.setdefault(title, []).append(cell)
    failing: list[str] = []
    succeeding: list[str] = []
    for call, group in calls.items():
        has_failed = any(parameters.RESULT_FAILED.of(cell) for cell in group)
        by_text: dict[str, list[str]] = {}
        for cell in group:
            by_text.setdefault(parameters.OUTCOME.of(cell) or "", []).append(name(cell))
        if len(by_text) == 1:
            texts = list(by_text)
        elif has_failed:
            texts = [f"{text} ({', '.join(dict.fromkeys(names))})" for text, names in by_text.items()]
        else:
            texts = ["always success, with different results"]  # process numbers, addresses
        (failing if has_failed else succeeding).extend(f"{call}: {text}." for text in texts)
    return failing, succeeding


class Layout:
    """The common part of all layouts: the cells, in parts with their own evidence, the cells' names and footnotes."""

    def __init__(
        self,
        parts: Sequence[Sequence[CellRecord]],
        name: _Name,
        remark: Callable[[CellRecord], str | None] = lambda _: None,
    ) -> None:
        self._parts, self._name = parts, name
        self.cells = [cell for part in parts for cell in part]
        self.footnotes = Footnotes(self.cells, name, remark)

    def sheet(
        self, title: str, facts: Sequence[str], grid: Grid, sentences: Sequence[str], name: _Name | None = None
    ) -> Sheet:
        failing, succeeding = _outcomes(self.cells, name or self._name)
        return Sheet(
            title=title,
            facts=[*facts, *failing],
            grid=grid,
            sentences=[*sentences, *succeeding],
            footnotes=self.footnotes.all(),
            proofs=[proofs for part in self._parts for proofs in proof_lists(part, self._name)],
        )


def comparison_meaning(group: CellGroup) -> str:
    """What the figures mean beside the published ones."""
    is_counted = group.first.clock == "instructions" and not group.times
    more = " Ratios in two different units are not expected to agree." if is_counted else ""
    return f"{unit_meaning(group)}{more}"


def cell_figure(cell: CellRecord | None, value_of: FigureOf = overhead_of, footnotes: Footnotes | None = None) -> str:
    """A cell's figure, or its status if it has none, with its footnotes' marks."""
    if cell is None:
        return NOTHING
    marks = "" if footnotes is None else footnotes.marks(cell)
    return (cell.status if cell.status != "ok" else figure(value_of(cell), cell.unit)) + marks


def spent_on(name: str) -> FigureOf:
    """The figure of a cell that is spent on one purpose."""
    return lambda cell: cell.purposes.get(name, 0.0) if cell.purposes else None


def varying_sentences(cells: Sequence[CellRecord]) -> Iterator[str]:
    """What an overhead is where calls vary."""
    if any(cell.calls_vary and cell.overhead for cell in cells):
        yield "Where calls vary, the overhead is what the probe adds to calls that take the same path."


def purpose_names(cells: Sequence[CellRecord]) -> Sequence[str]:
    """The purposes that any of the cells has, in the catalogue's order."""
    return in_order([name for cell in cells for name in cell.purposes])


def purpose_meaning(cells: Sequence[CellRecord]) -> Iterator[str]:
    """What the rows of purposes add up to, if there are any."""
    if purpose_names(cells):
        yield "The purposes add up to the overhead, to the instruction; other is what the catalogue assigns to none."


def purpose_sentences(cells: Sequence[CellRecord], name: _Name) -> Iterator[str]:
    """A sentence on the purposes of each cell, for tables that have no rows for them."""
    for cell in cells:
        if cell.purposes:
            parts = [
                f"{purpose_title(purpose)} {figure(cell.purposes[purpose], cell.unit)}"
                for purpose in in_order([*cell.purposes])
            ]
            yield f"{name(cell)}: {', '.join(parts)}."
    yield from purpose_meaning(cells)


def modelled_figure(group: CellGroup, cell: CellRecord | None) -> str:
    """A cell's modelled overhead with its band."""
    overhead, low, high = time_figures(None if cell is None else group.time(cell))
    return overhead if overhead == NOTHING else f"{overhead} ({low} to {high})"


COUNTED, MODELLED = "counted ", "modelled "
"""What tells apart figures of one table."""


def modelled_ratio(time: ModelledCell | None, base: ModelledCell | None) -> str:
    """The ratio of two modelled overheads, marked where both are of a fit."""
    if time is None or base is None:
        return NOTHING
    ratio = ratio_figure(time.overhead, base.overhead)
    return f"{ratio} {FIT}" if time is not base and time.is_fit and base.is_fit else ratio


def bpftrace_versions(cells: Sequence[CellRecord]) -> str:
    """``bpftrace`` and the versions that the cells were measured with."""
    versions = dict.fromkeys(version for cell in cells if (version := parameters.BPFTRACE.of(cell)) is not None)
    return " ".join(["bpftrace", *versions])


def overhead_ratio(cell: CellRecord | None, base: CellRecord | None) -> str:
    """The ratio of two overheads; undecided where one of them has no verdict."""
    if cell is None or base is None or cell.overhead is None or base.overhead is None or cell.probe == BASELINE:
        return NOTHING
    return UNDECIDED if "none" in (cell.verdict, base.verdict) else ratio_figure(cell.overhead, base.overhead)


def conditions_on_kernels(groups: Sequence[CellGroup]) -> Iterator[str]:
    """The conditions that groups of several kernels share, and each kernel's release."""
    first = groups[0].first
    table, what = f"{first.table}: " if first.table else "", _at_named_point(first, benchmark_title(first))
    yield f"{table}{first.cpu}, {processors(first)}, handler {first.handler}, {what}, {first.metric} in {first.unit}"
    releases = {group.kernel: parameters.KERNEL_RELEASE.of(group.first) for group in groups}
    yield from (f"{kernel}: linux-{release}" for kernel, release in releases.items() if release)


def percent_of(difference: float, base: float) -> str:
    """A difference as a percentage of ``base``, with its sign."""
    return f"{100 * difference / base:+.2f} %" if difference else "0 %"
