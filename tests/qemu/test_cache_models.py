# SPDX-License-Identifier: GPL-2.0-only
"""Do the models of a Pentium 4's caches miss as often as can be worked out by hand?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from experiment_boot import artifacts_of, boot_of_calls

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.user_programs import compiled_workload
from orchestrator.benchmarks.calls.call_programs import user_function
from orchestrator.catalog.cpus import cpu_caches
from orchestrator.paths import cache_dir
from orchestrator.profile.counted.cache_misses import cache_misses
from orchestrator.profile.counted.counts import read_regions
from orchestrator.profile.counted.timed_samples import sample_of
from orchestrator.profile.stored.cell_profile import Misses
from orchestrator.run.ready_guest import ready_guest

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

PATTERNS = Path(__file__).parent / "workloads" / "patterns.c"
CALLS = 12

LOADS = "8b50{:02x}"
"""``mov edx, [eax + PLACE]``"""

BY_HAND = {
    "a sweep over twice the first level": (LOADS.format(4), {"l1d_loads": 256}),
    "the same again": (LOADS.format(8), {"l1d_loads": 256, "l2": 0}),
    "a half that the sweep has left": (LOADS.format(12), {"l1d_loads": 0}),
    "another half": (LOADS.format(16), {"l1d_loads": 64}),
    "the same half again": (LOADS.format(20), {"l1d_loads": 0, "l2": 0, "dtlb": 0}),
    "stores over twice the first level": ("895018", {"l1d_stores": 256, "l1d_loads": 0}),
    "loads that cross lines": (LOADS.format(62), {"l1d_loads": 257}),
    "five lines of a set of four": (LOADS.format(32), {"l1d_loads": 5}),
    "four lines of a set of four": (LOADS.format(40), {"l1d_loads": 0}),
    "65 pages, one more than the TLB has": (LOADS.format(48), {"dtlb": 65}),
    "32 pages": (LOADS.format(56), {"dtlb": 0}),
    "four times the second level": (LOADS.format(1), {"l1d_loads": 8192, "l2": 8192, "dtlb": 512}),
    "512 pages that are one in memory": (LOADS.format(2), {"l1d_loads": 16, "l2": 16, "dtlb": 512}),
    # Those have emptied every fourth set of the second level.
    "a random cycle": ("8b00", {"l1d_loads": 1024, "l2": 256}),
    "the same cycle again": ("8b12", {"l1d_loads": 1024, "l2": 0}),
    "code of twice the first level": ("eb3e", {"l1i": 512, "l2": 128, "itlb": 0}),
    "code that is executed twice": ("eb1e", {"l1i": 128, "l2": 32, "itlb": 0}),
    "five pages of code in a set of four": ("e9fbff0100", {"itlb": 10}),
}


@pytest.fixture(scope="module")
def misses(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Counter[str]]:
    """What each instruction of the patterns misses in a call, by its bytes."""
    context = BuildContext(Cache(cache_dir()))
    boot = boot_of_calls(
        kernels=["lab-i386-up"],
        machines=[{"cpu": "pentium4"}],
        benchmark={"name": "gtodbench", "repeats": 2},
        probes=["none"],
        profile=["caches"],
    )
    program = user_function(compiled_workload(context, "i386", PATTERNS).file, calls=CALLS)
    directory = tmp_path_factory.mktemp("patterns")
    with ready_guest(context, artifacts_of(context, boot), directory, "guest") as ready:
        program.prepare(ready.guest)
        measured = program.measure_exact(ready.guest, repeats=2, ticks_per_second=250, time_limit=120)
        marked = program.measure_marked(ready.guest, measured, time_limit=120)
        regions = read_regions(ready.guest.counts_file, 0)
    sample = sample_of(regions, marked.timed)
    missed = cache_misses(regions, marked.timed, sample, cpu_caches()["pentium4"])
    assert all(cache.misses == cache.repeated for cache in missed.caches)
    counts: dict[str, Counter[str]] = {code: Counter() for _, code in sample.counts}
    for (_, code), one in missed.by_code.items():
        counts[code].update(dict(zip(Misses._fields, one, strict=True)))
    return counts


@pytest.mark.parametrize("pattern", BY_HAND)
def test_misses_are_those_worked_out_by_hand(misses: Mapping[str, Counter[str]], pattern: str) -> None:
    code, expected = BY_HAND[pattern]
    assert {kind: misses[code][kind] for kind in expected} == {kind: CALLS * count for kind, count in expected.items()}
