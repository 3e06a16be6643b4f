# SPDX-License-Identifier: GPL-2.0-only
"""Modelled times as tables, with published times, errors, and price lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, groupby
from operator import attrgetter, itemgetter
from statistics import median

from pydantic import TypeAdapter

from orchestrator.catalog.cpus import CacheGeometry, CpuCaches, Tlb, cpu
from orchestrator.catalog.data import CatalogEntry, read
from orchestrator.catalog.probes import probes, published_column
from orchestrator.catalog.published_tables import ReferenceTable, reference_tables
from orchestrator.report.claims import Assessment
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import NOTHING, published_figure
from orchestrator.report.highlights import Highlight, Rank
from orchestrator.report.sheet import Sheet
from orchestrator.report.summary import contradicted, most_important
from orchestrator.report.table_report import source
from orchestrator.results.modelled import CpuPrices, ModelledCell, ModelledRun, Price


@dataclass(frozen=True)
class Agreement:
    """Agreement with one published table: relative errors of predicted cells, and counts of pairs of probes.

    Pairs exclude the excluded cells. ``kept`` pairs are in the published order; others are ``disputed`` if another
    table of the document has the opposite order, else ``lost``. ``in_band`` pairs have a published ratio that is
    possible within both bands.
    """

    errors: Sequence[float]
    kept: int
    disputed: Sequence[str]
    lost: Sequence[str]
    in_band: int

    @property
    def pairs(self) -> int:
        return self.kept + len(self.disputed) + len(self.lost)


def agreement(table: ReferenceTable, cells: Sequence[ModelledCell]) -> Agreement:
    """The agreement of the times of ``cells`` with ``table``."""
    judged = [
        (cell.probe, cell.overhead, cell.interval, cell.published)
        for cell in cells
        if cell.overhead is not None and cell.interval is not None and cell.published is not None
        if cell.role != "excluded" and cell.published > 0
    ]
    kept = in_band = 0
    disputed: list[str] = []
    lost: list[str] = []
    for (probe, time, band, published), (other_probe, other_time, other_band, other_published) in combinations(
        judged, 2
    ):
        # Products, since a band may reach zero.
        least = band[0] * other_published <= published * other_band[1]
        in_band += least and published * other_band[0] <= band[1] * other_published
        if (time - other_time) * (published - other_published) >= 0:
            kept += 1
        else:
            column, other_column = (published_column(name) or "" for name in (probe, other_probe))
            orders = {
                known.overhead(column) < known.overhead(other_column)
                for known in reference_tables().values()
                if known.document_id == table.document_id and {column, other_column} <= set(known.columns)
            }
            (disputed if len(orders) > 1 else lost).append(f"{probe} and {other_probe}")
    errors = [cell.error for cell in cells if cell.is_prediction and cell.error is not None]
    return Agreement(errors, kept, disputed, lost, in_band)


def modelled_summary(modelled: ModelledRun, assessments: Sequence[Assessment]) -> list[str]:
    """At most three sentences: claims that fail, the largest time, the errors of predicted ones, cells without any."""
    findings = [finding for assessment in assessments for finding in contradicted(assessment)]
    times = [cell for cell in modelled.cells if cell.overhead is not None]
    if times:
        cell = max(times, key=lambda modelled_cell: modelled_cell.overhead or 0.0)
        low, high = cell.interval or (0.0, 0.0)
        beside = "" if cell.published is None else f"; published: {published_figure(cell.published)}"
        sentence = f"Largest overhead: {_name(cell)}, {cell.overhead:.1f} nsec ({low:.1f} to {high:.1f}){beside}."
        findings.append(Highlight(Rank.LARGEST, sentence))
    errors = [(abs(cell.error), cell) for cell in times if cell.is_prediction and cell.error is not None]
    if errors:
        worst, cell = max(errors, key=itemgetter(0))
        middle = f"in the median by {100 * median(error for error, _ in errors):.1f} %"
        at_worst = f"at worst by {100 * worst:.1f} % ({_name(cell)})"
        sentence = f"{len(errors)} predicted times differ from the published ones {middle}, {at_worst}."
        findings.append(Highlight(Rank.PUBLISHED, sentence))
    without = [cell for cell in modelled.cells if cell.reason is not None]
    if without:
        counted = f"{len(without)} of {len(modelled.cells)} cells have no modelled time"
        rank = Rank.OTHER if len(without) < len(modelled.cells) else Rank.FAILED
        first = (without[0].reason or "").splitlines()[0]
        findings.append(Highlight(rank, f"{counted}, {without[0].id}: {first}"))
    return most_important(findings)


def _name(cell: ModelledCell) -> str:
    kind = probes().get(cell.probe)
    table = f"{cell.table}: " if cell.table else ""
    return f"{table}{kind.title if kind else cell.probe} on {cell.cpu}"


def price_sheets(prices: CpuPrices) -> list[Sheet]:
    """A price list's prices, and its caches, if any."""
    return [price_sheet(prices), *([] if prices.caches is None else [_caches(prices.cpu, prices.caches)])]


def price_sheet(prices: CpuPrices) -> Sheet:
    """The prices of a CPU with ranges and sources, and the reason if they give no times."""
    declared = "not calibrated" if prices.declared is None else f"declared {prices.declared}"
    reason = [] if prices.reason is None else [f"These prices give no times: {prices.reason}"]
    sources = _by_source((price.name, price.where) for price in prices.costs)
    return Sheet(
        title=f"Prices of {cpu(prices.cpu).title}",
        facts=[f"in cycles; price list {prices.cpu}, {declared}, SHA-256 {prices.sha256[:12]}..."],
        grid=_PRICES.grid(_PRICES.row(price.name, price) for price in prices.costs),
        sentences=[*reason, *sources, *prices.remarks],
    )


def _cycles(value: float) -> str:
    """Cycles, from a fraction of one to thousands."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


_PRICES: Columns[Price] = Columns(
    [
        Column("value", lambda price: _cycles(price.value)),
        Column("from", lambda price: _cycles(price.low)),
        Column("to", lambda price: _cycles(price.high)),
        Column("source", attrgetter("source")),
    ],
    together=4,
)


def _caches(name: str, caches: CpuCaches) -> Sheet:
    levels = {"L1 instructions": caches.l1i, "L1 data": caches.l1d, "L2": caches.l2}
    tlbs = {"instruction TLB": caches.itlb, "data TLB": caches.dtlb}
    parts: Mapping[str, CacheGeometry | Tlb] = {**levels, **tlbs}
    columns: Columns[CacheGeometry | Tlb] = Columns(
        [
            Column(
                "size",
                lambda cache: (
                    f"{cache.size // 1024} KiB" if isinstance(cache, CacheGeometry) else f"{cache.entries} entries"
                ),
            ),
            Column("ways", attrgetter("ways")),
            Column(
                "bytes per line or page", lambda cache: cache.line if isinstance(cache, CacheGeometry) else cache.page
            ),
        ],
        together=3,
    )
    sources = [(label, geometry.source) for label, geometry in levels.items()]
    sources += [(label, tlb.source) for label, tlb in tlbs.items()]
    return Sheet(
        title=f"Caches and TLBs of {cpu(name).title}",
        facts=[f"{caches.core}; entry {caches.name} of cpu_caches.yaml"],
        grid=columns.grid(columns.row(label, cache) for label, cache in parts.items()),
        sentences=[
            "Misses have no price; only `recorded line`, if the price list has it, assumes one.",
            *_by_source(sources),
        ],
    )


def _by_source(figures: Iterable[tuple[str, str]]) -> list[str]:
    names: dict[str, list[str]] = {}
    for name, where in figures:
        names.setdefault(where, []).append(name)
    return [f"{', '.join(of)}: {where}." for where, of in names.items()]


LARGE = 0.15
"""The relative error above which a reason is printed."""


class ErrorReason(CatalogEntry):
    """The reason for the errors of some columns of one published table."""

    columns: list[str]
    reason: str


@cache
def error_reasons() -> Mapping[str, Sequence[ErrorReason]]:
    """The known reasons, by published table."""
    return TypeAdapter(dict[str, list[ErrorReason]]).validate_python(read("model_errors.yaml"))


_MEANING = (
    "Modelled time is computed from counts and a price list; it was not measured. The band covers every constant in "
    "its range and every published cell within its uncertainty, in the worst combination, but not what the model "
    "leaves out."
)
_ROLES = "calibration: the prices were fitted to this figure; excluded: not used, as declared before fitting."
_PAIRS = (
    "Order and ratios are of all pairs of a table's cells that are not excluded; a ratio is in band if both bands "
    "allow it."
)
_AGREEMENT: Columns[Sequence[Agreement]] = Columns(
    [
        Column("predicted", lambda tables: str(len(_all_errors(tables)))),
        Column("median error", lambda tables: _percent(_median_error(tables)).lstrip("+")),
        Column("worst error", lambda tables: _percent(max(_all_errors(tables), key=abs, default=None))),
        Column("in order", lambda tables: _of_pairs(sum(table.kept for table in tables), tables)),
        Column("ratios in band", lambda tables: _of_pairs(sum(table.in_band for table in tables), tables)),
    ]
)
"""Agreement with one or more published tables."""


@dataclass(frozen=True)
class _Table:
    """A table of the run: its cells with times, and the published table."""

    cells: Sequence[ModelledCell]
    published: ReferenceTable | None

    @property
    def name(self) -> str:
        """The run's name of the table, else the published table's, else the CPU's."""
        first = self.cells[0]
        return first.table or (self.published.name if self.published else first.cpu)


def modelled_sheets(modelled: ModelledRun) -> list[Sheet]:
    """A sheet per table of the run, one on the agreement with published times, and the price lists."""
    tables = []
    for key, group in groupby([cell for cell in modelled.cells if cell.reason is None], _key):
        names = [cell.reference.table for cell in modelled.cells if _key(cell) == key and cell.reference is not None]
        tables.append(_Table(list(group), reference_tables().get(names[0]) if names else None))
    return [*map(_times, tables), _summary(tables, modelled.cells), *map(price_sheet, modelled.costs)]


def _key(cell: ModelledCell) -> tuple[str | None, str, str]:
    return cell.table, cell.cpu, cell.handler


def _times(table: _Table) -> Sheet:
    first = table.cells[0]
    kernels = ", ".join(dict.fromkeys(cell.kernel for cell in table.cells))
    overheads_of = f"Overhead of probes on {cpu(first.cpu).title}, modelled"
    where = f"{table.name}: {first.cpu}, counted on kernel {kernels}, handler {first.handler}"
    title, *facts = [table.published.title, overheads_of, where] if table.published else [overheads_of, where]
    return Sheet(
        title=title,
        facts=facts,
        grid=_TIMES.grid(_TIMES.row(_label(cell, table.cells), cell) for cell in table.cells),
        sentences=[source(table.published.id)] if table.published else [],
    )


def _tenth(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"


_TIMES: Columns[ModelledCell] = Columns(
    [
        Column("published nsec", lambda cell: published_figure(cell.published)),
        Column("modelled nsec", lambda cell: _tenth(cell.overhead)),
        Column("from", lambda cell: _tenth(cell.interval and cell.interval[0])),
        Column("to", lambda cell: _tenth(cell.interval and cell.interval[1])),
        Column("error", lambda cell: _percent(cell.error)),
        Column("modelled cycles", lambda cell: NOTHING if cell.cycles is None else f"{cell.cycles:.0f}"),
        Column("the published figure is", lambda cell: cell.role or NOTHING),
    ],
    together=5,
)


def _label(cell: ModelledCell, cells: Sequence[ModelledCell]) -> str:
    """A cell's probe, with the parts of the id in which equal probes of the table differ: kernel, point."""
    kind = probes().get(cell.probe)
    alike = [set(modelled_cell.id.split("/")) for modelled_cell in cells if modelled_cell.probe == cell.probe]
    distinct = [part for part in cell.id.split("/") if not all(part in parts for parts in alike)]
    return " at ".join([kind.title if kind else cell.probe, *([", ".join(distinct)] if distinct else [])])


def _summary(tables: Sequence[_Table], cells: Sequence[ModelledCell]) -> Sheet:
    blocks = []
    for name in dict.fromkeys(table.cells[0].cpu for table in tables):
        of_cpu = [table for table in tables if table.cells[0].cpu == name]
        judged = [(table, agreement(table.published, table.cells)) for table in of_cpu if table.published]
        if judged:
            rows = [_AGREEMENT.row(table.name, [agreement]) for table, agreement in judged]
            blocks.append([*rows, _AGREEMENT.row(name, [agreement for _, agreement in judged], "bold")])
    if not blocks:
        cpus = dict.fromkeys(cell.cpu for cell in cells)
        blocks = [[_AGREEMENT.texts(name, [NOTHING] * len(_AGREEMENT.headings)) for name in cpus]]
    excluded = [
        f"{modelled_cell.table or modelled_cell.id}, {modelled_cell.probe} is excluded: {modelled_cell.exclusion}"
        for modelled_cell in cells
        if modelled_cell.exclusion
    ]
    without: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.reason is not None:
            without.setdefault((cell.cpu, cell.reason), []).append(cell.table or cell.id)
    reasons = [
        f"{name} ({', '.join(dict.fromkeys(where))}) has no modelled time: {reason}"
        for (name, reason), where in without.items()
    ]
    remarks = [sentence for table in tables for sentence in _remarks(table)]
    return Sheet(
        title="Modelled and published times",
        facts=["errors of the predicted overheads, which were not fitted to"],
        grid=_AGREEMENT.grid(*blocks),
        sentences=[_MEANING, _ROLES, _PAIRS, *remarks, *excluded, *reasons],
    )


def _all_errors(tables: Sequence[Agreement]) -> Sequence[float]:
    return [error for table in tables for error in table.errors]


def _median_error(tables: Sequence[Agreement]) -> float | None:
    errors = _all_errors(tables)
    return median(map(abs, errors)) if errors else None


def _of_pairs(number: int, tables: Sequence[Agreement]) -> str:
    return f"{number} of {sum(table.pairs for table in tables)}"


def _remarks(table: _Table) -> Iterator[str]:
    """Remarks on cells fitted with another kernel's counts, on large errors, and on the order."""
    elsewhere: dict[tuple[str, str], list[ModelledCell]] = {}
    for cell in table.cells:
        if cell.calibration_kernel is not None:
            elsewhere.setdefault((cell.kernel, cell.calibration_kernel), []).append(cell)
    for (kernel, fitted_to), cells in elsewhere.items():
        yield (
            f"{table.name}, {_errors(cells)}: from the counts of kernel {kernel}; the prices were fitted to these "
            f"figures with the counts of {fitted_to}."
        )
    large = [cell for cell in table.cells if cell.is_prediction and abs(cell.error or 0.0) > LARGE]
    known = error_reasons().get(table.published.id, ()) if table.published else ()
    for reason in known:
        concerned = [cell for cell in large if published_column(cell.probe) in reason.columns]
        if concerned:
            yield f"{table.name}, {_errors(concerned)}: {reason.reason}"
    explained = {column for reason in known for column in reason.columns}
    for cell in large:
        if published_column(cell.probe) not in explained and cell.calibration_kernel is None:
            yield f"{table.name}, {_errors([cell])}: the reason is unknown."
    agreed = agreement(table.published, table.cells) if table.published else None
    if agreed is not None and agreed.lost:
        yield f"{table.name}: not in the published order: {', '.join(agreed.lost)}."
    if agreed is not None and agreed.disputed:
        disputed = ", ".join(agreed.disputed)
        yield f"{table.name}: not in order, and the document's own tables disagree: {disputed}."


def _errors(cells: Sequence[ModelledCell]) -> str:
    return ", ".join(f"{cell.probe} {_percent(cell.error)}" for cell in cells)


def _percent(value: float | None) -> str:
    if value is None:
        return NOTHING
    text = f"{100 * value:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text
