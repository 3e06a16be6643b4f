# SPDX-License-Identifier: GPL-2.0-only
"""Verification of workers: a cell that both have measured must count the same here, to the instruction.

Each worker measures a calibration when it joins, and this machine measures one cell of each again at the end.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from orchestrator.artifacts.cache import BuildContext
from orchestrator.errors import HostError, LabError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.experiment.table import KindRegistry
from orchestrator.files import ScratchFolder
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import qemu_cpu_names
from orchestrator.results.contract import PER_RUN, CellRecord
from orchestrator.run.boot import BenchmarkKind, BootTask, Event, Outcome, Session, prepare, run_boot
from orchestrator.run.executor import Job

Counts = Mapping[str, tuple[str, tuple[float, ...]]]
"""By cell: its status and its samples."""


def counts(records: Iterable[CellRecord]) -> Counts:
    """The parts of records that must be equal everywhere."""
    return {record.id: (record.status, tuple(record.samples)) for record in records}


def difference(here: Counts, there: Counts) -> str | None:
    """The first differing count, worded as part of a sentence; None if all agree."""
    for id_, (status, samples) in here.items():
        other_status, other = there.get(id_, ("no outcome", ()))
        if (status, samples) != (other_status, other):
            return f"{id_} is {_shown(other_status, other)} there and {_shown(status, samples)} here"
    return None


def _shown(status: str, samples: Sequence[float]) -> str:
    return ", ".join(f"{one:.10g}" for one in samples[:4]) if samples else status


def exact_records(records: Iterable[CellRecord]) -> list[CellRecord]:
    """The records that can verify a worker: those on the exact clock, failures first, otherwise in order.

    The exact clock repeats failures as well: a worker whose cells fail only there is faulty.
    """
    exact = [
        one
        for one in records
        # Whole runs contain timer ticks, which fall differently.
        if one.clock == "instructions" and one.metric != PER_RUN and one.status in ("ok", "failed")
    ]
    return sorted(exact, key=lambda one: one.status == "ok")


def calibration_job(context: BuildContext, kinds: KindRegistry[BenchmarkKind], jobs: Sequence[Job]) -> Job:
    """The calibration of a run, with the kernel and CPU of its first boot on the exact clock, or its first boot.

    Raises HostError, BuildError if it cannot be prepared.
    """
    boots = [job.task.boot for job in jobs]
    like = next((boot for boot in boots if boot.clock == "instructions"), boots[0])
    overrides = [f"kernels.0={like.kernel}", f"machines.0.cpu={like.cpu}"]
    experiment = load_experiment(Path(__file__).with_name("calibration.yaml"), kinds, overrides, qemu_cpu_names)
    (boot,) = plan(experiment).boots
    artifacts = prepare(context, kinds.named(boot.kind), boot)
    task = BootTask(kinds.named(boot.kind), boot, boot.cells, Path("calibration"))
    return Job(task, artifacts)


def single_cell(job: Job, cell: str) -> Job:
    """A job reduced to one of its cells, to count that again."""
    (wanted,) = [one for one in job.task.boot.cells if one.id == cell]
    task = dataclasses.replace(job.task, cells=(wanted,), directory=Path("recount"), keep_events=False, guests=0)
    return dataclasses.replace(job, task=task)


def calibrated_here(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> Counts:
    """What this machine counts in the calibration's cells. Raises HostError if none has a number."""
    records = measured_here(context, job, watch)
    if not any(record.status == "ok" for record in records):
        why = next((record.reason for record in records if record.reason), "no reason is known")
        raise HostError("this machine cannot measure what its fleet is to be compared with", detail=why.splitlines())
    return counts(records)


def recounted(context: BuildContext, jobs: Sequence[Job], watch: Callable[[Guest], None]) -> list[Counts | LabError]:
    """What this machine counts in the cells of jobs, or why not; as many in parallel as there are processors.

    ``watch`` gets the guests before they run.
    """

    def measure(job: Job) -> Counts | LabError:
        try:
            return counts(measured_here(context, job, watch))
        except LabError as error:
            return error

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(measure, jobs))


def measured_here(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> list[CellRecord]:
    """The records of a job's cells, measured on this machine. Raises LabError."""
    records: list[CellRecord] = []

    def take(event: Event) -> None:
        if isinstance(event, Outcome):
            records.append(event.record)

    with ScratchFolder("orchestrator-calibration-") as folder:
        task = dataclasses.replace(job.task, directory=folder / job.name, guests=0)
        run_boot(Session(task, job.artifacts, context, take, watch))
    return records


# Scheduling boots on workers: the members of the fleet, their room, waiting boots and running ones.
#
# Nothing here communicates with a worker.


OVERHEAD_MIB = 192
"""QEMU's memory besides its guest's: 60 to 150 MiB resident were measured."""


class Standing(Enum):
    """The state of a worker in the client's view."""

    CANDIDATE = "is being examined"
    ADMITTED = "works"
    REFUSED = "was refused"
    RETIRED = "was retired"
    GONE = "has gone"


@dataclass
class Member:
    """A worker, by its address in the fleet."""

    address: str
    name: str = ""
    guests: int = 0
    memory_mib: int = 0
    standing: Standing = Standing.CANDIDATE
    why: str = ""
    """Why it does not work."""
    taken: dict[str, int] = field(default_factory=dict)
    """MiB of each running attempt."""
    known: set[str] = field(default_factory=set)
    """The machines of which it has a saved guest, by ``Work.machine``."""
    measured: list[str] = field(default_factory=list)
    """The ids of the cells that it has measured."""
    example: tuple[CellRecord, Job] | None = None
    """Its last record that can be used to verify it."""

    @property
    def works(self) -> bool:
        return self.standing is Standing.ADMITTED

    def has_room(self, memory_mib: int) -> bool:
        return len(self.taken) < self.guests and sum(self.taken.values()) + memory_mib <= self.memory_mib


class Roster:
    """All present and former members."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        """By address, in the order in which they joined."""
        self.host_of_times = ""
        """The name of the one worker for wall-clock times; empty until there were any to measure."""

    def joined(self, address: str) -> bool:
        """A worker has joined; returns whether it was unknown. A former member's address may be reused."""
        known = self.members.get(address)
        if known is not None and known.standing is not Standing.GONE:
            return False
        self.members[address] = Member(address)
        return True

    def left(self, address: str) -> Member | None:
        """A worker has left; its other facts are kept. None if it had left before."""
        member = self.members.get(address)
        if member is None or member.standing is Standing.GONE:
            return None
        if member.standing in (Standing.CANDIDATE, Standing.ADMITTED):
            member.why = "it has left the fleet"
        member.standing = Standing.GONE
        return member

    def working(self) -> list[Member]:
        return [member for member in self.members.values() if member.works]

    def has_candidates(self) -> bool:
        return any(member.standing is Standing.CANDIDATE for member in self.members.values())

    def able(self, memory_mib: int, *, is_timed: bool = False) -> list[Member]:
        """The members that can do a boot once they have room: with enough memory, and one alone for timed boots."""
        able = [one for one in self.working() if one.memory_mib >= memory_mib]
        return [one for one in able if not is_timed or self.host_of_times in ("", one.name)]


def choose(able: Sequence[Member], memory_mib: int, machine: str, avoided: Collection[str] = ()) -> Member | None:
    """The member to do a boot; None while none of the able ones has room.

    Prefers members that have a saved guest of the machine, then those with the most room. ``avoided`` are names of
    members that lost the boot before: they get it only if no other can do it.
    """
    others = [one for one in able if one.name not in avoided]
    free = [one for one in others or able if one.has_room(memory_mib)]
    return max(free, key=lambda one: (machine in one.known, one.guests - len(one.taken), one.name), default=None)


@dataclass
class Work:
    """A job and its remaining cells."""

    job: Job
    left: dict[str, Cell[Any]]
    guests: int
    losses: list[tuple[str, str]] = field(default_factory=list)
    """The workers that it has lost, and the last message of each."""

    @property
    def memory_mib(self) -> int:
        return self.job.artifacts.machine.memory_mib + OVERHEAD_MIB

    @property
    def is_timed(self) -> bool:
        return self.job.task.boot.clock == "wall"

    @property
    def machine(self) -> str:
        """Identifies the machine of which a worker may have a saved guest."""
        boot = self.job.task.boot
        return f"{self.job.artifacts.keys['initramfs']} {boot.cpu} {boot.smp} {boot.memory_mib} {boot.image}"

    @property
    def need(self) -> tuple[int, bool, frozenset[str]]:
        """What decides which workers can do it: its memory, whether it is timed, and the workers that lost it."""
        return self.memory_mib, self.is_timed, frozenset(name for name, _ in self.losses)


@dataclass
class Attempt:
    """A boot on a worker: of a job, or the calibration, which has no work."""

    name: str
    member: Member
    task: BootTask
    work: Work | None = None
    has_begun: bool = False
    """Whether any message came."""
    files: int = 0
    bytes: int = 0
    """Total size of its files."""
    last: str = ""
    """The last progress report."""
    outcomes: dict[str, CellRecord] = field(default_factory=dict)
