# SPDX-License-Identifier: GPL-2.0-only
"""A fleet's executor: gives boots to workers whose counts equal this machine's.

A worker gets only as many boots as it has room for: boots that end with a worker are those that it was running. The
thread that reads the events makes every decision.
"""

from __future__ import annotations

import dataclasses
import math
import queue
import secrets
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.kind_registry import KindRegistry
from orchestrator.files import write_whole
from orchestrator.fleet import trust
from orchestrator.fleet.link import Ended, Joined, Left, Link, Message, connected, short
from orchestrator.fleet.members import OVERHEAD_MIB, Dispatch, Member, PendingBoot, Roster, Standing, choose
from orchestrator.fleet.messages import BEGINS, MOST_BYTES, MOST_FILES, FileMessage, StepLine, received
from orchestrator.fleet.transfer import bundled_job
from orchestrator.fleet.worker import Answer, Versions
from orchestrator.guest.guest_group import Guests
from orchestrator.plain_text import counted, cut, plain_line, shown
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults
from orchestrator.run.benchmark_kind import BenchmarkKind
from orchestrator.run.boot_events import CellRecorded, Event, GuestBooted, Progress
from orchestrator.run.cell_records import changed, identity, without_number
from orchestrator.run.executor import Executor, ExecutorEvent, Job, JobEnded, signals_in_turn
from orchestrator.run.runner import ProgressListener
from orchestrator.steps import pass_on

MOST_LOSSES = 3
"""Workers that a boot may lose before its cells fail."""

MOST_COMINGS = 5
"""How often a worker may rejoin without completing a boot, as it might be restarted for ever."""

_PATIENCE = 60.0
"""Seconds without any worker until a run ends, or without the worker that a boot needs until the boot fails.

A killed worker is replaced within ten."""


_RESUME = "the results so far are stored: --resume resumes the run, with --fleet or without"


@contextmanager
def fleet_executor(
    address: str, key: str, kinds: KindRegistry[BenchmarkKind], context: BuildContext, listener: ProgressListener
) -> Iterator[Executor]:
    """The fleet's executor for one run. Raises HostError if no scheduler answers."""
    with closing(Link(connected(address, key))) as link:
        yield FleetExecutor(link, kinds, context, listener)


class FleetExecutor:
    """A run's side of a fleet; see ``fleet_executor``."""

    def __init__(
        self, link: Link, kinds: KindRegistry[BenchmarkKind], context: BuildContext, listener: ProgressListener
    ) -> None:
        self._link, self._kinds, self._context, self._listener = link, kinds, context, listener
        self._roster = Roster()
        self._own_guests = Guests()
        self._versions: Versions | None = None
        self._calibration: tuple[Job, trust.Counts] | None = None
        self._retired: set[str] = set()
        self._comings: Counter[str] = Counter()
        """How often a worker has joined, by name, since one of that name last completed a boot."""
        self._works: list[PendingBoot] = []
        self._waiting: list[PendingBoot] = []
        self._attempts: dict[str, Dispatch] = {}
        self._measurers: list[Member] = []
        """The members that have measured something."""
        self._number = 0
        self._token = secrets.token_hex(6)
        self._seen = 0.0
        self._left_at = -math.inf
        self._out: deque[tuple[Job, ExecutorEvent]] = deque()

    @property
    def jobs(self) -> int:
        """The guests of all workers together; one while they are unknown."""
        return max(1, sum(member.guests for member in self._roster.working()))

    def submit(self, job: Job) -> None:
        if job.timed_on == "":
            raise UsageError(
                "times of this run were measured on this machine, and cannot be mixed with another's",
                hint="leave out --fleet to resume it",
            )
        if job.timed_on is not None:
            self._roster.host_of_times = job.timed_on
        cells = {cell.id: cell for cell in job.task.cells}
        logs = [path.name[5:].partition("-")[0] for path in job.task.directory.glob("guest*-*.console")]
        self._works.append(PendingBoot(job, cells, guests=max(map(int, filter(str.isdecimal, logs)), default=0)))

    def events(self) -> Generator[tuple[Job, ExecutorEvent], None, None]:
        """See Executor. Raises LabError at the end if a worker counted differently from this machine."""
        if not self._works:
            return
        with signals_in_turn(self._link.inbox.put):
            self._waiting += self._works
            self._versions = Versions.here()
            self._link.do(self._calibrate, self._begin_examinations)
            self._seen = time.monotonic()
            try:
                while self._waiting or self._out or any(dispatch.work for dispatch in self._attempts.values()):
                    self._give_all()
                    self._hear()
                    while self._out:
                        yield self._out.popleft()
                self._recount()
            finally:
                for attempt in list(self._attempts):
                    self._link.cancel(attempt)
                self._own_guests.end()

    def _hear(self) -> None:
        if self._link.is_lost:
            raise LabError("the fleet's scheduler is gone, or does not answer any more", hint=_RESUME)
        is_staffed = bool(self._roster.working()) or self._roster.has_candidates()
        if is_staffed:
            self._seen = time.monotonic()
        try:
            item = self._link.inbox.get(timeout=1.0)
        except queue.Empty:
            if not is_staffed:
                self._check_members()
            return
        match item:
            case Joined(address):
                if self._roster.joined(address):
                    self._link.do(partial(self._link.examined, address), partial(self._offered, address))
            case Left(address):
                self._left(address)
            case Message(message):
                self._told(message)
            case Ended():
                self._ended(item)
            case work:
                work()

    def _check_members(self) -> None:
        members = list(self._roster.members.values())
        # A member that left may be replaced, and an empty fleet may still get one.
        may_come = not members or any(member.standing is Standing.GONE for member in members)
        if time.monotonic() - self._seen > _PATIENCE or not may_come:
            raise HostError(
                "no worker of the fleet is left" if members else "the fleet has no worker",
                detail=[f"{member.name or member.address} {member.standing.value}: {member.why}" for member in members],
                hint=_RESUME,
            )

    def _left(self, address: str) -> None:
        member = self._roster.left(address)
        if member is not None:
            self._left_at = time.monotonic()
            self._lose_all_of(member, "it has left the fleet")

    def _told(self, message: object) -> None:
        try:
            name, body = received(message)
        except LabError as error:
            self._listener.warn(f"warning: {error}")
            return
        attempt = self._attempts.get(name)
        if attempt is None:
            return  # the attempt was given up already
        attempt.has_begun = True
        match body:
            case CellRecorded(record, is_compared):
                self._outcome(attempt, record, is_compared=is_compared)
            case FileMessage() as file:
                self._file(attempt, file)
            case StepLine(line):
                if attempt.work is not None:
                    pass_on(attempt.work.job.name, line)
            case event:
                self._event(attempt, event)

    def _event(self, attempt: Dispatch, event: Event) -> None:
        name, work = attempt.member.name, attempt.work
        if isinstance(event, Progress):
            attempt.last = event.text
            guest = attempt.task.boot.guest
            text = (
                f"{attempt.task.directory.name}, {guest.kernel} on {guest.cpu}" if event.text == BEGINS else event.text
            )
            event = Progress(text, name)
        elif isinstance(event, GuestBooted):
            event = dataclasses.replace(event, worker=name)
        if work is not None:
            self._emit(work, event)

    def _outcome(self, attempt: Dispatch, record: CellRecord, *, is_compared: bool) -> None:
        cell = next((cell for cell in attempt.task.cells if cell.id == record.id), None)
        if (
            cell is None
            or record.id in attempt.outcomes
            or any(getattr(record, name) != value for name, value in identity(cell).items())
            or not cell.parameters.items() <= record.parameters.items()  # kinds add facts to them
        ):
            self._retire(attempt.member, f"it sent an outcome of {record.id}, which differs from the request")
            return
        attempt.outcomes[record.id] = record
        if attempt.work is not None:
            del attempt.work.left[record.id]
            self._emit(attempt.work, CellRecorded(changed(record, worker=attempt.member.name), is_compared))

    def _file(self, attempt: Dispatch, file: FileMessage) -> None:
        if attempt.work is None:
            return
        attempt.files += 1
        attempt.bytes += len(file.content)
        try:
            target = attempt.work.job.task.directory / file.checked_name()
            if attempt.files > MOST_FILES:
                raise LabError(f"it sent more than {MOST_FILES} files of one boot")
            if attempt.bytes > MOST_BYTES:
                raise LabError(f"it sent files of more than {MOST_BYTES >> 20} MiB of one boot")
        except LabError as error:
            self._retire(attempt.member, error.what)
            return
        with storage_faults(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, file.content)

    def _ended(self, ended: Ended) -> None:
        attempt = self._attempts.get(ended.attempt)
        if attempt is None:
            return
        match ended.error:
            case None if all(cell.id in attempt.outcomes for cell in attempt.task.cells):
                self._finish(attempt)
            case None:
                self._lose(attempt, "some of the boot's messages are missing")
            case UsageError() as error:
                raise error
            case HostError() as error:  # the boot is fine: another machine may do it
                self._retire(attempt.member, error.what)
            case LabError() as error:
                self._lose(attempt, error.what)
            case error:  # an error of Dask's at a worker's end, or a bug of the lab
                self._lose(attempt, f"{type(error).__name__}: {short(error)}")

    def _finish(self, attempt: Dispatch) -> None:
        self._end(attempt)
        member, work = attempt.member, attempt.work
        if work is None:
            self._calibrated(member, trust.counts(attempt.outcomes.values()))
        else:
            member.known.add(work.machine)
            self._comings.pop(member.name, None)
            self._emit(work, JobEnded())

    def _end(self, attempt: Dispatch) -> None:
        del self._attempts[attempt.name]
        member = attempt.member
        member.taken.pop(attempt.name, None)
        if attempt.work is None or not attempt.outcomes:
            return
        if not member.measured:
            self._measurers.append(member)
        member.measured += attempt.outcomes
        cells = trust.exact_records(attempt.outcomes.values())
        if cells:  # a worker that becomes faulty within a boot shows it in the last cell
            member.example = cells[-1], attempt.work.job

    def _lose(self, attempt: Dispatch, why: str) -> None:
        """Give an attempt up: its outcomes so far are kept, another worker gets the rest."""
        self._link.cancel(attempt.name)
        self._end(attempt)
        member = attempt.member
        if attempt.work is None:
            self._refuse(member, f"its calibration did not end: {why}")
        elif not attempt.has_begun and not member.works:
            self._waiting.insert(0, attempt.work)  # it had not begun: does not count as a loss
        else:
            last = f"; its last report: {_cut(attempt.last)}" if attempt.last else ""
            attempt.work.losses.append((member.name, _cut(why) + last))
            self._pass_on(attempt.work)

    def _lose_all_of(self, member: Member, why: str) -> None:
        for attempt in [dispatch for dispatch in self._attempts.values() if dispatch.member is member]:
            self._lose(attempt, why)

    def _pass_on(self, work: PendingBoot) -> None:
        name, why = work.losses[-1]
        if not work.left:
            self._emit(work, JobEnded())
        elif len(work.losses) < MOST_LOSSES:
            self._listener.say(f"{name}: {why}; {work.job.name} goes to another worker")
            self._waiting.insert(0, work)
        else:
            told = "; ".join(f"{name}: {heard}" for name, heard in work.losses)
            self._fail(work, f"the boot has lost {len(work.losses)} workers. {told}")

    def _fail(self, work: PendingBoot, reason: str) -> None:
        release = work.job.artifacts.kernel.release
        for cell in list(work.left.values()):
            del work.left[cell.id]
            self._emit(work, CellRecorded(without_number(cell, "failed", reason, release)))
        self._emit(work, JobEnded())

    def _calibrate(self) -> tuple[Job, trust.Counts]:
        """In a thread of its own: what this machine counts."""
        job = trust.calibration_job(self._context, self._kinds, [work.job for work in self._works])
        return job, trust.calibrated_here(self._context, job, self._own_guests.watch)

    def _begin_examinations(self, calibration: tuple[Job, trust.Counts]) -> None:
        self._calibration = calibration
        for member in self._roster.members.values():
            if member.standing is Standing.CANDIDATE and member.name:
                self._examine(member)

    def _examine(self, member: Member) -> None:
        if self._calibration is not None:  # otherwise it is examined later
            job, _ = self._calibration
            self._start(Dispatch(self._name("calibration"), member, job.task), job)

    def _offered(self, address: str, answer: Answer) -> None:
        member = self._roster.members[address]
        if member.standing is not Standing.CANDIDATE:
            return
        if answer.versions is None:
            self._refuse(member, answer.problem)
            return
        assert self._versions is not None
        member.name, member.guests, member.memory_mib = answer.name, answer.guests, answer.memory_mib
        differing = self._versions.difference(answer.versions)
        self._comings[member.name] += 1
        if self._comings[member.name] > MOST_COMINGS:
            self._refuse(member, f"it has joined {MOST_COMINGS} times without completing a boot")
        elif member.name in self._retired:
            self._refuse(member, "a worker of this name was retired")
        elif differing is not None:
            self._refuse(member, differing)
        else:
            self._examine(member)

    def _calibrated(self, member: Member, pairs: trust.Counts) -> None:
        assert self._calibration is not None
        differing = trust.difference(self._calibration[1], pairs)
        if differing is not None:
            self._refuse(member, f"its counts differ from this machine's: {differing}")
            return
        member.standing = Standing.ADMITTED
        self._listener.say(f"{member.name} works: {counted(member.guests, 'guest')}, its counts equal this machine's")

    def _refuse(self, member: Member, why: str) -> None:
        if member.standing is Standing.CANDIDATE:
            member.standing, member.why = Standing.REFUSED, why
            self._listener.warn(f"warning: {member.name or member.address} is not used: {why}")

    def _retire(self, member: Member, why: str) -> None:
        self._refuse(member, why)
        if member.works:
            member.standing, member.why = Standing.RETIRED, why
            self._retired.add(member.name)
            self._listener.warn(f"warning: {member.name} is retired: {why}")
        self._lose_all_of(member, why)

    def _recount(self) -> None:
        """Count one cell of each worker again here. Raises LabError that lists the cells to measure again."""
        examples = [(measurer, *measurer.example) for measurer in self._measurers if measurer.example is not None]
        pairs_of_each: list[trust.Counts | LabError] = []

        cells = [trust.single_cell(job, record.id) for _, record, job in examples]
        if cells:
            self._link.do(partial(trust.recounted, self._context, cells, self._own_guests.watch), pairs_of_each.extend)
        while len(pairs_of_each) < len(examples):
            item = self._link.inbox.get()
            if callable(item):  # other messages are workers', which have nothing left to do
                item()
        wrong: list[tuple[Member, str]] = []
        for (member, record, _), here in zip(examples, pairs_of_each, strict=True):
            if isinstance(here, LabError):
                self._listener.warn(f"warning: {member.name} could not be checked on this machine: {here.what}")
            elif (differing := trust.difference(here, trust.counts([record]))) is not None:
                wrong.append((member, differing))
        if wrong:
            raise self._wrong(wrong)

    def _wrong(self, wrong: Sequence[tuple[Member, str]]) -> LabError:
        """The error that lists the cells to measure again: these workers' own, and those compared with them."""
        doubtful = {id_ for member, _ in wrong for id_ in member.measured}
        cells = [cell for work in self._works for cell in work.job.task.cells]
        again = [cell.id for cell in cells if cell.id in doubtful or doubtful.intersection(cell.compared_with)]
        listed = shown(again, 8, "and {} more")
        names = ", ".join(dict.fromkeys(member.name for member, _ in wrong))
        return LabError(
            f"{counted(len(again), 'cell')} must be measured again: the counts of {names} differ from this machine's",
            detail=[*(f"{member.name}: {differing}" for member, differing in wrong), "measure again:", *listed],
            hint="do not use their numbers; measure them in a new run, without these workers",
        )

    def _give_all(self) -> None:
        """Start boots in order while workers have room; boots with equal needs wait for the first of them.

        Otherwise each event would check all of, say, 20,000 boots.
        """
        unmet: set[object] = set()
        waiting = iter(list(self._waiting))
        while any(member.has_room(0) for member in self._roster.working()):
            work = next((boot for boot in waiting if boot.need not in unmet), None)
            if work is None:
                return
            if self._give(work):
                self._waiting.remove(work)
            else:
                unmet.add(work.need)

    def _give(self, work: PendingBoot) -> bool:
        """Start a boot, or fail it; False if it keeps waiting."""
        roster = self._roster
        able = roster.able(work.memory_mib, is_timed=work.is_timed)
        # For a minute, a worker that was killed may be replaced.
        if not able and not roster.has_candidates() and time.monotonic() - self._left_at > _PATIENCE:
            self._fail(work, self._why_not_done(work))
            return True
        member = choose(able, work.memory_mib, work.machine, [name for name, _ in work.losses])
        if member is None:
            return False
        if work.is_timed:
            roster.host_of_times = member.name
        task = dataclasses.replace(
            work.job.task,
            cells=tuple(cell for cell in work.job.task.cells if cell.id in work.left),
            directory=Path(work.job.name),
            guests=work.guests,
        )
        work.guests += len(task.cells) + 1  # as many guests as failed cells may need: names stay unique
        attempt = Dispatch(self._name(work.job.name), member, task, work=work)
        member.taken[attempt.name] = work.memory_mib
        self._start(attempt, dataclasses.replace(work.job, task=task))
        return True

    def _why_not_done(self, work: PendingBoot) -> str:
        memory, host = work.job.artifacts.machine.memory_mib, self._roster.host_of_times
        largest = max(member.memory_mib for member in self._roster.working())
        if work.memory_mib > largest:
            return f"no worker has room for a guest of {memory} MiB: the largest has {largest - OVERHEAD_MIB} MiB"
        works = any(member.name == host for member in self._roster.working())
        why = f"has no room for a guest of {memory} MiB" if works else "does not work any more"
        return f"times are measured on one worker, {host}, and that {why}"

    def _start(self, attempt: Dispatch, job: Job) -> None:
        self._attempts[attempt.name] = attempt
        self._link.start(attempt.name, attempt.member.address, bundled_job(self._context, job))

    def _name(self, what: str) -> str:
        self._number += 1
        return f"{what}-{self._number}-{self._token}"  # a fleet has several clients, and a process several runs

    def _emit(self, work: PendingBoot, event: ExecutorEvent) -> None:
        self._out.append((work.job, event))


def _cut(told: str) -> str:
    """One worker's message, shortened so that a failed cell's reason has room for all workers'."""
    return cut(plain_line(told), 500)
