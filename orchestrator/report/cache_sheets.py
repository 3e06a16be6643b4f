# SPDX-License-Identifier: GPL-2.0-only
"""What a cell's calls miss in models of caches, by symbol, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from orchestrator.catalog.cpu_caches import CacheName
from orchestrator.report.figures import NOTHING
from orchestrator.report.grid import Grid, Row
from orchestrator.report.profile_figures import per_call, share
from orchestrator.report.profile_sheets import symbol_title
from orchestrator.report.sheet import Sheet
from orchestrator.results.misses import CacheProfile, Misses
from orchestrator.results.profile import CellProfile

TITLES: dict[CacheName, str] = {"l1i": "L1I", "l1d": "L1D", "l2": "L2", "itlb": "ITLB", "dtlb": "DTLB"}
_KIB = 1024


def cache_sheets(profile: CellProfile) -> Sequence[Sheet]:
    """The misses per call of each symbol that has any, and its share; no sheet where no caches were modelled."""
    if not profile.caches:
        return []
    symbols = [one for one in profile.symbols if any(one.missed)]
    symbols.sort(key=lambda one: -sum(one.missed))
    rows = [Row(symbol_title(one), [*_cells(profile, one.missed)]) for one in symbols]
    sums = [Row("all", [*_cells(profile, profile.missed)], "bold")]
    accesses = [Row("accesses", [cell for one in profile.caches for cell in (_per_call(profile, one.accesses), "")])]
    headings = [heading for one in profile.caches for heading in (f"{TITLES[one.name]} misses", "share")]
    return [
        Sheet(
            title=f"{profile.cell}: caches",
            facts=[f"misses per call, mean of {profile.calls} calls", ", ".join(map(_geometry, profile.caches))],
            grid=Grid(headings, [block for block in (rows, sums, accesses) if block], together=2),
            sentences=[
                "Models with LRU, without prefetching: no measurement of a processor.",
                *_repeated(profile),
            ],
            footnotes=[],
            proofs=[],
        )
    ]


def _cells(profile: CellProfile, missed: Misses) -> Iterator[str]:
    for one in profile.caches:
        count = missed.of(one.name)
        yield _per_call(profile, count)
        yield share(count, one.misses) if count else NOTHING


def _geometry(cache: CacheProfile) -> str:
    if cache.name.endswith("tlb"):
        return f"{TITLES[cache.name]} {cache.size // cache.line} pages, {cache.ways} ways"
    return f"{TITLES[cache.name]} {cache.size // _KIB} KiB, {cache.ways} ways of {cache.line} bytes"


def _per_call(profile: CellProfile, count: int) -> str:
    return per_call(Fraction(count, profile.calls))


def _repeated(profile: CellProfile) -> Iterator[str]:
    differing = [one for one in profile.caches if one.repeated != one.misses]
    if not differing:
        yield "As many calls again missed equally often."
    for one in differing:
        yield f"As many calls again missed {_per_call(profile, one.repeated)} times a call in {TITLES[one.name]}."
