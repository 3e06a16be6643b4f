# SPDX-License-Identifier: GPL-2.0-only
"""Are the misses of a sample those of its calls, and is a model that has not seen all of them refused?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalog.cpus import cpu_caches
from orchestrator.errors import EvidenceError
from orchestrator.profile.counted.cache_misses import cache_misses, check_lookups
from orchestrator.profile.counted.counts import Code, Counts, Lookups, Region, read_regions, together
from orchestrator.profile.counted.timed_samples import Timed, sample_of
from orchestrator.profile.stored.cell_profile import Misses, sum_of

P4 = cpu_caches()["pentium4"]
READING, CALL, CROSSING = Code(0x8049594, "0f31"), Code(0xC1000000, "55"), Code(0xC100003F, "8b00")
EMPTY = Region(
    2,
    {READING: Counts(2)},
    lookups={
        "l1i": Lookups(2, 0),
        "l1d": Lookups(0, 0),
        "l2": Lookups(0, 0),
        "itlb": Lookups(2, 0),
        "dtlb": Lookups(0, 0),
    },
)
BATCH = Region(
    9,
    {READING: Counts(2), CALL: Counts(5, 0, 5), CROSSING: Counts(2, 2)},
    lookups={
        "l1i": Lookups(10, 1),
        "l1d": Lookups(4, 4),
        "l2": Lookups(2, 3),
        "itlb": Lookups(9, 0),
        "dtlb": Lookups(6, 2),
    },
    misses={READING: Misses(l1i=1, l2=1), CALL: Misses(l1d_stores=3, l2=1, dtlb=1), CROSSING: Misses(0, 1, 0, 1, 0, 1)},
)
WARMER = replace(
    BATCH,
    lookups={**BATCH.lookups, "l1d": Lookups(5, 3), "l2": Lookups(2, 2)},
    misses={**BATCH.misses, CALL: Misses(l1d_stores=2, dtlb=1)},
)
TIMED = Timed(empty=1, samples=[(2, 16), (2, 16)])


def both(first: Region, second: Region) -> Region:
    """Two batches as the plugin keeps them, as one region."""
    lookups = {
        name: Lookups(*map(sum, zip(one, second.lookups[name], strict=True))) for name, one in first.lookups.items()
    }
    misses = {code: sum_of([one, second.misses[code]]) for code, one in first.misses.items()}
    return replace(together([first, second]), lookups=lookups, misses=misses)


REGIONS = [EMPTY, EMPTY, both(BATCH, BATCH), both(WARMER, BATCH)]


def test_misses_are_those_of_the_calls_without_the_clocks() -> None:
    sample = sample_of(REGIONS, TIMED)
    missed = cache_misses(REGIONS, TIMED, sample, P4)
    assert missed.by_code == {CALL: Misses(l1d_stores=6, l2=2, dtlb=2), CROSSING: Misses(0, 2, 0, 2, 0, 2)}
    caches = {cache.name: cache for cache in missed.caches}
    # Seven instructions in each batch, of which two are on two lines: nine fetches of lines.
    assert {
        name: (profile.accesses, profile.hits, profile.misses, profile.repeated) for name, profile in caches.items()
    } == {
        "l1i": (18, 18, 0, 0),
        "l1d": (16, 8, 8, 7),
        "l2": (8, 4, 4, 3),
        "itlb": (14, 14, 0, 0),
        "dtlb": (16, 12, 4, 4),
    }
    assert (caches["l1d"].size, caches["l1d"].ways, caches["l1d"].line) == (8192, 4, 64)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"lookups": {}}, "has modelled no caches, or not all"),
        ({"lookups": {**BATCH.lookups, "l1i": Lookups(9, 1)}}, "10 accesses to l1i, and 11 were executed"),
        ({"lookups": {**BATCH.lookups, "itlb": Lookups(8, 0)}}, "8 accesses to itlb, and 9 were executed"),
        ({"lookups": {**BATCH.lookups, "dtlb": Lookups(4, 2)}}, "6 accesses to dtlb, and 7 were executed"),
        ({"lookups": {**BATCH.lookups, "l2": Lookups(3, 3)}}, "6 accesses to l2, and 5 were executed"),
        ({"lookups": {**BATCH.lookups, "l1d": Lookups(4, 3)}}, "missed 3 times in l1d, and its instructions 4 times"),
        ({"misses": {}}, "missed 1 times in l1i, and its instructions 0 times"),
    ],
)
def test_a_model_that_has_not_seen_all_is_refused(changed: dict[str, object], why: str) -> None:
    check_lookups(BATCH, P4)
    with pytest.raises(EvidenceError, match=why):
        check_lookups(replace(BATCH, **changed), P4)  # type: ignore[arg-type]


def test_bytes_behind_a_page_are_fetched_with_the_next_instruction() -> None:
    crossing = Code(0xC1000FFF, "8b00")
    lookups = {**EMPTY.lookups, "l1i": Lookups(1, 0), "itlb": Lookups(1, 0)}
    check_lookups(Region(1, {crossing: Counts(1)}, lookups=lookups), P4)


def test_misses_are_read_behind_the_instructions_of_their_region(tmp_path: Path) -> None:
    file = tmp_path / "guest.counts"
    file.write_text(
        "region 2 1\n8049594 0f31 2 0 0 0\ncache l1i 1 1\ncache l2 0 1\nmissed 8049594 0f31 1 2 3 4 5 6\n"
        "stack 2 8049000\n"
        "region 2 1\n8049594 0f31 2 0 0 0\n"
    )
    first, second = read_regions(file, 0)
    assert first.lookups == {"l1i": Lookups(1, 1), "l2": Lookups(0, 1)}
    assert first.misses == {READING: Misses(1, 2, 3, 4, 5, 6)}
    assert first.stacks == {(0x8049000,): 2}
    assert not second.lookups
    assert not second.misses
    file.write_text("cache l1i 1 1\n")
    with pytest.raises(EvidenceError, match="counts are malformed"):
        read_regions(file, 0)
