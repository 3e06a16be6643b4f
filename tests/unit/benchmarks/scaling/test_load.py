# SPDX-License-Identifier: GPL-2.0-only
"""Are loads beside thousands of events believed only where all fits together, and their misses beside the published?"""

from __future__ import annotations

import pytest
from record_builders import many_probes, run
from report_text import printed

from orchestrator.benchmarks.scaling.outputs import read_load
from orchestrator.benchmarks.scaling.rows import kprobe_cache
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import EvidenceError
from orchestrator.results.contract import CellRecord

PLAIN, CACHED = "lab-i386-smp-hash12", "lab-i386-smp-kpcache"


def output_of(**changes: str) -> str:
    """What the script prints of 1000 events."""
    runs = "user=0 system=4000000 minor=36 major=0 switches=1"
    lines = {
        "before": "look 0: site=c11acb70 bytes=5589e5e878",
        **{f"enable{number}": f"enable 10: taken={40_000_000 + number}" for number in range(10)},
        "live": "look 0: site=c11acb70 bytes=e82bdde7ff",
        "check": "check: enabled=500 calls=100 hits=100",
    }
    number = 0
    for how in ("with", "without"):
        if how == "without":
            lines["remove"] = "remove: left=0"
            lines["after"] = "look 0: site=c11acb70 bytes=5589e5e878"
        for load in ("calls", "files"):
            for time in ("first", "again"):
                number += 1
                lines[f"{load}_{how}_{time}"] = f"load {load} {how} {time}: real={number}000 {runs} tsc={number}900"
    return "".join(f"{line}\n" for line in (lines | changes).values())


def test_the_figures_are_those_of_the_loads() -> None:
    figures = read_load(output_of(), 1000)
    assert figures.samples[BASELINE] == (5000.0, 6000.0)
    assert figures.samples["calls"] == (1000.0, 2000.0)
    assert figures.samples["files"] == (3000.0, 4000.0)
    assert figures.samples["files-without"] == (7000.0, 8000.0)
    assert figures.samples["enable"][:2] == (4_000_000.0, 4_000_000.1)
    # By their order among what QEMU's plugin has kept.
    assert {row: one.numbers for row, one in figures.marked.items()} == {
        "calls": [0],
        "files": [2],
        BASELINE: [4],
        "files-without": [6],
    }
    assert figures.marked["files"].again == 3
    assert figures.marked["files"].ticks == [3900]
    assert (figures.proof.mechanism, figures.proof.hits) == ("ftrace", 100)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"check": "check: enabled=499 calls=100 hits=100"}, "499 kprobes are enabled, and not 500"),
        ({"check": "check: enabled=500 calls=100 hits=99"}, "of 100 calls 99 were hits"),
        ({"live": "look 0: site=c11acb70 bytes=5589e5e878"}, "kprobes are enabled"),
        ({"remove": "remove: left=1"}, "1 kprobes were left"),
        ({"after": "look 0: site=c11acb70 bytes=e82bdde7ff"}, "kprobes were left"),
        ({"enable3": "enable 10: taken="}, "did not go as planned"),
        ({"calls_with_first": "load files with first: real=1 tsc=2"}, "not run in the script's order"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, str], why: str) -> None:
    with pytest.raises(EvidenceError, match=why):
        read_load(output_of(**changes), 1000)


def cell(kernel: str, row: str, *, misses: int = 0, lookups: int = 0) -> CellRecord:
    """A cell of 1000 events, made of one of the benchmark without loads."""
    wanted = "none" if row == BASELINE else "kpcache.hit"
    (other,) = [
        one
        for one in many_probes()
        if (one.kernel, one.probe, one.benchmark) == (kernel, wanted, "kpcache") and one.parameters["probes"] == 1000
    ]
    missed = {"l1d_misses": misses, "l1d_get_kprobe": lookups, "l1d_ftrace_lookup_ip": 0} if misses else {}
    return other.model_copy(
        update={
            "id": f"{kernel}/{row}",
            "benchmark": "kpcache-load",
            "probe": BASELINE if row == BASELINE else f"kpcache-load.{row}",
            "metric": "cost per run",
            "parameters": {**other.parameters, **missed},
        }
    )


def test_shares_of_misses_stand_beside_the_published_ones() -> None:
    text = printed(
        run(
            *(cell(kernel, BASELINE) for kernel in (PLAIN, CACHED)),
            cell(PLAIN, "calls", misses=1000, lookups=600),
            cell(CACHED, "calls", misses=800, lookups=40),
        ),
        width=120,
    )
    (line,) = [line.split() for line in text.splitlines() if "the lookup (get_kprobe), %" in line]
    assert line[-4:] == ["60.00", "5.00", "79.94", "3.44"]
    flat = " ".join(text.split())
    assert "without the cache most misses are the lookup's: holds (60.0 %, published 79.94)" in flat
    assert "the cache lowers its share: holds (to 5.0 %, published 3.44)" in flat


def test_a_claim_that_does_not_hold_is_said_to() -> None:
    cells = [cell(PLAIN, "calls", misses=1000, lookups=14), cell(CACHED, "calls", misses=1000, lookups=29)]
    flat = " ".join(printed(run(*cells), width=120).split())
    assert "most misses are the lookup's: does not hold (1.4 %" in flat
    assert "lowers its share: does not hold (to 2.9 %" in flat


def test_the_published_shares_are_those_of_the_mail() -> None:
    misses = kprobe_cache().published.misses
    assert (misses["without"]["get_kprobe"], misses["with"]["get_kprobe"]) == (79.94, 3.44)
