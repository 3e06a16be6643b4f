# SPDX-License-Identifier: GPL-2.0-only
"""Is a boot a pure task: done in another process, with the same numbers, and with nothing touched but its directory?"""

from __future__ import annotations

import dataclasses
import importlib.util
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import QUICKSTART
from experiment_boot import boot_of
from task_worker import Worker, do_task

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.calls.call_cells import CallCell
from orchestrator.benchmarks.calls.measurement import measure_call
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import EvidenceError
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import BootTask
from orchestrator.run.boot_events import CellBegan, CellRecorded, Event, GuestBooted
from orchestrator.run.ready_guest import ReadyGuest

pytestmark = pytest.mark.qemu

OF_THE_WRITING_PROCESS = {
    "orchestrator.results.store",
    "orchestrator.run.runner",
    "orchestrator.run.executor",
    "orchestrator.run.provenance",
}
"""What writes the store and shows progress: no boot loads it."""


@pytest.fixture
def task(tmp_path: Path) -> BootTask:
    """The quickstart's boot with fewer calls and probes."""
    boot = boot_of(
        QUICKSTART, "kernels=[lab-i386-up]", "benchmark.calls=100", "benchmark.repeats=2", "probes=[none, djprobe]"
    )
    return BootTask(kinds().named(boot.kind), boot, boot.cells, tmp_path / "run" / "boot1")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's store would be, in processes that are started from here too."""
    directory = tmp_path / "lab"
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(directory))
    return directory


def records(events: Sequence[Event]) -> dict[str, CellRecord]:
    return {event.record.probe: event.record for event in events if isinstance(event, CellRecorded)}


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_a_task_survives_pickling(task: BootTask) -> None:
    copied = pickle.loads(pickle.dumps(task))
    assert (copied.boot, copied.cells) == (task.boot, task.cells)
    assert (copied.directory, copied.keep_events) == (task.directory, task.keep_events)
    assert [(cell.parameters, cell.published) for cell in copied.cells] == [
        (cell.parameters, cell.published) for cell in task.cells
    ]
    assert type(copied.kind) is type(task.kind)


def test_another_process_does_it_with_the_same_outcome(
    task: BootTask, workshop: BuildContext, lab: Path, tmp_path: Path
) -> None:
    before = files_below(tmp_path)
    worker = Worker(task, BuildContext(workshop.cache, offline=True))
    there = list(worker.events())
    assert all(map(importlib.util.find_spec, OF_THE_WRITING_PROCESS))
    assert not OF_THE_WRITING_PROCESS & worker.loaded
    logs = {f"run/boot1/guest1-pentium4-lab-i386-up.{suffix}" for suffix in ("console", "counts", "qemu")}
    assert files_below(tmp_path) - before == {"run", "run/boot1", *logs}
    assert not lab.exists()

    here: list[Event] = []
    do_task(dataclasses.replace(task, directory=tmp_path / "run" / "boot2"), workshop, here.append)
    assert [record.status for record in records(there).values()] == ["ok"] * len(task.cells)
    assert list(records(there)) == list(records(here)) == [cell.probe for cell in task.cells]
    for probe, record in records(there).items():
        other_cell = records(here)[probe]
        assert (record.samples, record.value, record.reference) == (
            other_cell.samples,
            other_cell.value,
            other_cell.reference,
        )
        assert record.evidence is not None
        assert other_cell.evidence is not None
        assert (record.evidence.hits, record.evidence.int3) == (other_cell.evidence.hits, other_cell.evidence.int3)
    # One guest, and each cell's record before the next cell begins.
    (booted,) = (event for event in there if isinstance(event, GuestBooted))
    assert booted.name == "guest1-pentium4-lab-i386-up"
    steps = [event for event in there if isinstance(event, CellBegan | CellRecorded)]
    assert [step.cell if isinstance(step, CellBegan) else step.record.id for step in steps] == [
        cell.id for cell in task.cells for _ in ("began", "ended")
    ]


def test_only_the_cells_without_an_outcome_are_measured(task: BootTask, workshop: BuildContext) -> None:
    """A boot that is gone on with has all of its cells' artifacts, and its earlier guest's logs stay."""
    task.directory.mkdir(parents=True)
    first = task.directory / "guest1-pentium4-lab-i386-up.console"
    first.write_text("of an earlier guest\n")
    rest = tuple(cell for cell in task.cells if cell.probe == "djprobe")
    events: list[Event] = []
    do_task(dataclasses.replace(task, cells=rest), workshop, events.append)
    (record,) = records(events).values()
    assert (record.probe, record.status, record.overhead) == ("djprobe", "ok", None)
    assert [event.name for event in events if isinstance(event, GuestBooted)] == ["guest2-pentium4-lab-i386-up"]
    assert first.read_text() == "of an earlier guest\n"


def test_after_a_failed_cell_the_next_guest_is_restored_too(
    task: BootTask, workshop: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = task.cells

    def fail_once(ready: ReadyGuest, cell: CallCell, *further: Any) -> CellRecord:
        if cell.id == first.id:
            raise EvidenceError("as if it had failed")
        return measure_call(ready, cell, *further)

    monkeypatch.setattr("orchestrator.benchmarks.calls.kind.measure_call", fail_once)
    events: list[Event] = []
    do_task(task, workshop, events.append)
    assert [record.status for record in records(events).values()] == ["failed"] + ["ok"] * (len(task.cells) - 1)
    booted = [event for event in events if isinstance(event, GuestBooted)]
    assert len({event.name for event in booted}) == 2
    assert len({event.restored_from for event in booted}) == 1
    assert booted[0].restored_from is not None
