# SPDX-License-Identifier: GPL-2.0-only
"""When is a worker's count believed? When a cell that both have measured counts the same here, to the instruction.

Each worker measures a calibration when it joins, and this machine measures one cell of each again at the end.
"""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from orchestrator.run.crew import Job

Counts = Mapping[str, tuple[str, tuple[float, ...]]]
"""By cell: its status and its samples."""


def counts(records: Iterable[CellRecord]) -> Counts:
    """What of some records has to be equal everywhere."""
    return {record.id: (record.status, tuple(record.samples)) for record in records}


def difference(here: Counts, there: Counts) -> str | None:
    """The first count that differs, as a part of a sentence; None where none does."""
    for id_, (status, samples) in here.items():
        other_status, other = there.get(id_, ("no outcome", ()))
        if (status, samples) != (other_status, other):
            return f"{id_} is {_shown(other_status, other)} there and {_shown(status, samples)} here"
    return None


def _shown(status: str, samples: Sequence[float]) -> str:
    return ", ".join(f"{one:.10g}" for one in samples[:4]) if samples else status


def checkable(records: Iterable[CellRecord]) -> list[CellRecord]:
    """The records by which a worker can be checked: exact ones, failures first, then as they were measured.

    The exact clock repeats a failure, too: a worker whose cells fail where this machine's do not is wrong.
    """
    exact = [
        one
        for one in records
        # Whole runs have timer ticks in them, which fall differently.
        if one.clock == "instructions" and one.metric != PER_RUN and one.status in ("ok", "failed")
    ]
    return sorted(exact, key=lambda one: one.status == "ok")


def calibration_job(context: BuildContext, kinds: KindRegistry[BenchmarkKind], jobs: Sequence[Job]) -> Job:
    """The calibration of a run, on the kernel and the CPU of its first exact boot, or of its first one.

    Raises HostError, BuildError where it cannot be prepared.
    """
    boots = [job.task.boot for job in jobs]
    like = next((boot for boot in boots if boot.clock == "instructions"), boots[0])
    overrides = [f"kernels.0={like.kernel}", f"machines.0.cpu={like.cpu}"]
    experiment = load_experiment(Path(__file__).with_name("calibration.yaml"), kinds, overrides, qemu_cpu_names)
    (boot,) = plan(experiment).boots
    artifacts = prepare(context, kinds.named(boot.kind), boot)
    task = BootTask(kinds.named(boot.kind), boot, boot.cells, artifacts.keys, Path("calibration"))
    return Job(task, artifacts)


def single_cell(job: Job, cell: str) -> Job:
    """The job of one cell of a job, to count it again."""
    (wanted,) = [one for one in job.task.boot.cells if one.id == cell]
    task = dataclasses.replace(job.task, cells=(wanted,), directory=Path("recount"), keep_events=False, guests=0)
    return dataclasses.replace(job, task=task)


def calibrated_here(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> Counts:
    """What this machine counts in the calibration's cells. Raises HostError where none has a number."""
    records = _records(context, job, watch)
    if not any(record.status == "ok" for record in records):
        why = next((record.reason for record in records if record.reason), "no reason is known")
        raise HostError("this machine cannot measure what its fleet is to be compared with", detail=why.splitlines())
    return counts(records)


def measured_here(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> Counts:
    """What this machine counts in the cells of a job, or that they fail; ``watch`` gets its guests before they run."""
    return counts(_records(context, job, watch))


def recounted(context: BuildContext, jobs: Sequence[Job], watch: Callable[[Guest], None]) -> list[Counts | LabError]:
    """The same of several jobs, as many at once as there are processors, or why one cannot be measured."""

    def measure(job: Job) -> Counts | LabError:
        try:
            return measured_here(context, job, watch)
        except LabError as error:
            return error

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(measure, jobs))


def _records(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> list[CellRecord]:
    records: list[CellRecord] = []

    def take(event: Event) -> None:
        if isinstance(event, Outcome):
            records.append(event.record)

    with ScratchFolder("orchestrator-calibration-") as folder:
        task = dataclasses.replace(job.task, directory=folder / job.name, guests=0)
        run_boot(Session(task, job.artifacts, context, take, watch))
    return records


# Which worker does which boot: who is in the fleet, who has room, which boots wait, and which are under way.
#
# Nothing here talks to a worker.


OVERHEAD_MIB = 192
"""Of QEMU's own memory beside its guest's: 60 to 150 MiB resident were measured."""


class Standing(Enum):
    """What a worker is to the client."""

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
    """The MiB of each attempt under way."""
    known: set[str] = field(default_factory=set)
    """The machines of which it has a saved guest, as ``Work.machine`` names them."""
    measured: list[str] = field(default_factory=list)
    """The ids of the cells that it has measured."""
    example: tuple[CellRecord, Job] | None = None
    """The last record of its by which it can be checked."""

    @property
    def works(self) -> bool:
        return self.standing is Standing.ADMITTED

    def has_room(self, memory_mib: int) -> bool:
        """Whether a guest of this size can run beside the others."""
        return len(self.taken) < self.guests and sum(self.taken.values()) + memory_mib <= self.memory_mib


class Roster:
    """All members there are or were."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self.host_of_times = ""
        """The name of the one worker on which times are measured; empty while there were none to measure."""

    def joined(self, address: str) -> bool:
        """A worker has come; whether it was not known. An address may be that of one that has gone."""
        known = self._members.get(address)
        if known is not None and known.standing is not Standing.GONE:
            return False
        self._members[address] = Member(address)
        return True

    def left(self, address: str) -> Member | None:
        """A worker has gone; what it was before stays known. None for one that had gone before."""
        member = self._members.get(address)
        if member is None or member.standing is Standing.GONE:
            return None
        if member.standing in (Standing.CANDIDATE, Standing.ADMITTED):
            member.why = "it has left the fleet"
        member.standing = Standing.GONE
        return member

    def __iter__(self) -> Iterator[Member]:
        """Every member, in the order in which they came."""
        return iter(self._members.values())

    def member(self, address: str) -> Member | None:
        """The member at an address."""
        return self._members.get(address)

    def working(self) -> list[Member]:
        """Those that get boots."""
        return [member for member in self if member.works]

    def has_candidates(self) -> bool:
        """Whether some worker is being examined."""
        return any(member.standing is Standing.CANDIDATE for member in self)

    def expected(self) -> bool:
        """Whether some worker works or may still be admitted."""
        return self.has_candidates() or bool(self.working())

    def has_lost_host_of_times(self) -> bool:
        """Whether the worker on which times are measured does not work, and nobody who may come is being examined."""
        name = self.host_of_times
        return bool(name) and all(member.name != name for member in self.working()) and not self.has_candidates()

    def slots(self) -> int:
        """Guests at once, of all that work."""
        return sum(member.guests for member in self.working())

    def largest(self) -> int:
        """The MiB of the largest guest that any working member can run."""
        return max((member.memory_mib for member in self.working()), default=0)

    def choose(
        self, memory_mib: int, machine: str, avoided: Iterable[str] = (), *, is_timed: bool = False
    ) -> Member | None:
        """The member that is to do a boot; None while none can.

        One that has a saved guest of the machine comes first, then the one with the most room. ``avoided`` are names of
        members that lost the boot before: they get it only where no other has the memory. All that is timed is done by
        one.
        """
        free = [member for member in self.working() if member.has_room(memory_mib)]
        if is_timed:
            free = [member for member in free if self.host_of_times in ("", member.name)]
        others = [member for member in free if member.name not in set(avoided)]
        could = [member for member in self.working() if member.memory_mib >= memory_mib]
        if not others and any(member.name not in set(avoided) for member in could) and not is_timed:
            return None  # one that has not lost it is busy
        return max(
            others or free, key=lambda one: (machine in one.known, one.guests - len(one.taken), one.name), default=None
        )


@dataclass
class Work:
    """A job with what is left of it."""

    job: Job
    left: dict[str, Cell[Any]]
    guests: int
    losses: list[tuple[str, str]] = field(default_factory=list)
    """The workers that it has lost, and what was heard of each."""

    @property
    def memory_mib(self) -> int:
        return self.job.artifacts.machine.memory_mib + OVERHEAD_MIB

    @property
    def is_timed(self) -> bool:
        return self.job.task.boot.clock == "wall"

    @property
    def machine(self) -> str:
        """What names the machine of which a worker may have a saved guest."""
        boot = self.job.task.boot
        return f"{self.job.artifacts.keys['initramfs']} {boot.cpu} {boot.smp} {boot.memory_mib} {boot.image}"


@dataclass
class Attempt:
    """A boot on a worker: of a job, or of the calibration, which has no work."""

    name: str
    member: Member
    task: BootTask
    work: Work | None = None
    heard: int = 0
    """Messages so far."""
    files: int = 0
    bytes: int = 0
    """Of its files."""
    last: str = ""
    """The last progress that was reported."""
    outcomes: dict[str, CellRecord] = field(default_factory=dict)


_Need = tuple[int, bool, frozenset[str]]
"""What decides on which workers can do a boot: its memory, whether it is timed, and who has lost it."""


class Waiting:
    """Boots that wait for a worker, in the plan's order, and in front of them those that came back.

    Those that the same workers can do are asked for once: of 20,000 boots each event would else ask for all.
    """

    def __init__(self) -> None:
        self._queues: defaultdict[_Need, deque[tuple[int, Work]]] = defaultdict(deque)
        self._first = self._next = 0

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def extend(self, works: Iterable[Work]) -> None:
        """Boots that wait behind all others."""
        for work in works:
            self._queues[_need(work)].append((self._next, work))
            self._next += 1

    def appendleft(self, work: Work) -> None:
        """One that waits before all others."""
        self._first -= 1
        self._queues[_need(work)].appendleft((self._first, work))

    def give(self, take: Callable[[Work], bool]) -> None:
        """Offer boots in their order, each until ``take`` says that it waits on; so do those that need the same then.

        A boot that is taken waits no more. ``take`` adds none.
        """
        queues = dict(self._queues)
        while queues:
            need, queue = min(queues.items(), key=lambda one: one[1][0][0])
            if not take(queue[0][1]):
                del queues[need]
                continue
            queue.popleft()
            if not queue:
                del queues[need], self._queues[need]


def _need(work: Work) -> _Need:
    return work.memory_mib, work.is_timed, frozenset(name for name, _ in work.losses)
