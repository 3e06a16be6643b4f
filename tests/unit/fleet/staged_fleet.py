# SPDX-License-Identifier: GPL-2.0-only
"""A fleet whose workers are played: a link to nobody, and what comes from it in an order that a test chooses.

Nothing here waits. Whatever the executor asks for is under way until it wants to hear something; then one thing more
happens, of those that can.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from loaded_tables import calls_experiment
from record_builders import cell as a_record

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import BuildError, LabError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.plan import plan
from orchestrator.fleet.fleet_executor import FleetExecutor
from orchestrator.fleet.link import Ended, Joined, Left, Link, Message, Notice, T
from orchestrator.fleet.members import OVERHEAD_MIB
from orchestrator.fleet.messages import BEGINS, Body, FileMessage, sent
from orchestrator.fleet.transfer import Bundle, unbundled
from orchestrator.fleet.trust import counts
from orchestrator.fleet.worker import Answer, Versions
from orchestrator.guest.machine import Machine
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import BootArtifacts, BootTask, Ready
from orchestrator.run.boot_events import CellBegan, CellRecorded, GuestBooted, Progress
from orchestrator.run.cell_records import identity
from orchestrator.run.executor import ExecutorEvent, Job, JobEnded
from orchestrator.run.runner import ProgressListener

HERE = Versions(project="0.9", code="0123456789abcdef", python="3.11", qemu="7.2.15")
CPUS = ("pentium4", "athlon", "pentium-m", "athlon64", "xeon-e5410")
ROWS = ("none", "kprobe", "djprobe")
_COUNTS = {"none": 409.0, "kprobe": 1036.0, "djprobe": 462.0}

_MOST_STEPS = 20_000
"""A run that takes more never ends."""


def record_of(cell: Cell[Any], surplus: float = 0.0) -> CellRecord:
    """What a machine counts in a cell; one that counts wrong counts a surplus."""
    value = _COUNTS[cell.probe] + surplus
    effect = {"overhead": 0.0, "interval": (0.0, 0.0)} if cell.probe == "none" else {"overhead": None, "interval": None}
    known = {**cell.parameters, "kernel_release": "6.1.0"}
    return a_record(cell.probe, **identity(cell), parameters=known, samples=(value, value), value=value, **effect)


def jobs_of(folder: Path, number: int, *, memory_mib: int = 256, clock: str = "instructions") -> list[Job]:
    """As many boots of three cells, with artifacts for no machine."""
    machines = [{"cpu": cpu} for cpu in CPUS[:number]]
    boots = plan(calls_experiment(probes=list(ROWS), machines=machines)).boots
    made = []
    for position, boot in enumerate(boots, start=1):
        timed = replace(boot, clock=clock)  # type: ignore[arg-type]
        task = BootTask(kinds().named(boot.kind), timed, boot.cells, folder / f"boot{position}")
        made.append(Job(task, _artifacts(boot.cells, memory_mib)))
    return made


def _artifacts(cells: Sequence[Cell[Any]], memory_mib: int) -> BootArtifacts:
    kernel = SimpleNamespace(
        spec=kernel_spec("lab-i386-up"), key="k", release="6.1.0", code_folder=None, headers=Path("/nowhere")
    )
    machine = SimpleNamespace(initramfs=Path("i/initramfs"), root=None, counter=None, memory_mib=memory_mib)
    return BootArtifacts(cast(Kernel, kernel), cast(Machine, machine), {cell.id: Ready(None) for cell in cells})


@dataclass
class Boot:
    """A boot that a worker has under way, and what the worker will say of it."""

    attempt: str
    worker: Worker
    task: BootTask
    memory_mib: int
    script: Iterator[Notice] = field(default_factory=lambda: iter(()))

    @property
    def is_calibration(self) -> bool:
        return self.task.directory.name == "calibration"

    def tell(self, body: Body) -> Message:
        """The next message."""
        return Message(sent(self.attempt, body))

    def end(self, error: BaseException | None = None) -> Ended:
        """How it ended."""
        return Ended(self.attempt, error)


Script = Callable[[Boot], Iterator[Notice]]


def honest(boot: Boot) -> Iterator[Notice]:
    """What a boot says that goes well."""
    yield boot.tell(Progress(BEGINS))
    yield boot.tell(GuestBooted(f"guest{boot.task.guests + 1}-{boot.task.boot.guest.cpu}", ("qemu",)))
    for cell in boot.task.cells:
        yield boot.tell(CellBegan(cell.id))
        yield boot.tell(CellRecorded(record_of(cell, boot.worker.surplus)))
    yield boot.tell(FileMessage(name=f"guest{boot.task.guests + 1}.console", content=b"Linux"))
    yield boot.end()


@dataclass
class Worker:
    """A worker that is played."""

    name: str
    address: str
    guests: int = 2
    memory_mib: int = 4096
    versions: Versions = HERE
    script: Script = honest
    """What it says of a boot."""
    calibrates: Script = honest
    """What it says of the calibration."""
    surplus: float = 0.0
    """What it counts too much."""
    is_alive: bool = True


class _Heard(queue.SimpleQueue[Any]):
    """The executor's queue: where nothing is in it, something happens."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        while True:
            try:
                return self.get_nowait()
            except queue.Empty:
                if not self._stage.step():
                    self._stage.silences += 1
                    raise


class Stage(Link):
    """The link of an executor to workers that are played. ``choose`` picks the next of so many possible things."""

    def __init__(self, choose: Callable[[int], int] = lambda number: 0) -> None:
        self.inbox = _Heard(self)
        self.choose = choose
        self.is_broken = False
        self.workers: dict[str, Worker] = {}
        self.boots: dict[str, Boot] = {}
        self.started: list[Boot] = []
        self.cancelled: list[str] = []
        self.past: list[Notice] = []
        self.steps = 0
        self.silences = 0
        """How often the executor waited while nothing could happen any more."""
        self.before_step: Callable[[], None] = lambda: None
        self._pending: list[Callable[[], None]] = []

    # --- what a test does ---------------------------------------------------------------------------------------------

    def join(self, name: str, **what: Any) -> Worker:
        """A worker comes; by an address that nobody had."""
        worker = Worker(name, f"tls://127.0.0.1:{40_000 + len(self.workers)}", **what)
        self.workers[worker.address] = worker
        self.inbox.put(Joined(worker.address))
        return worker

    def kill(self, worker: Worker) -> None:
        """A worker is gone, with all that it does."""
        worker.is_alive = False
        for boot in [one for one in self.boots.values() if one.worker is worker]:
            del self.boots[boot.attempt]
        self.inbox.put(Left(worker.address))

    def step(self) -> bool:
        """Something happens, where anything can."""
        self.steps += 1
        assert self.steps < _MOST_STEPS, "the run goes on for ever"
        self.before_step()
        can: list[Callable[[], None] | Boot] = [*self._pending, *self.boots.values()]
        if not can:
            return self.inbox.qsize() > 0
        chosen = can[self.choose(len(can))]
        if isinstance(chosen, Boot):
            self.say_next(chosen)
        else:
            self._pending.remove(chosen)
            chosen()
        return True

    def say_next(self, boot: Boot) -> None:
        """A boot's worker says the next thing of it."""
        item = next(boot.script, None)
        if item is None:
            self.boots.pop(boot.attempt, None)
            return
        if isinstance(item, Ended):
            self.boots.pop(boot.attempt, None)
        self.past.append(item)
        self.inbox.put(item)

    # --- what the executor does ---------------------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        return self.is_broken

    def examined(self, address: str) -> Answer:
        worker = self.workers[address]
        if not worker.is_alive:
            return Answer(problem="lost")
        return Answer(name=worker.name, versions=worker.versions, guests=worker.guests, memory_mib=worker.memory_mib)

    def start(self, attempt: str, address: str, bundle: Bundle) -> None:
        worker = self.workers[address]
        task, artifacts = unbundled(bundle.data, Path)
        boot = Boot(attempt, worker, task, artifacts.machine.memory_mib + OVERHEAD_MIB)
        assert set(artifacts.cells) == {cell.id for cell in task.cells}
        self.started.append(boot)
        if not worker.is_alive:
            self._pending.append(lambda: self.inbox.put(Ended(attempt, LabError("its files could not be sent"))))
            return
        boot.script = worker.calibrates(boot) if boot.is_calibration else worker.script(boot)
        self.boots[attempt] = boot
        mine = [one for one in self.boots.values() if one.worker is worker and not one.is_calibration]
        assert len(mine) <= worker.guests
        assert sum(one.memory_mib for one in mine) <= worker.memory_mib

    def cancel(self, attempt: str) -> None:
        self.cancelled.append(attempt)
        self.boots.pop(attempt, None)

    def do(self, work: Callable[[], T], then: Callable[[T], object]) -> None:
        def play() -> None:
            with ThreadPoolExecutor(1) as pool:
                done = pool.submit(work)
            self.inbox.put(lambda: then(done.result()))

        self._pending.append(play)

    def close(self) -> None:
        raise AssertionError("an executor does not close its link")


class Ledger:
    """What is written down of a run's events: each cell once."""

    def __init__(self) -> None:
        self.records: dict[str, CellRecord] = {}
        self.ended: list[str] = []
        self.events: list[tuple[str, ExecutorEvent]] = []

    def take(self, job: Job, event: ExecutorEvent) -> None:
        """Write an event down."""
        self.events.append((job.name, event))
        cells = {cell.id for cell in job.task.cells}
        match event:
            case CellRecorded(record):
                assert record.id in cells
                assert record.id not in self.records, "it would be stored twice"
                self.records[record.id] = record
            case JobEnded():
                assert cells <= self.records.keys(), "it has ended without all of its outcomes"
                self.ended.append(job.name)

    def check(self, jobs: Sequence[Job]) -> None:
        """Each cell has an outcome, and the last that was heard of each job is its end."""
        assert self.records.keys() == {cell.id for job in jobs for cell in job.task.cells}
        last = dict(self.events)
        assert all(isinstance(last[job.name], JobEnded) for job in jobs)

    def of(self, job: str) -> list[ExecutorEvent]:
        """A job's events."""
        return [event for name, event in self.events if name == job]


class Lines(ProgressListener):
    """A listener that keeps what it gets."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warnings: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def worker_says(self, worker: str, text: str) -> None:
        self.said.append(f"{worker}: {text}")

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def _calibration_job(context: object, kinds: object, jobs: Sequence[Job]) -> Job:
    job = jobs[0]
    task = replace(job.task, cells=job.task.boot.cells[:2], directory=Path("calibration"))
    return Job(task, job.artifacts)


def _measured_here(context: object, job: Job, watch: object) -> list[CellRecord]:
    return [record_of(cell) for cell in job.task.cells]


def _no_plugin(context: object, name: str) -> Path:
    raise BuildError("there is no compiler")


# What would boot a guest on this machine, or needs its QEMU and its compiler, is played, too.
PLAYED: dict[str, object] = {
    "orchestrator.fleet.trust.calibration_job": _calibration_job,
    "orchestrator.fleet.trust.calibrated_here": lambda *arguments: counts(_measured_here(*arguments)),
    "orchestrator.fleet.trust.measured_here": _measured_here,
    "orchestrator.fleet.transfer.qemu_plugin": _no_plugin,
    "orchestrator.fleet.worker.Versions.here": lambda: HERE,
}


class Play:
    """An executor on a stage, with the jobs that were submitted."""

    def __init__(self, folder: Path, jobs: Sequence[Job], stage: Stage) -> None:
        self.jobs, self.stage, self.lines, self.ledger = jobs, stage, Lines(), Ledger()
        self.executor = FleetExecutor(stage, kinds(), BuildContext(Cache(folder / "cache")), self.lines)
        for job in jobs:
            self.executor.submit(job)

    def read(self) -> Ledger:
        """All events, written down."""
        for job, event in self.executor.events():
            self.ledger.take(job, event)
        return self.ledger

    def run(self) -> Ledger:
        """All events of a run that comes to a good end."""
        ledger = self.read()
        ledger.check(self.jobs)
        assert self.stage.boots.keys() <= {boot.attempt for boot in self.stage.started if boot.is_calibration}
        return ledger
