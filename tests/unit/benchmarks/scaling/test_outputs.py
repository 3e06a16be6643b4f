# SPDX-License-Identifier: GPL-2.0-only
"""Is what a guest printed of its many probes believed only where all of it fits together?"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_builders import many_probes, run
from report_text import printed

from orchestrator.benchmarks.scaling.outputs import read_driver, read_events, read_load
from orchestrator.benchmarks.scaling.rows import kprobe_cache
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import EvidenceError
from orchestrator.results.contract import CellRecord
from orchestrator.run.script_steps import parse_steps

UNATTENDED = Path(__file__).parents[2] / "unattended"


DRIVER = (UNATTENDED / "kpcache_driver.txt").read_text()


EVENTS = (UNATTENDED / "kpcache_events.txt").read_text()


def test_a_thousand_kprobes_have_their_figures() -> None:
    figures = read_driver(DRIVER, 1000)
    rows = kprobe_cache().benchmarks["kpcache"]
    assert set(figures.samples) == {BASELINE, *rows.rows}
    assert len(figures.samples["register"]) == len(figures.samples["enable"]) == 10
    assert figures.samples["hit"] == (370.196875, 370.196875)
    assert figures.samples["hit"][0] < figures.samples["hit-first"][0]
    assert figures.row_facts["register"] == {"step": 100}
    assert figures.row_facts["enable"] == {"step": 50}
    assert (figures.proof.mechanism, figures.proof.hits, figures.proof.calls) == ("int3", 640, 640)
    assert figures.proof.live.startswith("cc")
    assert not figures.proof.original.startswith("cc")
    # A step of a hundred takes too few pages to measure the memory of a probe.
    assert "probe_bytes_taken" not in figures.facts


DRIVEN, DEFINED = (read_driver, DRIVER, 1000), (read_events, EVENTS, 200)


@pytest.mark.parametrize(
    ("reader", "output", "probes", "old", "new", "message"),
    [
        (*DRIVEN, "hits=640", "hits=639", "of 640 calls 639 were hits, not 640"),
        (*DRIVEN, "call 10: taken=3906 calls=640 hits=0", "call 10: taken=3906 calls=640 hits=1", "1 were hits, not 0"),
        (*DRIVEN, "registered=1000 refused", "registered=999 refused", "999 kprobes were registered, not 1000"),
        (*DRIVEN, "check: armed=500", "check: armed=499", "499 of 500 enabled kprobes and 64 of 64 targets are armed"),
        (*DRIVEN, "targets=64", "targets=63", "500 of 500 enabled kprobes and 63 of 64"),
        (*DRIVEN, "int3=500", "int3=400", "400 of 500 kprobes are breakpoints"),
        (*DRIVEN, "changed=0", "changed=3", "3 places have other bytes than before"),
        (*DRIVEN, "enable 50: ", "inable 50: ", "9 steps 'enable' were made, not 10"),
        (*DRIVEN, "register 100: taken=", "register 100: token=", "step 'register 100' has no number taken"),
        (*DRIVEN, "sieve 1: ", "sieve 1 ", "printed something unexpected"),
        (*DRIVEN, "restored: ", "failed: restored ", "printed something unexpected"),
        (*DEFINED, "calls=100 hits=100", "calls=100 hits=99", "of 100 calls 99 were hits"),
        (*DEFINED, "enabled=100", "enabled=90", "90 kprobes are enabled, of 100 events"),
        (*DEFINED, "left=0", "left=1", "1 kprobes were left"),
        (*DEFINED, "disable 10: taken", "disable 10: token", "has no number taken"),
        (*DEFINED, "define 20: ", "define 20 ", "printed something unexpected: 'define 20 taken"),
        (*DEFINED, "counted=20\n", "counted=2\n", "182 of 200 events were defined"),
    ],
)
def test_what_does_not_fit_is_no_result(
    reader: Callable[[str, int], object], output: str, probes: int, old: str, new: str, message: str
) -> None:
    assert old in output
    with pytest.raises(EvidenceError, match=message):
        reader(output.replace(old, new, 1), probes)


def test_samples_of_one_boot_are_equal() -> None:
    head, _, tail = DRIVER.rpartition("call 10: taken=")
    with pytest.raises(EvidenceError, match="samples of one boot differ: hit: "):
        read_driver(f"{head}call 10: taken=1{tail}", 1000)


def test_probes_through_ftrace_are_distinguished_from_breakpoints() -> None:
    traced = DRIVER.replace("int3=500", "int3=0").replace("bytes=cc", "bytes=e8")
    assert read_driver(traced, 1000).proof.mechanism == "ftrace"
    with pytest.raises(EvidenceError, match="0 of 500 kprobes are breakpoints, and the targets are int3"):
        read_driver(DRIVER.replace("int3=500", "int3=0"), 1000)


@given(st.text(max_size=200))
def test_arbitrary_output_is_parsed_or_refused(noise: str) -> None:
    try:
        steps = parse_steps(noise)
    except EvidenceError:
        return
    assert len(steps) == len(noise.splitlines())
    for step in steps:
        assert step.values


@given(st.data())
def test_output_that_lost_or_changed_lines_is_an_error_at_worst(data: st.DataObject) -> None:
    reader, text, probes = data.draw(st.sampled_from([(read_driver, DRIVER, 1000), (read_events, EVENTS, 200)]))
    lines = text.splitlines()
    for _ in range(data.draw(st.integers(1, 5))):
        number = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.sampled_from(["drop", "zero", "word", "cut", "twice"]))
        if change == "drop" and len(lines) > 1:
            del lines[number]
        elif change == "zero":
            lines[number] = re.sub(r"=\d+", "=0", lines[number])
        elif change == "word":
            lines[number] = re.sub(r"^(\w+) \w+", r"\1 x", lines[number])
        elif change == "cut":
            lines = lines[: number + 1]
        else:
            lines.insert(number, lines[number])
    with contextlib.suppress(EvidenceError):
        reader("\n".join(lines), probes)


def test_the_documents_seconds_are_net_of_its_pauses() -> None:
    published = kprobe_cache().published
    assert (published.net_seconds("without"), published.net_seconds("with")) == (1763, 1228)


def test_few_enabled_events_are_no_result() -> None:
    few = EVENTS.replace("enabled=100", "enabled=10")
    few = "\n".join(re.sub("counted=10$", "counted=1", line) for line in few.splitlines())
    with pytest.raises(EvidenceError, match="10 kprobes are enabled, of 10 events"):
        read_events(few, 200)


def test_a_place_that_is_neither_a_breakpoint_nor_traced_is_no_result() -> None:
    with pytest.raises(EvidenceError, match="neither a breakpoint nor a call of the function tracer: e9"):
        read_driver(DRIVER.replace("int3=500", "int3=0").replace("bytes=cc", "bytes=e9"), 1000)


def test_events_have_their_figures() -> None:
    figures = read_events(EVENTS, 200)
    rows = kprobe_cache().benchmarks["kpcache-events"]
    assert set(figures.samples) == {BASELINE, *rows.rows}
    # The shell's own work is in all of them.
    assert min(figures.samples["enable"]) > max(figures.samples[BASELINE])
    assert (figures.proof.mechanism, figures.proof.hits, figures.proof.calls) == ("int3", 100, 100)
    assert figures.row_facts["enable"] == {"step": 10}


# Are loads beside thousands of events believed only where all fits together, and their misses beside the published?

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
    assert {row: steps.numbers for row, steps in figures.marked.items()} == {
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
        ({"enable3": "enable 10: taken="}, "printed something unexpected"),
        ({"calls_with_first": "load files with first: real=1 tsc=2"}, "not run in the script's order"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, str], why: str) -> None:
    with pytest.raises(EvidenceError, match=why):
        read_load(output_of(**changes), 1000)


def cell(kernel: str, row: str, *, misses: int = 0, lookups: int = 0) -> CellRecord:
    """A cell of 1000 events, made of one of the benchmark without loads."""
    wanted = "none" if row == BASELINE else "kpcache.hit"
    (other_cell,) = [
        probe
        for probe in many_probes()
        if (probe.kernel, probe.probe, probe.benchmark) == (kernel, wanted, "kpcache")
        and probe.parameters["probes"] == 1000
    ]
    missed = {"l1d_misses": misses, "l1d_get_kprobe": lookups, "l1d_ftrace_lookup_ip": 0} if misses else {}
    return other_cell.model_copy(
        update={
            "id": f"{kernel}/{row}",
            "benchmark": "kpcache-load",
            "probe": BASELINE if row == BASELINE else f"kpcache-load.{row}",
            "metric": "cost per run",
            "parameters": {**other_cell.parameters, **missed},
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
