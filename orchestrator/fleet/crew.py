# SPDX-License-Identifier: GPL-2.0-only
"""The crew on many machines: it gives boots to workers it believes, and takes them back from those it does not.

A worker gets as many boots as it has room for and no more, so that those that end with it are those that it did. Every
decision is made in the thread that reads the events.
"""

from __future__ import annotations

import dataclasses
import queue
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.counting_plugin import counting_plugin
from orchestrator.counted import counted
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.kind import KindRegistry
from orchestrator.fleet.calibration import calibration_job, measured_here
from orchestrator.fleet.facts import Offer, Versions
from orchestrator.fleet.link import Ended, Joined, Left, Link, Offered, Told, linked
from orchestrator.fleet.messages import BEGINS, MOST_FILES, FileMessage, received
from orchestrator.fleet.parcel import Parcel, packed
from orchestrator.fleet.roster import OVERHEAD_MIB, Member, Roster, Standing
from orchestrator.fleet.trust import CHECK_EVERY, Counts, checkable, counts, difference
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults
from orchestrator.run.boot import BootTask
from orchestrator.run.crew import Cancelled, Crew, CrewEvent, Job, JobEnded, Withdrawn
from orchestrator.run.events import Event, GuestBooted, Outcome, Progress
from orchestrator.run.interruptions import signals_in_turn
from orchestrator.run.kind import BenchmarkKind
from orchestrator.run.progress_listener import ProgressListener
from orchestrator.run.record import changed, identity, without_number
from orchestrator.whole_file import write_whole

MOST_LOSSES = 3
"""Workers that a boot may lose before its cells fail."""

_PATIENCE = 60.0
"""Seconds without any worker, behind which a run ends: one that was killed is replaced within ten."""

_POLL = 1.0


class _Result(BaseModel):
    """How a worker says that a boot ended."""

    model_config = ConfigDict(extra="forbid")

    end: str = Field(pattern=r"^(done|host|usage|error|unwanted)$")
    messages: int = Field(ge=0)
    what: str = Field(default="", max_length=100_000)
    where: str = Field(default="", max_length=10_000)
    hint: str = Field(default="", max_length=10_000)
    detail: list[str] = Field(default=[], max_length=1000)


@dataclasses.dataclass
class _Work:
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
    def machine(self) -> str:
        """What names the machine of which a worker may have a saved guest."""
        boot = self.job.task.boot
        return f"{self.job.artifacts.keys['initramfs']} {boot.cpu} {boot.smp} {boot.memory_mib} {boot.image}"


@dataclasses.dataclass(frozen=True)
class _Check:
    """A record of one worker's, to be counted by another."""

    record: CellRecord
    of: Member
    work: _Work
    done: int
    """The number of its boot among those of the worker."""
    is_again: bool = False
    """Whether a worker was lost with it before."""


@dataclasses.dataclass
class _Attempt:
    """A boot on a worker: of a job, of the calibration (neither work nor check), or to check another worker."""

    name: str
    member: Member
    task: BootTask
    work: _Work | None = None
    check: _Check | None = None
    heard: int = 0
    """Messages so far."""
    files: int = 0
    last: str = ""
    """The last progress that was reported."""
    outcomes: dict[str, CellRecord] = dataclasses.field(default_factory=dict)


@contextmanager
def fleet_crew(
    address: str,
    key: str,
    kinds: KindRegistry[BenchmarkKind],
    context: BuildContext,
    listener: ProgressListener,
    *,
    check_every: int = CHECK_EVERY,
) -> Iterator[Crew]:
    """The crew of a fleet, for one run. Raises HostError where no scheduler answers."""
    with linked(address, key) as link:
        yield FleetCrew(link, kinds, context, listener, check_every)


class FleetCrew:
    """A run's side of a fleet; see ``fleet_crew``."""

    def __init__(
        self,
        link: Link,
        kinds: KindRegistry[BenchmarkKind],
        context: BuildContext,
        listener: ProgressListener,
        check_every: int = CHECK_EVERY,
    ) -> None:
        self._link, self._kinds, self._context, self._listener = link, kinds, context, listener
        self._check_every = check_every
        self._roster = Roster()
        self._works: list[_Work] = []
        self._waiting: deque[_Work] = deque()
        self._checks: deque[_Check] = deque()
        self._examples: dict[str, _Check] = {}
        """By address, the cheapest record of a worker's newest boot that was not checked."""
        self._untrusted: set[str] = set()
        """Names of workers that were found to count wrong."""
        self._arbitrated = 0
        self._attempts: dict[str, _Attempt] = {}
        self._parcels: dict[str, Parcel] = {}
        self._versions: Versions | None = None
        self._calibration: Job | None = None
        self._expected: Counts | None = None
        self._number = 0
        self._seen = 0.0
        self._out: deque[tuple[Job, CrewEvent]] = deque()

    @property
    def jobs(self) -> int:
        """The guests of all workers at once; before they are known, one."""
        return max(1, self._roster.slots())

    def submit(self, job: Job) -> None:
        """See Crew."""
        cells = {cell.id: cell for cell in job.task.cells}
        self._works.append(_Work(job, cells, guests=_guests_so_far(job.task.directory)))

    def cancel(self) -> None:
        """See Crew."""

        def end() -> None:
            raise Cancelled

        self._link.heard.put(end)

    def events(self) -> Generator[tuple[Job, CrewEvent], None, None]:
        """See Crew."""
        with signals_in_turn(self._link.heard.put):
            self._waiting.extend(self._works)
            if self._waiting:
                self._versions = Versions.here()
                self._link.do(self._calibrate)
            self._seen = time.monotonic()
            try:
                while not self._is_done():
                    self._give()
                    self._hear()
                    while self._out:
                        yield self._out.popleft()
            finally:
                for attempt in list(self._attempts):
                    self._link.cancel(attempt)

    # --- what is heard ------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Take what has come, or wait for something."""
        if self._link.is_lost:
            raise LabError(
                "the fleet's scheduler has gone, or does not answer any more",
                hint="what was measured is stored: --resume goes on with the run, with --fleet or without",
            )
        try:
            item = self._link.heard.get(timeout=_POLL)
        except queue.Empty:
            self._check_members()
            return
        match item:
            case Joined(address):
                if self._roster.joined(address):
                    self._link.ask_offer(address)
            case Left(address):
                self._left(address)
            case Offered():
                self._offered(item)
            case Told(message):
                self._told(message)
            case Ended():
                self._ended(item)
            case work:
                work()

    def _check_members(self) -> None:
        now = time.monotonic()
        if self._roster.expected():
            self._seen = now
        elif now - self._seen > _PATIENCE or not self._may_return():
            members = [
                f"{member.name or member.address} {member.standing.value}: {member.why}" for member in self._roster
            ]
            raise HostError(
                "no worker of the fleet is left" if members else "the fleet has no worker",
                detail=members,
                hint="what was measured is stored: --resume goes on with the run, with --fleet or without",
            )

    def _may_return(self) -> bool:
        """Whether a worker has gone that its nanny may replace, or none has come yet."""
        members = list(self._roster)
        return not members or any(member.standing is Standing.GONE for member in members)

    def _offered(self, offered: Offered) -> None:
        member = self._roster.member(offered.address)
        if member is None or member.standing is not Standing.CANDIDATE:
            return
        try:
            offer = Offer.model_validate_json(offered.text)
        except ValidationError:
            why = (
                offered.text.removeprefix("error: ")
                if offered.text.startswith("error: ")
                else "it says what is no offer"
            )
            self._refuse(member, why)
            return
        assert self._versions is not None
        member.name, member.guests, member.memory_mib = offer.name, offer.guests, offer.memory_mib
        if offer.name in self._untrusted:
            self._refuse(member, "a worker of this name was retired")
            return
        other = self._versions.difference(offer.versions)
        if other is not None:
            self._refuse(member, other)
        elif self._expected is not None:
            self._start_calibration(member)

    def _left(self, address: str) -> None:
        member = self._roster.left(address)
        if member is None:
            return
        for attempt in [one for one in self._attempts.values() if one.member is member]:
            self._lose(attempt, "it has left the fleet")

    def _told(self, message: object) -> None:
        try:
            told = received(message)
        except LabError as error:
            self._listener.warn(f"warning: {error}")
            return
        attempt = self._attempts.get(told.attempt)
        if attempt is None or told.number < attempt.heard:
            return  # late, or twice
        if told.number > attempt.heard:
            self._lose(attempt, f"message {attempt.heard} of the boot did not come")
            return
        attempt.heard += 1
        match told.body:
            case Outcome(record, is_compared):
                self._outcome(attempt, record, is_compared=is_compared)
            case FileMessage() as file:
                self._file(attempt, file)
            case event:
                self._event(attempt, event)

    def _event(self, attempt: _Attempt, event: Event) -> None:
        name, work = attempt.member.name, attempt.work
        if isinstance(event, Progress):
            attempt.last = event.text
            boot = attempt.task.boot
            text = f"{attempt.task.directory.name}, {boot.kernel} on {boot.cpu}" if event.text == BEGINS else event.text
            event = Progress(text, name)
        elif isinstance(event, GuestBooted):
            event = dataclasses.replace(event, worker=name)
        if work is not None:
            self._emit(work, event)

    def _outcome(self, attempt: _Attempt, record: CellRecord, *, is_compared: bool) -> None:
        cell = next((cell for cell in attempt.task.cells if cell.id == record.id), None)
        if (
            cell is None
            or record.id in attempt.outcomes
            or any(getattr(record, name) != value for name, value in identity(cell).items())
        ):
            self._retire(attempt.member, f"it sent an outcome of {record.id}, which it was not asked for like that")
            return
        attempt.outcomes[record.id] = record
        work = attempt.work
        if work is not None:
            del work.left[record.id]
            remark = work.remarks.pop(record.id, None)
            notes = record.notes if remark is None else (*record.notes, remark)
            self._emit(work, Outcome(changed(record, worker=attempt.member.name, notes=notes), is_compared))

    def _file(self, attempt: _Attempt, file: FileMessage) -> None:
        if attempt.work is None:
            return
        attempt.files += 1
        try:
            target = attempt.work.job.task.directory / file.checked_name()
        except LabError as error:
            self._retire(attempt.member, error.what)
            return
        if attempt.files > MOST_FILES:
            self._retire(attempt.member, f"it sent more than {MOST_FILES} files of one boot")
            return
        with storage_faults(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, file.content)

    def _ended(self, ended: Ended) -> None:
        attempt = self._attempts.get(ended.attempt)
        if attempt is None:
            return
        try:
            result = _Result.model_validate(ended.result) if ended.error is None else None
        except ValidationError:
            result = None
        if result is None:
            self._lose(attempt, ended.error or "it returned what is no result")
        elif result.end == "done" and result.messages == attempt.heard and not self._lacks(attempt):
            self._finish(attempt)
        elif result.end == "usage":
            raise UsageError(result.what, where=result.where, hint=result.hint, detail=result.detail)
        elif result.end == "host":
            # Nothing is wrong with the boot: another machine may well do it.
            self._retire(attempt.member, result.what, is_believed=True)
        else:
            self._lose(attempt, result.what or "not all of the boot's messages came")

    def _lacks(self, attempt: _Attempt) -> bool:
        return any(cell.id not in attempt.outcomes for cell in attempt.task.cells)

    # --- attempts -----------------------------------------------------------------------------------------------------

    def _finish(self, attempt: _Attempt) -> None:
        self._end(attempt)
        member = attempt.member
        if attempt.check is not None:
            self._compare(attempt.check, member, counts(attempt.outcomes.values()))
        elif attempt.work is None:
            assert self._expected is not None
            other = difference(self._expected, counts(attempt.outcomes.values()))
            if other is None:
                member.standing = Standing.ADMITTED
                self._listener.say(
                    f"{member.name} works: {counted(member.guests, 'guest')}, counts as this machine does"
                )
            else:
                self._refuse(member, f"it does not count as this machine does: {other}")
        else:
            work = attempt.work
            member.known.add(work.machine)
            member.boots += 1
            if work.left:  # withdrawn while this attempt at the rest was under way
                self._waiting.appendleft(work)
            else:
                self._emit(work, JobEnded())
            if member.boots >= self._check_every and member.address in self._examples:
                member.boots = 0
                self._checks.append(self._examples.pop(member.address))

    def _end(self, attempt: _Attempt) -> None:
        """It is over: its room is free, and what it has measured waits for a check."""
        del self._attempts[attempt.name]
        attempt.member.taken.pop(attempt.name, None)
        if attempt.work is not None and attempt.outcomes:
            attempt.member.unchecked.append(tuple(attempt.outcomes))
            found = checkable(attempt.outcomes.values())
            if found:
                self._examples[attempt.member.address] = _Check(
                    found[0], attempt.member, attempt.work, attempt.member.done
                )

    def _lose(self, attempt: _Attempt, why: str) -> None:
        """An attempt is given up: its outcomes so far stay, the rest is another worker's."""
        self._link.cancel(attempt.name)
        self._end(attempt)
        member = attempt.member
        if attempt.check is not None and attempt.check.is_again:
            self._arbitrate(attempt.check, [])
        elif attempt.check is not None:
            self._checks.append(dataclasses.replace(attempt.check, is_again=True))
        elif attempt.work is None:
            if member.standing is Standing.CANDIDATE:
                self._refuse(member, f"its calibration did not end: {why}")
        elif attempt.heard == 0 and member.standing is not Standing.ADMITTED:
            self._waiting.appendleft(attempt.work)  # it had not begun: no loss of the boot's
        else:
            last = f"; the last that was heard: {attempt.last}" if attempt.last else ""
            self._lost(attempt.work, member, why + last)

    def _lost(self, work: _Work, member: Member, why: str) -> None:
        work.losses.append((member.name, why))
        if not work.left:
            self._emit(work, JobEnded())
        elif len(work.losses) < MOST_LOSSES:
            self._listener.say(f"{member.name}: {why}; {work.job.name} goes to another worker")
            self._waiting.appendleft(work)
        else:
            told = "; ".join(f"{name}: {heard}" for name, heard in work.losses)
            self._fail(work, f"the boot has lost {len(work.losses)} workers. {told}")

    def _fail(self, work: _Work, reason: str) -> None:
        release = work.job.artifacts.kernel.release
        for cell in list(work.left.values()):
            del work.left[cell.id]
            self._emit(work, Outcome(without_number(cell, "failed", reason, release)))
        self._emit(work, JobEnded())

    # --- trust --------------------------------------------------------------------------------------------------------

    def _calibrate(self) -> None:
        """In a thread of its own: what this machine counts."""
        try:
            job = calibration_job(self._context, self._kinds, [work.job for work in self._works])
            expected = measured_here(self._context, job)
        except BaseException as error:
            raised = error

            def fail() -> None:
                raise raised

            self._link.heard.put(fail)
            return

        def ready() -> None:
            self._calibration, self._expected = job, expected
            for member in self._roster:
                if member.standing is Standing.CANDIDATE and member.name:
                    self._start_calibration(member)

        self._link.heard.put(ready)

    def _start_calibration(self, member: Member) -> None:
        assert self._calibration is not None
        self._start(_Attempt(self._name("calibration"), member, self._calibration.task), self._calibration)

    def _compare(self, check: _Check, member: Member, found: Counts) -> None:
        """Two workers have counted a cell: where they differ, this machine decides which of them is wrong."""
        measured = counts([check.record])
        if difference(measured, found) is None:
            self._believe(check, [member])
            return
        self._listener.warn(f"warning: {check.of.name} and {member.name} do not count {check.record.id} alike")
        self._arbitrate(check, [(member, found)])

    def _believe(self, check: _Check, others: Iterable[Member]) -> None:
        """The worker that was checked counted right then, and those who have counted the same do so now."""
        check.of.counts_right(check.done)
        for member in others:
            member.counts_right(member.done)
            self._examples.pop(member.address, None)

    def _arbitrate(self, check: _Check, others: Sequence[tuple[Member, Counts]]) -> None:
        """Count a cell on this machine, and retire the workers that do not count it like that."""
        self._arbitrated += 1

        def decide() -> None:
            try:
                here: Counts | None = measured_here(self._context, self._single(check))
            except LabError:
                here = None  # neither is believed then

            def decided() -> None:
                self._arbitrated -= 1
                for member, found in [(check.of, counts([check.record])), *others]:
                    other = "this machine cannot tell who is wrong" if here is None else difference(here, found)
                    if other is not None:
                        self._retire(member, f"it does not count as this machine does: {other}")
                    elif member is check.of:
                        self._believe(check, [])
                    else:
                        member.counts_right(member.done)

            self._link.heard.put(decided)

        self._link.do(decide)

    def _single(self, check: _Check) -> Job:
        """The job of a check's cell alone."""
        job = check.work.job
        (cell,) = [cell for cell in job.task.boot.cells if cell.id == check.record.id]
        task = dataclasses.replace(job.task, cells=(cell,), directory=Path("check"), keep_events=False, guests=0)
        return dataclasses.replace(job, task=task)

    def _refuse(self, member: Member, why: str) -> None:
        member.standing, member.why = Standing.REFUSED, why
        self._listener.warn(f"warning: {member.name or member.address} does not take part: {why}")

    def _retire(self, member: Member, why: str, *, is_believed: bool = False) -> None:
        """A worker gets no boots any more. Unless it is believed, what it measured since its last check goes, too."""
        if member.standing is Standing.RETIRED or (member.standing is Standing.GONE and not member.unchecked):
            return  # it has nothing more to lose
        was_candidate = member.standing is Standing.CANDIDATE
        member.standing, member.why = Standing.RETIRED, why
        for attempt in [one for one in self._attempts.values() if one.member is member]:
            self._lose(attempt, why)
        if was_candidate:
            self._listener.warn(f"warning: {member.name} does not take part: {why}")
            return
        if not is_believed:
            self._untrusted.add(member.name)
        withdrawn = {} if is_believed else self._withdrawn(member)
        again = f"; {counted(sum(map(len, withdrawn.values())), 'cell')} will be measured again" if withdrawn else ""
        self._listener.warn(f"warning: {member.name} is retired: {why}{again}")
        for work in self._works:
            ids = withdrawn.get(work.job.name)
            if ids:
                self._take_back(work, ids, f"measured again: {member.name}, which was retired, had measured it: {why}")

    def _withdrawn(self, member: Member) -> Mapping[str, list[str]]:
        """By job, what a member has measured since it was checked, and all that was compared with it."""
        doubtful = {id_ for ids in member.unchecked for id_ in ids}
        member.unchecked.clear()
        by_job: dict[str, list[str]] = {}
        for work in self._works:
            for cell in work.job.task.cells:
                if cell.id not in work.left and (cell.id in doubtful or doubtful.intersection(cell.compared_with)):
                    by_job.setdefault(work.job.name, []).append(cell.id)
        return by_job

    def _take_back(self, work: _Work, ids: Sequence[str], remark: str) -> None:
        self._emit(work, Withdrawn(tuple(ids)))
        cells = {cell.id: cell for cell in work.job.task.cells}
        for id_ in ids:
            work.left[id_], work.remarks[id_] = cells[id_], remark
        is_busy = work in self._waiting or any(attempt.work is work for attempt in self._attempts.values())
        if not is_busy:
            self._waiting.appendleft(work)

    # --- giving -------------------------------------------------------------------------------------------------------

    def _is_done(self) -> bool:
        if self._waiting or self._out or any(one.work or one.check for one in self._attempts.values()):
            return False
        if not self._checks and not self._arbitrated:
            self._checks.extend(self._last_checks())
        return not self._checks and not self._arbitrated

    def _last_checks(self) -> Iterator[_Check]:
        """One cell of each worker that has measured since it was checked, where another one can count it."""
        for address in list(self._examples):
            yield self._examples.pop(address)
            return  # which may have checked another one

    def _give(self) -> None:
        """Start what can be started: checks first, then boots in the plan's order."""
        for check in list(self._checks):
            self._give_check(check)
        for work in list(self._waiting):
            if not any(member.has_room(0) for member in self._roster.working()):
                return
            self._give_boot(work)

    def _give_boot(self, work: _Work) -> None:
        largest = self._roster.largest()
        if self._roster.working() and work.memory_mib > largest and not self._candidates():
            self._waiting.remove(work)
            wanted = work.job.artifacts.machine.memory_mib
            self._fail(
                work, f"no worker has room for a guest of {wanted} MiB: the largest has {largest - OVERHEAD_MIB} MiB"
            )
            return
        is_timed = work.job.task.boot.clock == "wall"
        if is_timed and self._has_lost_host_of_times():
            self._waiting.remove(work)
            self._fail(
                work, f"times are measured on one worker, {self._roster.host_of_times}, and that does not work any more"
            )
            return
        names = [name for name, _ in work.losses]
        member = self._roster.choose(work.memory_mib, work.machine, names, is_timed=is_timed)
        if member is None:
            return
        if is_timed:
            self._roster.host_of_times = member.name
        self._waiting.remove(work)
        task = dataclasses.replace(
            work.job.task,
            cells=tuple(cell for cell in work.job.task.cells if cell.id in work.left),
            directory=Path(work.job.name),
            guests=work.guests,
        )
        work.guests += len(task.cells) + 1  # as many as failed cells may cost: names of guests stay unique
        attempt = _Attempt(self._name(work.job.name), member, task, work=work)
        member.taken[attempt.name] = work.memory_mib
        self._start(attempt, dataclasses.replace(work.job, task=task))

    def _give_check(self, check: _Check) -> None:
        others = [
            member
            for member in self._roster.working()
            if member is not check.of and member.memory_mib >= check.work.memory_mib
        ]
        if check.of.standing is Standing.RETIRED or not others:
            self._checks.remove(check)
            return
        free = [member for member in others if member.has_room(check.work.memory_mib)]
        if free:
            self._checks.remove(check)
            member = max(free, key=lambda one: (check.work.machine in one.known, one.name))
            job = self._single(check)
            attempt = _Attempt(self._name("check"), member, job.task, check=check)
            member.taken[attempt.name] = check.work.memory_mib
            self._start(attempt, job)

    def _start(self, attempt: _Attempt, job: Job) -> None:
        self._attempts[attempt.name] = attempt
        self._link.start(attempt.name, attempt.member.address, self._packed(job))

    def _packed(self, job: Job) -> Parcel:
        wanted = {cell.id for cell in job.task.cells}
        artifacts = dataclasses.replace(
            job.artifacts,
            cells={id_: one for id_, one in job.artifacts.cells.items() if id_ in wanted},
            plugin=self._plugin() if job.task.boot.clock == "instructions" else None,
        )
        return packed((job.task, artifacts), self._context.cache.root, _code_files(job))

    def _plugin(self) -> Path | None:
        """What counts instructions where a failure has to be explained; a worker has no compiler."""
        try:
            return counting_plugin(self._context)
        except LabError:
            return None  # the explanation says what it lacks

    def _candidates(self) -> bool:
        return any(member.standing is Standing.CANDIDATE for member in self._roster)

    def _has_lost_host_of_times(self) -> bool:
        name = self._roster.host_of_times
        return (
            bool(name) and not any(member.name == name for member in self._roster.working()) and not self._candidates()
        )

    def _name(self, what: str) -> str:
        self._number += 1
        return f"{what}-{self._number}-{id(self):x}"

    def _emit(self, work: _Work, event: CrewEvent) -> None:
        self._out.append((work.job, event))


def _guests_so_far(directory: Path) -> int:
    """How many guests have left logs in a boot's folder, by the names of these."""
    numbers = [path.name.removeprefix("guest").partition("-")[0] for path in directory.glob("guest*-*.console")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _code_files(job: Job) -> Iterable[Path]:
    """The kernel's image and list of symbols, which are found in its folder by their names."""
    kernel = job.artifacts.kernel
    folder = kernel.code_folder or kernel.headers
    return [file for file in (folder / "vmlinux", folder / "System.map") if file.is_file()]
