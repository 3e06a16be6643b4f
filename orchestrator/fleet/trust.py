# SPDX-License-Identifier: GPL-2.0-only
"""Which workers are believed: calibration when one joins, cells counted again, and who is in the fleet."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.artifacts.cache import BuildContext
from orchestrator.errors import HostError, LabError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.experiment.table import KindRegistry
from orchestrator.files import ScratchFolder
from orchestrator.fleet.link import Link, Offered
from orchestrator.fleet.worker import CheckedSteps, Offer, Versions
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import qemu_cpu_names
from orchestrator.plain_text import counted
from orchestrator.results.contract import PER_RUN, CellRecord
from orchestrator.run.boot import BenchmarkKind, BootTask, Event, Outcome, Session, prepare, run_boot
from orchestrator.run.crew import Job, Stopped
from orchestrator.run.runner import ProgressListener

# When is a worker's count believed? When a cell that both have measured counts the same, to the instruction.

CHECK_EVERY = 10
"""Boots of a worker after which one of its cells is measured again on another."""

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

    The exact clock repeats a failure, too: a worker whose cells fail where another's do not is wrong.
    """
    exact = [
        one
        for one in records
        # Whole runs have timer ticks in them, which fall differently.
        if one.clock == "instructions" and one.metric != PER_RUN and one.status in ("ok", "failed")
    ]
    return sorted(exact, key=lambda one: one.status == "ok")


# The cells that a worker measures before it gets any of the run's, and what this machine counts in them.


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


def _records(context: BuildContext, job: Job, watch: Callable[[Guest], None]) -> list[CellRecord]:
    records: list[CellRecord] = []

    def take(event: Event) -> None:
        if isinstance(event, Outcome):
            records.append(event.record)

    with ScratchFolder("orchestrator-calibration-") as folder:
        task = dataclasses.replace(job.task, directory=folder / job.name, guests=0)
        run_boot(Session(task, job.artifacts, context, take, watch))
    return records


# Which worker does which boot: who is in the fleet, who may be believed, and who has room.
#
# Pure bookkeeping of the client's: nothing here talks to anyone.

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
    """Of one that does not work: what for."""
    taken: dict[str, int] = field(default_factory=dict)
    """The MiB of each attempt under way."""
    known: set[str] = field(default_factory=set)
    """The machines of which it has a saved guest, by what identifies them to the client."""
    unchecked: list[tuple[str, ...]] = field(default_factory=list)
    """The ids of the cells of each boot since it was last found to count right."""
    checked: int = 0
    """The number of boots, of all that it has done, up to which it is known to count right."""
    boots: int = 0
    """Boots that it has done since then."""

    @property
    def done(self) -> int:
        """The number of all boots that it has done, or begun and reported of."""
        return self.checked + len(self.unchecked)

    def counts_right(self, done: int) -> None:
        """It was found to count right in a boot of this number."""
        new = max(0, done - self.checked)
        self.checked += len(self.unchecked[:new])
        del self.unchecked[:new]
        self.boots = 0

    @property
    def works(self) -> bool:
        """Whether it gets boots."""
        return self.standing is Standing.ADMITTED

    def has_room(self, memory_mib: int) -> bool:
        """Whether a guest of this size can run beside the others; a single one always can where it fits at all."""
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

    def expected(self) -> bool:
        """Whether some worker works or may still be admitted."""
        return any(member.standing in (Standing.ADMITTED, Standing.CANDIDATE) for member in self)

    def has_candidates(self) -> bool:
        """Whether some worker is being examined."""
        return any(member.standing is Standing.CANDIDATE for member in self)

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
        candidates = others or free
        if not candidates:
            return None
        return max(candidates, key=lambda one: (machine in one.known, one.guests - len(one.taken), one.name))


# What a run has under way on a fleet: jobs with what is left of them, attempts at them, and checks of workers.


class Result(BaseModel):
    """How a worker says that a boot ended."""

    model_config = ConfigDict(extra="forbid")

    end: str = Field(pattern=r"^(done|host|usage|error|unwanted)$")
    messages: int = Field(ge=0)
    what: str = Field(default="", max_length=100_000)
    where: str = Field(default="", max_length=10_000)
    hint: str = Field(default="", max_length=10_000)
    detail: list[str] = Field(default=[], max_length=1000)
    steps: CheckedSteps = ()


@dataclasses.dataclass
class Work:
    """A job with what is left of it."""

    job: Job
    left: dict[str, Cell[Any]]
    guests: int
    losses: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """The workers that it has lost, and what was heard of each."""
    remarks: dict[str, str] = dataclasses.field(default_factory=dict)
    """What is to be said of a cell that is measured again."""

    @property
    def memory_mib(self) -> int:
        return self.job.artifacts.machine.memory_mib + OVERHEAD_MIB

    @property
    def is_timed(self) -> bool:
        """Whether times are measured in it: all by one worker."""
        return self.job.task.boot.clock == "wall"

    @property
    def machine(self) -> str:
        """What names the machine of which a worker may have a saved guest."""
        boot = self.job.task.boot
        return f"{self.job.artifacts.keys['initramfs']} {boot.cpu} {boot.smp} {boot.memory_mib} {boot.image}"


@dataclasses.dataclass(frozen=True)
class Check:
    """A record of one worker's, to be counted by another."""

    record: CellRecord
    of: Member
    work: Work
    done: int
    """The number of its boot among those of the worker."""
    is_again: bool = False
    """Whether a worker was lost with it before."""


@dataclasses.dataclass
class Attempt:
    """A boot on a worker: of a job, of the calibration (neither work nor check), or to check another worker."""

    name: str
    member: Member
    task: BootTask
    work: Work | None = None
    check: Check | None = None
    heard: int = 0
    """Messages so far."""
    files: int = 0
    bytes: int = 0
    """Of its files."""
    last: str = ""
    """The last progress that was reported."""
    outcomes: dict[str, CellRecord] = dataclasses.field(default_factory=dict)


# The guests in which the client counts for itself: they end with the run, as those of its workers do.


class OwnGuests:
    """The client's guests, each in a thread of the link's, which the interpreter waits for when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guests: list[Guest] = []
        self._has_ended = False

    def watch(self, guest: Guest) -> None:
        """In a guest's thread, before it runs. Raises Stopped where the run has ended."""
        with self._lock:
            self._guests.append(guest)
            has_ended = self._has_ended
        if has_ended:
            raise Stopped

    def end(self) -> None:
        """End all of them; none begins any more."""
        with self._lock:
            self._has_ended = True
            guests = list(self._guests)
        for guest in guests:
            guest.abort()


# What all parts of a run's side of a fleet work with.


@dataclass(frozen=True)
class Side:
    """The connection, this machine's cache, who is told what goes on, who is in the fleet, and guests here."""

    link: Link
    context: BuildContext
    listener: ProgressListener
    roster: Roster = field(default_factory=Roster)
    guests: OwnGuests = field(default_factory=OwnGuests)


# How a worker comes to be believed: equal versions, and a calibration that counts what this machine counts.

MOST_COMINGS = 5
"""Times that a worker may come and go again without the end of a boot: its nanny would replace it for ever."""


class Admission:
    """Examines the workers that join. ``start`` has a worker measure the calibration's job."""

    def __init__(
        self,
        side: Side,
        kinds: KindRegistry[BenchmarkKind],
        start: Callable[[Member, Job], None],
    ) -> None:
        self._side, self._kinds, self._start = side, kinds, start
        self._versions: Versions | None = None
        self._job: Job | None = None
        self._expected: Counts | None = None
        self._untrusted: set[str] = set()
        self._idle_comings: Counter[str] = Counter()
        """How often a worker has come, by its name, since one of that name last ended a boot."""

    def begin(self, jobs: Sequence[Job]) -> None:
        """Find out what this machine has, and what it counts. Raises HostError where QEMU is missing."""
        self._versions = Versions.here()
        self._side.link.do(lambda: self._calibrate(jobs))

    def bar(self, name: str) -> None:
        """Believe no worker of this name any more."""
        self._untrusted.add(name)

    def offered(self, offered: Offered) -> None:
        """A worker says what it is."""
        member = self._side.roster.member(offered.address)
        if member is None or member.standing is not Standing.CANDIDATE:
            return
        try:
            offer = Offer.model_validate_json(offered.text)
        except ValidationError:
            kind, _, why = offered.text.partition("error: ")
            self.refuse(member, why if why and not kind else "it says what is no offer")
            return
        assert self._versions is not None
        member.name, member.guests, member.memory_mib = offer.name, offer.guests, offer.memory_mib
        other = self._versions.difference(offer.versions)
        self._idle_comings[offer.name] += 1
        if self._idle_comings[offer.name] > MOST_COMINGS:
            self.refuse(member, f"it has come {MOST_COMINGS} times and done nothing")
        elif offer.name in self._untrusted:
            self.refuse(member, "a worker of this name was retired")
        elif other is not None:
            self.refuse(member, other)
        elif self._job is not None:
            self._start(member, self._job)

    def did_boot(self, name: str) -> None:
        """A worker of this name has come to the end of a boot."""
        self._idle_comings.pop(name, None)

    def calibrated(self, member: Member, records: Iterable[CellRecord]) -> None:
        """A worker has measured the calibration."""
        assert self._expected is not None
        other = difference(self._expected, counts(records))
        if other is not None:
            self.refuse(member, f"it does not count as this machine does: {other}")
            return
        member.standing = Standing.ADMITTED
        self._side.listener.say(f"{member.name} works: {counted(member.guests, 'guest')}, counts as this machine does")

    def lost(self, attempt: Attempt, why: str) -> None:
        """A worker has not come to the calibration's end."""
        if attempt.member.standing is Standing.CANDIDATE:
            self.refuse(attempt.member, f"its calibration did not end: {why}")

    def refuse(self, member: Member, why: str) -> None:
        """A worker gets no boot."""
        member.standing, member.why = Standing.REFUSED, why
        self._side.listener.warn(f"warning: {member.name or member.address} does not take part: {why}")

    def _calibrate(self, jobs: Sequence[Job]) -> None:
        """In a thread of its own: what this machine counts."""
        try:
            job = calibration_job(self._side.context, self._kinds, jobs)
            expected = calibrated_here(self._side.context, job, self._side.guests.watch)
        except BaseException as error:
            raised = error

            def fail() -> None:
                raise raised

            self._side.link.heard.put(fail)
            return

        def ready() -> None:
            self._job, self._expected = job, expected
            for member in self._side.roster:
                if member.standing is Standing.CANDIDATE and member.name:
                    self._start(member, job)

        self._side.link.heard.put(ready)


# How a worker goes on being believed: another one counts cells of its boots again.
#
# Where there is no other one, and where two differ, this machine does.


class Checking:
    """The checks of a run's workers: one behind every so many boots of a worker, and one at the end.

    ``start`` has a worker measure a check's job, ``retire`` takes back what a worker has measured, with the reason.
    """

    def __init__(
        self,
        side: Side,
        every: int,
        start: Callable[[Member, Check, Job], None],
        retire: Callable[[Member, str], None],
    ) -> None:
        self._side, self._every, self._start, self._retire = side, every, start, retire
        self._due: deque[Check] = deque()
        self._examples: dict[str, Check] = {}
        """By address, the last record of a worker's newest boot that was not checked."""
        self._arbitrated = 0

    def measured(self, attempt: Attempt) -> None:
        """An attempt at a job is over, with what it has measured."""
        assert attempt.work is not None
        member, found = attempt.member, checkable(attempt.outcomes.values())
        member.unchecked.append(tuple(attempt.outcomes))
        if found:
            # Of one that goes wrong within a boot, the last cell is.
            self._examples[member.address] = Check(found[-1], member, attempt.work, member.done)

    def did_boot(self, member: Member) -> None:
        """A worker has come to the end of a boot."""
        member.boots += 1
        if member.boots >= self._every and member.address in self._examples:
            member.boots = 0
            self._due.append(self._examples.pop(member.address))

    def give(self) -> None:
        """Start the checks for which there is a worker; this machine makes those for which there will be none."""
        for check in list(self._due):
            need = check.work.memory_mib
            others = [one for one in self._side.roster.working() if one is not check.of and one.memory_mib >= need]
            free = [one for one in others if one.has_room(need)]
            has_nothing_to_lose = check.of.standing is Standing.RETIRED and not check.of.unchecked
            if has_nothing_to_lose:
                self._due.remove(check)
            elif not others:
                self._due.remove(check)
                self._arbitrate(check, [])
            elif free:
                self._due.remove(check)
                self._start(
                    max(free, key=lambda one: (check.work.machine in one.known, one.name)), check, _alone(check)
                )

    def is_done(self) -> bool:
        """Whether nothing is left to check; asked when all jobs are done."""
        if not self._due and not self._arbitrated:
            # The check of one is that of the worker that does it, too: half of them are enough to begin with.
            for address in list(self._examples)[: (len(self._examples) + 1) // 2]:
                self._due.append(self._examples.pop(address))
        return not self._due and not self._arbitrated

    def compare(self, attempt: Attempt) -> None:
        """Two workers have counted a cell: where they differ, this machine decides which of them is wrong."""
        check, member = attempt.check, attempt.member
        assert check is not None
        found = counts(attempt.outcomes.values())
        if difference(counts([check.record]), found) is None:
            check.of.counts_right(check.done)
            member.counts_right(member.done)
            self._examples.pop(member.address, None)
            return
        self._side.listener.warn(f"warning: {check.of.name} and {member.name} do not count {check.record.id} alike")
        self._arbitrate(check, [(member, found)])

    def lost(self, check: Check) -> None:
        """The worker that was to count a cell has not."""
        if check.is_again:
            self._arbitrate(check, [])
        else:
            self._due.append(dataclasses.replace(check, is_again=True))

    def _arbitrate(self, check: Check, others: Sequence[tuple[Member, Counts]]) -> None:
        """Count a cell on this machine, and retire the workers that do not count it like that.

        Of two that differ neither is believed where this machine cannot count it.
        """
        self._arbitrated += 1

        def decide() -> None:
            why = ""
            try:
                here: Counts | None = measured_here(self._side.context, _alone(check), self._side.guests.watch)
            except LabError as error:
                here, why = None, error.what
            except BaseException as error:  # of this program's: the run would wait for ever
                raised = error

                def fail() -> None:
                    raise raised

                self._side.link.heard.put(fail)
                return

            def decided() -> None:
                self._arbitrated -= 1
                if here is None and not others:  # nothing is against it
                    self._side.listener.warn(f"warning: {check.of.name} could not be checked on this machine: {why}")
                    return
                for member, found in [(check.of, counts([check.record])), *others]:
                    other = "this machine cannot tell who is wrong" if here is None else difference(here, found)
                    if other is not None:
                        self._retire(member, f"it does not count as this machine does: {other}")
                    else:
                        member.counts_right(check.done if member is check.of else member.done)

            self._side.link.heard.put(decided)

        self._side.link.do(decide)


def _alone(check: Check) -> Job:
    """The job of a check's cell alone."""
    job = check.work.job
    (cell,) = [cell for cell in job.task.boot.cells if cell.id == check.record.id]
    task = dataclasses.replace(job.task, cells=(cell,), directory=Path("check"), keep_events=False, guests=0)
    return dataclasses.replace(job, task=task)
