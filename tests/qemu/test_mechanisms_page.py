# SPDX-License-Identifier: GPL-2.0-only
"""Are the figures on the page about choosing a mechanism those of configs/today.yaml, and what it lacks unsupported?"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from experiment_boot import boot_of, measured_call, prepared_for

from orchestrator.artifacts.cache import BuildContext
from orchestrator.paths import data_dir
from orchestrator.run.boot import ReadyGuest

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
NOTHING = "-"
"""For want of an option, or of a handler."""
TOO_OLD = re.compile(r"Linux has this since ([\d.]+) \(commit ")


def figures(kernel: str) -> Mapping[str, str]:
    """A kernel's column of the page's only table that has it, by the probe."""
    tables = [
        [[part.strip(" `") for part in line.strip("|").split("|")] for line in paragraph.splitlines()]
        for paragraph in PAGE.read_text().split("\n\n")
        if paragraph.startswith("| probe |")
    ]
    (rows,) = (table for table in tables if kernel in table[0])
    column = rows[0].index(kernel)
    return {row[0]: row[column] for row in rows[2:]}


def lacking(reason: str) -> str:
    """What the page has in place of a figure."""
    found = TOO_OLD.match(reason)
    if found is not None:
        return f"since {found[1]}"
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
    boot = boot_of(CONFIG, f"kernels=[{kernel}]")
    ready = prepared_for(ready, workshop, boot)
    records = {cell.id: measured_call(ready, cell) for cell in boot.cells}
    found: dict[str, list[str]] = {}
    for cell in boot.cells:
        record = records[cell.id]
        assert record.status in ("ok", "unsupported"), record.reason
        if not cell.compared_with:
            continue
        (baseline,) = cell.compared_with
        before = records[baseline].value
        assert before is not None
        figure = lacking(record.reason or "") if record.value is None else f"{record.value - before:.0f}"
        found.setdefault(cell.probe, []).append(figure)
    shown = {probe: values[0] if len(set(values)) == 1 else " / ".join(values) for probe, values in found.items()}
    assert shown == figures(kernel)
