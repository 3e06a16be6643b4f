# SPDX-License-Identifier: GPL-2.0-only
"""Two kernels of one matrix side by side, with what the second takes more; and what stays apart."""

from __future__ import annotations

from typing import Any

import pytest
from record_builders import COUNTS, cell, failed, reference, run
from report_text import check_golden, printed

from orchestrator.benchmarks.registry import reports
from orchestrator.report.kind import charts
from orchestrator.report.text import render_markdown, summary
from orchestrator.results.contract import CellRecord

SECOND = {"none": 12.0, "kprobe": 15.0, "jprobe": 0.0, "djprobe": -2.0}


def on(kernel: str, more: dict[str, float] | None = None, **changes: Any) -> list[CellRecord]:
    """The quickstart's cells on a kernel, each of which costs ``more``; no document's layout."""
    more = more or dict.fromkeys(COUNTS, 0.0)
    built = []
    for probe, count in COUNTS.items():
        value = count + more[probe]
        overhead = value - COUNTS["none"] - more["none"]
        numbers = {"samples": [value] * 2, "value": value, "overhead": overhead, "interval": [overhead, overhead]}
        identity = {"id": f"pentium4/{kernel}/{probe}/noop", "kernel": kernel}
        built.append(cell(probe, **identity, **numbers, **changes))
    return built


def test_two_kernels_are_side_by_side() -> None:
    check_golden("two_kernels", run(*on("lab-i386-up"), *on("debian-686", SECOND)))


def test_markdown_has_the_same_columns() -> None:
    text = render_markdown(run(*on("lab-i386-up"), *on("debian-686", SECOND)), reports())
    assert "|  | lab-i386-up | debian-686 | difference |  |" in text
    assert "| kprobes | 1036 | 1051 | +15 | +1.45 % |" in text
    assert text.count("## Overhead of probes") == 1


def test_the_summary_begins_with_the_largest_difference() -> None:
    found = summary(run(*on("lab-i386-up"), *on("debian-686", SECOND)), reports())
    assert found[0] == "Largest difference from lab-i386-up to debian-686: kprobes, +15 instructions a call (+1.45 %)."
    assert found[1] == "Largest overhead, lab-i386-up: jprobe, 1280 instructions a call (+313 %)."
    same = summary(run(*on("lab-i386-up"), *on("debian-686")), reports())
    assert same[0] == "Calls cost the same on lab-i386-up, debian-686."


def test_purposes_are_compared_too() -> None:
    spent = {"trap": 400.0, "other": 227.0}
    first, second = on("a")[1], on("b", {**SECOND, "none": 0.0})[1]
    record = run(
        on("a")[0],
        CellRecord.model_validate({**first.model_dump(), "purposes": spent}),
        on("b")[0],
        CellRecord.model_validate({**second.model_dump(), "purposes": {**spent, "trap": 415.0}}),
    )
    (row,) = (line.split() for line in printed(record).splitlines() if "trap entry and exit" in line)
    assert row[-5:] == ["400", "415", "+15", "+3.75", "%"]


def test_what_one_kernel_cannot_have_is_said() -> None:
    second = on("debian-686", SECOND)
    refusal = "no such probe on this kernel"
    second[2] = failed("jprobe", refusal, status="unsupported", id=second[2].id, kernel="debian-686")
    lines = printed(run(*on("lab-i386-up"), *second[:3])).splitlines()
    assert next(line.split() for line in lines if line.startswith("jprobe ")) == [
        *("jprobe", "1689", "unsupported", "[1]", "-", "-")
    ]
    assert next(line.split() for line in lines if line.startswith("djprobe ")) == ["djprobe", "462", "-", "-", "-"]
    assert any(line == f"[1] jprobe on debian-686 unsupported: {refusal}" for line in lines)


def test_three_kernels_are_compared_with_the_first() -> None:
    text = printed(run(*on("a"), *on("b", SECOND), *on("c", dict.fromkeys(COUNTS, 1.0))), width=120)
    assert next(line.split() for line in text.splitlines() if line.startswith("kprobes")) == [
        *("kprobes", "1036", "1051", "+15", "+1.45", "%", "1037", "+1", "+0.10", "%")
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"reference": reference("kprobe")},
        {"clock": "wall", "unit": "ns"},
        {"cpu": "athlon"},
        {"handler": "record"},
        {"parameters": {"at": "do_fork"}},
    ],
)
def test_what_differs_in_more_or_has_a_layout_stays_apart(changes: dict[str, Any]) -> None:
    text = printed(run(*on("lab-i386-up"), *on("debian-686", SECOND, **changes)))
    assert "on 2 kernels" not in text
    both = printed(run(*on("lab-i386-up", **changes), *on("debian-686", SECOND, **changes)))
    assert ("on 2 kernels" in both) == (not {"reference", "clock"} & set(changes))


def test_each_kernel_has_its_chart() -> None:
    drawn = charts(run(*on("lab-i386-up", table="t"), *on("debian-686", SECOND, table="t")), reports())
    assert sorted(drawn) == ["t-debian-686", "t-lab-i386-up"]
