# SPDX-License-Identifier: GPL-2.0-only
"""What do many points cost in one guest: modules, guests, and the lab's own time and memory for each cell?"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.calls.kind import KIND
from orchestrator.experiment.experiment import Experiment, Heading, NamedTable
from orchestrator.experiment.plan import Boot, plan
from orchestrator.paths import cache_dir
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import BootArtifacts, BootTask, Ready, Session
from orchestrator.run.boot import run_boot
from orchestrator.run.boot_events import CellRecorded, Event, GuestBooted
from orchestrator.run.boot_preparation import prepare

KERNEL = "lab-i386-up"
PROBES = ["none", "kprobe", "kprobe-plain", "kprobe-optimized"]
ENTERED = ["__ia32_sys_gettimeofday", "ktime_get_real_ts64"]
POINTS = 100
MEASURED_PROBES = ["none", "kprobe", "jprobe", "djprobe"]
MEASURED_CALLS: list[str] = yaml.safe_load(Path(__file__).with_name("measured_calls.yaml").read_text())
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


def measured_boot() -> Boot:
    """The function of each call is probed while that call is made, so that each cell has a number."""
    tables = [
        NamedTable(
            call,
            KIND,
            CallsTable.model_validate(
                {
                    "kernels": [KERNEL],
                    "machines": [{"cpu": "pentium4"}],
                    "probes": MEASURED_PROBES,
                    "benchmark": {"name": "syscall", "call": call, "arguments": [-1] * 6, "calls": 1000, "repeats": 2},
                }
            ),
        )
        for call in MEASURED_CALLS
    ]
    (boot,) = plan(Experiment(Heading(name="calls"), tables)).boots
    return boot


@dataclass(frozen=True)
class Spent:
    """What a boot's cells took: seconds by the host's clock, of the lab's CPU, and of QEMU's and the guests' builders.

    ``memory`` is the lab's largest resident size in KiB, after each cell.
    """

    elapsed: float
    own: float
    children: float
    memory: Sequence[int]
    events: Sequence[Event]

    def __str__(self) -> str:
        cells = len(self.memory)
        return (
            f"{cells} cells in {self.elapsed:.1f} s, {1000 * self.own / cells:.1f} ms of the lab's own CPU each and "
            f"{1000 * self.children / cells:.0f} ms of QEMU's, {self.memory[39] // 1024} MiB after 40 cells and "
            f"{self.memory[-1] // 1024} after all, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
        )

    @property
    def records(self) -> Sequence[CellRecord]:
        return [event.record for event in self.events if isinstance(event, CellRecorded)]


def spent(context: BuildContext, boot: Boot, artifacts: BootArtifacts, folder: Path) -> Spent:
    """Measure all cells of a boot."""
    memory: list[int] = []
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, CellRecorded):
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    began, own, children = time.monotonic(), time.process_time(), _children()
    run_boot(Session(BootTask(KIND, boot, boot.cells, folder), artifacts, context, emit))
    return Spent(time.monotonic() - began, time.process_time() - own, _children() - children, memory, events)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cold_cache(folder: Path) -> Cache:
    """A cache that has all of the user's but modules."""
    folder.mkdir()
    for kind in cache_dir().iterdir():
        if kind.name not in ("modules", "module-folders", "prepared-builds", "locks", "slots"):
            (folder / kind.name).symlink_to(kind)
    return Cache(folder)


def test_four_hundred_measured_cells_with_cold_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The aim is 90 s on two idle cores, and 15 ms of the lab's own CPU a cell."""
    boot = measured_boot()
    prepare(BuildContext(Cache(cache_dir())), KIND, boot)  # whatever is missing of the kernel
    context = BuildContext(cold_cache(tmp_path / "cache"))
    began = time.monotonic()
    artifacts = prepare(context, KIND, boot)
    built = time.monotonic() - began
    ready = [prepared for prepared in artifacts.cells.values() if isinstance(prepared, Ready)]
    modules = {module.key for prepared in ready for module in prepared.modules}
    taken = spent(context, boot, artifacts, tmp_path / "boot1")
    with capsys.disabled():
        print(f"\n{len(modules)} modules built in {built:.1f} s; {taken}")
    assert [record.status for record in taken.records] == ["ok"] * len(MEASURED_CALLS) * len(MEASURED_PROBES)
    assert len(modules) == len(MEASURED_PROBES) - 1
    assert sum(isinstance(event, GuestBooted) for event in taken.events) == 1
    assert taken.memory[-1] < SHARE_OF_FIRST * taken.memory[39]


def test_four_hundred_cells_share_modules_and_a_guest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context = BuildContext(Cache(cache_dir()))
    kernel = prepare(context, KIND, boot_at(ENTERED)).kernel
    assert kernel.code is not None
    names = sorted(
        {symbol.name for symbol in kernel.code.symbols if symbol.name.startswith("__ia32_sys_")} - {*ENTERED}
    )
    boot = boot_at([*ENTERED, *names[: POINTS - len(ENTERED)]])
    artifacts = prepare(context, KIND, boot)
    ready = [prepared for prepared in artifacts.cells.values() if isinstance(prepared, Ready)]
    assert len(ready) == POINTS * len(PROBES)
    modules = {module.key for prepared in ready for module in prepared.modules}
    assert len(modules) < len(PROBES)  # one of each form, for all points

    taken = spent(context, boot, artifacts, tmp_path / "boot1")
    with capsys.disabled():
        print(f"\n{taken}")
    assert len(taken.records) == POINTS * len(PROBES)
    assert sum(isinstance(event, GuestBooted) for event in taken.events) == 1
    ok = [record for record in taken.records if record.status == "ok"]
    assert len(ok) == POINTS + len(ENTERED) * (len(PROBES) - 1)
    assert taken.memory[-1] < SHARE_OF_FIRST * taken.memory[39]
