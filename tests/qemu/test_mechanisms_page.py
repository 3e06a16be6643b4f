# SPDX-License-Identifier: GPL-2.0-only
"""Are the figures on the page about choosing a mechanism those of configs/today.yaml, and what it lacks unsupported?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest
from experiment_boot import boot_of, measured_call, prepared_for

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.errors import EvidenceError
from orchestrator.paths import data_dir
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

PAGE = data_dir("docs") / "mechanisms.md"
CONFIG = data_dir("configs") / "today.yaml"
KERNELS = [
    "lab-x86_64-smp-bpf",
    "lab-x86_64-smp-bpf@6.12",
    "lab-x86_64-smp-bpf@7.3",
    "lab-i386-smp-bpf",
    "lab-i386-smp-bpf@6.12",
    "debian-amd64@7.3",
]
LACKING = "64 bits only"
_UNEVEN = 0.0011
"""Fraction of a call that recorded events may differ by, and half of the last digit (call_programs.py)."""
NOTHING = "-"
"""For want of an option, or of a handler."""
TOO_OLD = re.compile(r"Linux has this since ([\d.]+) \(commit ")


def table_of(column: str, first: str = "probe") -> Sequence[Sequence[str]]:
    """The rows of the page's only table with these columns."""
    tables = [
        [[part.strip(" `") for part in line.strip("|").split("|")] for line in paragraph.splitlines()]
        for paragraph in PAGE.read_text().split("\n\n")
        if paragraph.startswith("| ")
    ]
    (rows,) = (table for table in tables if table[0][0] == first and column in table[0])
    return rows


def figures(column: str, first: str = "probe") -> Mapping[str, str]:
    """A column of the page's only table that has it, by the probe."""
    rows = table_of(column, first)
    return {row[0]: row[rows[0].index(column)] for row in rows[2:]}


def lacking(reason: str) -> str:
    """What the page has in place of a figure."""
    match = TOO_OLD.match(reason)
    if match is not None:
        return f"since {match[1]}"
    return LACKING if "CONFIG_X86_64" in reason else NOTHING


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(
            kernel,
            marks=[
                pytest.mark.kernels(kernel),
                pytest.mark.guest(kernel=kernel, cpu="xeon-e5410", timing="instructions"),
            ],
        )
        for kernel in KERNELS
    ],
)
@pytest.mark.nightly("120 cells on a kernel of each kind: a minute")
def test_the_page_has_what_is_measured(ready: ReadyGuest, workshop: BuildContext, kernel: str) -> None:
    found = measured(ready, workshop, f"kernels=[{kernel}]")
    each = {probe: [*values.values()] for probe, values in found.items()}
    shown = {probe: values[0] if len({*values}) == 1 else " / ".join(values) for probe, values in each.items()}
    page = figures(kernel)
    assert {probe: text for probe, text in shown.items() if not is_like(text, page.get(probe, ""))} == {}
    assert shown.keys() == page.keys()


def is_like(one: str, other: str) -> bool:
    """Whether figures are equal but for how many recorded events begin a page of their buffer."""
    (*counts, record), (*other_counts, other_record) = one.split(" / "), other.split(" / ")
    if not record.isdigit() or not other_record.isdigit():
        return one == other
    return counts == other_counts and abs(int(record) - int(other_record)) <= _UNEVEN * int(other_record)


@pytest.mark.kernels("debian-amd64@7.3")
@pytest.mark.guest(kernel="debian-amd64@7.3", cpu="xeon-e5410", timing="instructions")
@pytest.mark.nightly("each stack and each fetched value: a minute")
def test_the_page_has_what_stacks_and_fetched_values_take(ready: ReadyGuest, workshop: BuildContext) -> None:
    kernel, fetches = "debian-amd64@7.3", [column for column in table_of("fetch-1", "event")[0] if "fetch-" in column]
    found = measured(ready, workshop, f"kernels=[{kernel}]", f"handlers=[stack, {', '.join(fetches)}]")
    for column in fetches:
        shown = figures(column, "event")
        assert {probe: found[probe][column] for probe in shown} == shown
    stacks = {
        probe: (found[probe]["stack"], one or NOTHING) for probe, one in figures(kernel, "handler `stack").items()
    }
    assert not {probe: both for probe, both in stacks.items() if not alike(*both)}
    recorded = {probe: one.rpartition(" / ")[2] for probe, one in figures(kernel).items()}
    records = figures("record", "event")
    assert {probe: recorded[probe] for probe in records} == records


def alike(found: str, shown: str) -> bool:
    """Whether a stack costs what the page says: unwinding takes longer or shorter, by where in memory trampolines are.

    While a program unwinds, another task may run on its CPU: the kernel skips the program there, and the cell fails.
    """
    if shown.isdigit() and found.isdigit():
        return abs(int(found) - int(shown)) <= 0.03 * int(shown)
    return found == shown or "the kernel skipped the BPF program" in found


def measured(ready: ReadyGuest, workshop: BuildContext, *overrides: str) -> Mapping[str, Mapping[str, str]]:
    """The figures of the file on a kernel, by probe and handler."""
    boot = boot_of(CONFIG, *overrides)
    ready = prepared_for(ready, workshop, boot)
    records = dict[str, CellRecord]()
    found: dict[str, dict[str, str]] = {}
    for cell in boot.cells:
        try:
            record = records[cell.id] = measured_call(ready, cell)
        except EvidenceError as error:
            found.setdefault(cell.probe, {})[cell.handler] = error.what
            continue
        assert record.status in ("ok", "unsupported"), record.reason
        if not cell.compared_with:
            continue
        (baseline,) = cell.compared_with
        before = records[baseline].value
        assert before is not None
        figure = lacking(record.reason or "") if record.value is None else f"{record.value - before:.0f}"
        found.setdefault(cell.probe, {})[cell.handler] = figure
    return found
