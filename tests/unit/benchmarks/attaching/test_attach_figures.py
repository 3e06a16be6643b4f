# SPDX-License-Identifier: GPL-2.0-only
"""Is what a guest printed of attaching believed only where all of it fits, and printed as it grows?"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from drawn_charts import curve_charts
from hypothesis import given
from hypothesis import strategies as st
from record_builders import cell, failed, run
from report_text import printed

from orchestrator.benchmarks.attaching import attach_parameters
from orchestrator.benchmarks.attaching.kind import counted_by_count, growing, parse_figures
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import ConfigError, EvidenceError
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.counted.counter import Counter
from orchestrator.results.contract import CellRecord

OUTPUT = """\
functions: all=5000 own=0 target=ffffffff810b1240
bare 10: listed=0 slab=20000 vmalloc=9000 percpu=500 ticks=50000
attach 10: wanted=10 error=0 signal=0 ns=9131722 ticks=9131800
while 10: listed=10 changed=58 slab=20004 vmalloc=9008 percpu=500 calls=50 hits=50 regions=0 ticks=63350 before=0f1f440000 live=e8a75d073f
detach 10: error=0 ns=9484055 ticks=9484100
after 10: listed=0 changed=0 slab=20004 vmalloc=9000 percpu=500
bare 0: listed=0 slab=20004 vmalloc=9000 percpu=500 ticks=50000
attach 0: wanted=5000 error=12 signal=0 ns=80 ticks=100
after 0: listed=0 changed=0 slab=20004 vmalloc=9000 percpu=500
"""  # noqa: E501 - one line a step


def test_a_count_has_its_figures() -> None:
    figures = parse_figures(OUTPUT, [10, 0, 50_000])
    assert (figures.functions, figures.address, set(figures.by_count)) == (5000, 0xFFFFFFFF810B1240, {10, 0})
    ten, everything = figures.by_count[10], figures.by_count[0]
    assert ten.held is not None
    assert (ten.memory(ten.held), ten.memory(ten.after)) == (12 << 10, 4 << 10)
    assert (ten.hits_per_call, ten.hit, len(ten.marked)) == (1, 267.0, 2)
    assert (everything.held, everything.failure, len(everything.marked)) == (None, "failed with ENOMEM", 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("while 10: listed=10", "while 10: listed=9", "lists 9 attached functions, not 10"),
        ("after 10: listed=0", "after 10: listed=1", "at step 'after 10' the kernel lists 1 attached"),
        ("attach 10: wanted=10", "attach 10: wanted=9", "the guest attached to 9 functions, not 10"),
        ("attach 0: wanted=5000", "attach 0: wanted=50", "the guest attached to 50 functions, not all"),
        ("bare 10: listed=0", "bare 10: listed=1", "at step 'bare 10' the kernel lists 1 attached"),
        ("after 0: listed=0", "after 0: listed=21", "lists 21 attached functions, after attaching failed with ENOMEM"),
        ("after 0: listed=0 changed=0", "after 0: listed=0 changed=5", "5 bytes of text are not as before"),
        ("detach 10: error=0", "detach 10: error=22", "detaching failed with error 22"),
        ("live=e8a75d073f", "live=0f1f440000", "the text of the first function is as before"),
        (
            "detach 10: error=0 ns=9484055 ticks=9484100\n",
            "",
            "the steps of 10 functions are bare, attach, while, after",
        ),
        ("attach 0: wanted", "attach 1: wanted", "the steps of all functions are bare, after"),
    ],
)
def test_what_does_not_fit_is_refused(old: str, new: str, message: str) -> None:
    assert old in OUTPUT
    with pytest.raises(EvidenceError, match=message):
        parse_figures(OUTPUT.replace(old, new), [10, 0])


def test_calls_must_be_hit_equally_often_and_failures_must_fail() -> None:
    uneven = parse_figures(OUTPUT.replace("hits=50", "hits=51"), [10])
    with pytest.raises(EvidenceError, match="51 hits in 50 calls"):
        _ = uneven.by_count[10].hits_per_call
    with pytest.raises(EvidenceError, match="memory did not run out: 10 functions were attached in what was left"):
        _ = uneven.by_count[10].failure
    killed = parse_figures(OUTPUT.replace("error=12 signal=0", "error=0 signal=9"), [0])
    assert killed.by_count[0].failure == "was ended by signal 9, as memory ran out"


LIVEPATCH = """\
functions: all=10 own=0 target=ffffffff810b1240
bare 1: listed=0 slab=20000 vmalloc=9000 percpu=500 ticks=150
attach 1: wanted=1 error=0 signal=0 ns=3 ticks=3
while 1: listed=1 changed=13 slab=20000 vmalloc=9000 percpu=500 calls=50 hits=0 regions=4 ticks=200 before=0f live=e8
detach 1: error=0 ns=4 ticks=4
after 1: listed=0 changed=0 slab=20000 vmalloc=9000 percpu=500
"""
PATCHED = Symbols(
    b"ffffffff81000000 T _stext\nffffffff81000100 t klp_ftrace_handler\n"
    b"ffffffff81000200 t asm_exc_page_fault\nffffffff81000300 T _etext\n"
)


def counter(file: Path, *regions: tuple[int, int]) -> Counter:
    """Of regions with so many instructions, so many of them the handler's first."""
    file.write_text(
        "".join(
            f"region {total} 2\nffffffff81000000 90 {total - hits} 0 0 0\nffffffff81000100 90 {hits} 0 0 0\n"
            for total, hits in regions
        )
    )
    return Counter(cast(Guest, SimpleNamespace(counts_file=file)), PATCHED)


def test_hits_that_the_mechanism_does_not_count_are_entries_of_its_handler(tmp_path: Path) -> None:
    """Of the least batches: a timer's tick, with a hit of its own, is in one of each length."""
    figures = parse_figures(LIVEPATCH, [1])
    counted = counted_by_count(
        counter(tmp_path / "counts", (4, 0), (300, 50), (531, 101), (331, 51), (500, 100), (5, 0)), figures
    )
    one = counted[1].steps
    assert (one.hits, one.hits_per_call, one.hit) == (50, 1, 1.0)
    assert counted[1].detach is not None
    assert (counted[1].attach.together.total, counted[1].detach.together.total) == (4, 5)


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ([(4, 0), (300, 50), (500, 100), (300, 50), (500, 100)], "QEMU has kept no instructions of 1 functions"),
        ([(4, 0), (300, 50), (501, 100), (300, 50), (501, 100), (5, 0)], "QEMU counted 201 instructions in 50 calls"),
        ([(4, 0), (300, 50), (500, 101), (300, 50), (500, 101), (5, 0)], "51 hits in 50 calls"),
        ([(4, 0), (300, 0), (500, 0), (300, 0), (500, 0), (5, 0)], "QEMU counted 0 hits in 50 calls"),
    ],
)
def test_hits_that_the_plugin_cannot_prove_are_refused(
    tmp_path: Path, regions: list[tuple[int, int]], message: str
) -> None:
    with pytest.raises(EvidenceError, match=message):
        _ = counted_by_count(counter(tmp_path / "counts", *regions), parse_figures(LIVEPATCH, [1]))[
            1
        ].steps.hits_per_call


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789=: \n", max_size=200))
def test_any_output_is_parsed_or_refused(noise: str) -> None:
    with pytest.raises(EvidenceError):
        parse_figures(noise, [1])


EXPERIMENT = """\
name: attaching
kernels: [debian-amd64]
machines: [{cpu: xeon-e5410}]
benchmark: {name: attach, counts: [1, all]}
"""


def test_each_mechanism_has_a_guest_for_all_counts(tmp_path: Path) -> None:
    file = tmp_path / "attaching.yaml"
    file.write_text(EXPERIMENT + "probes: [attach.kprobes, attach.fentry]\n")
    experiment = load_experiment(file, kinds())
    planned = plan(experiment)
    assert [[one.id.split("/", 2)[2] for one in boot.cells] for boot in planned.boots] == [
        ["attach.kprobes/1", "attach.kprobes/all"],
        ["attach.fentry/1", "attach.fentry/all"],
    ]
    file.write_text(experiment.resolved_yaml())
    assert load_experiment(file, kinds()) == experiment


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[1, all]", "[0]", "expected up to 20 different numbers"),
        ("[1, all]", "[1, 1]", "expected up to 20 different numbers"),
        ("[1, all]", "[every]", "expected up to 20 different numbers"),
        ("[1, all]", "[1, 2], fault: name", "with a fault there is one count of at least 2"),
        ("[1, all]", "[1], fault: memory", "with a fault there is one count of at least 2"),
    ],
)
def test_wrong_counts_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "attaching.yaml"
    file.write_text(EXPERIMENT.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_experiment(file, kinds())


def attached(mechanism: str, count: int, each: float, asked: str = "") -> CellRecord:
    identity = {"id": f"x/attach.{mechanism}/{asked or count}", "probe": f"attach.{mechanism}", "benchmark": "attach"}
    figures = {
        attach_parameters.FUNCTIONS: asked or str(count),
        attach_parameters.ATTACHED_FUNCTIONS: count,
        attach_parameters.DETACH: int(each * count / 2),
        attach_parameters.ATTACH_NS: 5_000_000,
        attach_parameters.DETACH_NS: 2_000_000,
        attach_parameters.KEPT_BYTES: 64 * count,
        attach_parameters.LEFT_BYTES: 0,
        attach_parameters.TEXT_BYTES: 5 * count,
        attach_parameters.IPI_ROUNDS: 18,
        attach_parameters.DETACH_IPI_ROUNDS: 15,
        attach_parameters.GRACE_PERIODS: 1,
        attach_parameters.DETACH_GRACE_PERIODS: 2,
        attach_parameters.HIT: 267.0,
        attach_parameters.HITS_PER_CALL: 1,
        attach_parameters.GROWS: "ftrace_lookup_ip 34.2 %",
    }
    value = each * count
    return cell(
        "kprobe",
        **identity,
        metric="cost of attaching",
        handler="count",
        parameters=figures,
        samples=[value],
        value=value,
        overhead=None,
        interval=None,
    )


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"a": 10, "b": 10}, {"a": 40, "b": 20, "c": 5}, "a 66.7 %, b 22.2 %, c 11.1 %"),
        ({"a": 10, "b": 10}, {"a": 30, "b": 5}, "a 100.0 %"),
        ({"a": 10}, {"a": 10}, None),
    ],
)
def test_only_what_is_more_grows(before: dict[str, int], now: dict[str, int], expected: str | None) -> None:
    assert growing(before, now) == expected


CELLS = [
    *(attached("kprobe-multi", count, 100.0) for count in (1, 100, 1000)),
    attached("kprobe-multi", 58_123, 100.0, "all"),
    *(attached("kprobes", count, 50.0 * count) for count in (1, 100, 1000, 10_000)),
    *(attached("fprobe", count, 50.0 * count) for count in (1, 100, 1000)),
]


def test_the_table_has_each_count_and_how_it_grows() -> None:
    """And no exponent of two numbers, as of the fprobe."""
    text = printed(run(*CELLS), 200)
    lines = text.splitlines()
    everything = next(line for line in lines if "all: 58123" in line)
    assert everything.split()[2:6] == ["5812300", "2906150", str(64 * 58_123), "0"]
    assert "18 / 15" in everything
    assert [line.split()[1:] for line in lines if line.startswith("  exponent")] == [
        ["1.00", "1.00"],
        ["2.00", "2.00"],
    ]
    assert "What grows up to kprobe.multi, all: 58123: ftrace_lookup_ip 34.2 %." in text


def test_a_fault_is_printed_with_its_reason() -> None:
    reason = "attaching to 1000 functions failed with ENOENT; nothing is attached"
    figures = {attach_parameters.FUNCTIONS: "1000", attach_parameters.FAULT: "name"}
    one = failed("kprobe", reason, id="x/1", probe="attach.kprobes", benchmark="attach", parameters=figures)
    text = " ".join(printed(run(one)).split())
    assert f"kprobes on ftrace, one by one, 1000 failed: {reason}" in text


def test_costs_are_curves_over_the_number_of_functions() -> None:
    drawn = curve_charts(run(*CELLS))
    at_once, one_by_one = (
        next(chart for name, chart in drawn.items() if name.endswith(end)) for end in ("once", "one")
    )
    attach, detach, memory = at_once.panes
    assert [curve.name for curve in attach.curves] == ["kprobe.multi", "an fprobe"]
    assert attach.curves[0].points[-1] == (58_123, 5_812_300)
    assert detach.curves[0].points[0] == (1, 50)
    assert memory.curves[0].points[1] == (100, 6400)
    assert [curve.name for curve in one_by_one.panes[0].curves] == ["kprobes on ftrace, one by one"]
