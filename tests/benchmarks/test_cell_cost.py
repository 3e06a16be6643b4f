# SPDX-License-Identifier: GPL-2.0-only
"""What do many points cost in one guest: modules, guests, and the lab's own time and memory for each cell?"""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.benchmarks.calls.kind import KIND
from orchestrator.benchmarks.calls.table import CallsTable
from orchestrator.experiment.experiment import Experiment, Heading, NamedTable
from orchestrator.experiment.plan import Boot, plan
from orchestrator.paths import cache_dir
from orchestrator.run.artifacts import prepare
from orchestrator.run.boot import BootTask, Session, run_boot
from orchestrator.run.events import Event, GuestBooted, Outcome
from orchestrator.run.preparation import Ready

KERNEL = "lab-i386-up"
PROBES = ["none", "kprobe", "kprobe-plain", "kprobe-optimized"]
ENTERED = ["__ia32_sys_gettimeofday", "ktime_get_real_ts64"]
POINTS = 100
SHARE_OF_FIRST = 1.5
"""The memory that 400 cells may take, in that of the first 40: symbols and text are read once a guest."""

pytestmark = pytest.mark.qemu


def boot_at(points: list[str]) -> Boot:
    table = CallsTable.model_validate(
        {
            "kernels": [KERNEL],
            "machines": [{"cpu": "pentium4"}],
            "probes": PROBES,
            "points": points,
            "benchmark": {"name": "gtodbench", "calls": 1000, "repeats": 2},
        }
    )
    (boot,) = plan(Experiment(Heading(name="points"), [NamedTable(None, KIND, table)])).boots
    return boot


def test_four_hundred_cells_share_modules_and_a_guest(tmp_path: Path) -> None:
    context = BuildContext(Cache(cache_dir()))
    kernel = prepare(context, KIND, boot_at(ENTERED)).kernel
    assert kernel.code is not None
    names = sorted({one.name for one in kernel.code.symbols if one.name.startswith("__ia32_sys_")} - {*ENTERED})
    boot = boot_at([*ENTERED, *names[: POINTS - len(ENTERED)]])
    artifacts = prepare(context, KIND, boot)
    ready = [prepared for prepared in artifacts.cells.values() if isinstance(prepared, Ready)]
    assert len(ready) == POINTS * len(PROBES)
    modules = {module.key for prepared in ready for module in prepared.modules}
    assert len(modules) < len(PROBES)  # one of each form, for all points

    memory: list[int] = []
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, Outcome):
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    began, spent = time.monotonic(), time.process_time()
    run_boot(Session(BootTask(KIND, boot, boot.cells, artifacts.keys, tmp_path / "boot1"), artifacts, context, emit))
    cells = len(memory)
    print(
        f"\n{cells} cells in {time.monotonic() - began:.1f} s, "
        f"{1000 * (time.process_time() - spent) / cells:.1f} ms of the lab's own CPU each, "
        f"{memory[39] // 1024} MiB after 40 cells and {memory[-1] // 1024} after all"
    )
    assert cells == POINTS * len(PROBES)
    assert sum(isinstance(event, GuestBooted) for event in events) == 1
    ok = [event.record for event in events if isinstance(event, Outcome) and event.record.status == "ok"]
    assert len(ok) == POINTS + len(ENTERED) * (len(PROBES) - 1)
    assert memory[-1] < SHARE_OF_FIRST * memory[39]
