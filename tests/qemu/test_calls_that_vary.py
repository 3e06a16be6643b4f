# SPDX-License-Identifier: GPL-2.0-only
"""Does a probe cost calls that allocate and free memory what it costs calls that are all alike?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from elsewhere import ELSEWHERE
from experiment_boot import boot_of, measured_call, prepared_for

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.calls.kind import KIND
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

EXPERIMENT = """\
name: vary
kernels: ["{kernel}"]
machines: [{{cpu: xeon-e5410}}]
points: [do_sys_openat2]
probes: [none, bpf-fentry]
tables:
  alike: {{benchmark: {{name: syscall, call: openat, arguments: [-100, "", 0], expect: ENOENT, calls: 1000}}}}
  vary: {{benchmark: {{name: workload, file: {workload}, calls: 1000}}}}
"""
WORKLOAD = Path(__file__).with_name("workloads") / "opening.c"
KERNELS = [
    pytest.param(
        kernel,
        marks=[
            pytest.mark.guest(kernel=kernel, cpu="xeon-e5410", timing="instructions"),
            *([ELSEWHERE, pytest.mark.kernels(kernel)] if "@" in kernel else []),
        ],
    )
    for kernel in ("debian-amd64", "debian-amd64@6.12", "debian-amd64@7.3")
]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_probe_costs_calls_that_vary_what_it_costs_others(
    ready: ReadyGuest, workshop: BuildContext, tmp_path: Path, kernel: str
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(EXPERIMENT.format(kernel=kernel, workload=WORKLOAD))
    boot = boot_of(file)
    prepared = prepared_for(ready, workshop, boot)
    cells: dict[str, list[CellRecord]] = {"alike": [], "vary": []}
    for cell in boot.cells:
        before = cells[cell.table or ""]
        before.append(KIND.compare(cast("Any", cell), measured_call(prepared, cell), before[:1]))
    (_, alike), (plain, probed) = cells["alike"], cells["vary"]
    assert alike.overhead is not None
    assert probed.overhead == pytest.approx(alike.overhead, rel=0.01)
    assert probed.interval is not None
    assert probed.interval[0] <= alike.overhead <= probed.interval[1]
    if kernel == "debian-amd64":  # later kernels refill their slabs less often than once in a thousand calls
        assert all(len(set(one.samples)) > 1 for one in (plain, probed))
        assert all(any(note.startswith("calls vary: ") for note in one.notes) for one in (plain, probed))
