# SPDX-License-Identifier: GPL-2.0-only
"""The crew on many machines: it gives boots to workers it believes, and takes them back from those it does not.

A worker gets as many boots as it has room for and no more, so that those that end with it are those that it did. Every
decision is made in the thread that reads the events.
"""

from __future__ import annotations

import dataclasses
import math
import queue
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from orchestrator.artifacts.cache import BuildContext
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.table import KindRegistry
from orchestrator.files import write_whole
from orchestrator.fleet.link import Ended, Joined, Left, Link, Offered, Told, linked
from orchestrator.fleet.parcel import packed_job
from orchestrator.fleet.trust import (
    CHECK_EVERY,
    OVERHEAD_MIB,
    Admission,
    Attempt,
    Check,
    Checking,
    Member,
    Result,
    Side,
    Standing,
    Work,
)
from orchestrator.fleet.worker import BEGINS, MOST_BYTES, MOST_FILES, FileMessage, Steps, received
from orchestrator.plain_text import counted, plain_line
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults
from orchestrator.run.boot import (
    BenchmarkKind,
    Event,
    GuestBooted,
    Outcome,
    Progress,
    changed,
    identity,
    without_number,
)
from orchestrator.run.crew import Cancelled, Crew, CrewEvent, Job, JobEnded, Withdrawn, signals_in_turn
from orchestrator.run.runner import ProgressListener
from orchestrator.steps import pass_on

# The boots that wait for a worker, in their order; those that the same workers can do are asked for once.
#
# With 20,000 boots, and a worker that is free and has the memory for none of them, each event would else ask for all.

_Need = tuple[int, bool, frozenset[str]]
"""What decides on which workers can do a boot: its memory, whether it is timed, and who has lost it."""


class Waiting:
    """Boots in the plan's order, and in front of them those that came back."""

    def __init__(self) -> None:
        self._queues: defaultdict[_Need, deque[tuple[int, Work]]] = defaultdict(deque)
        self._jobs: set[str] = set()
        self._first = self._next = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, work: Work) -> bool:
        return work.job.name in self._jobs

    def extend(self, works: Iterable[Work]) -> None:
        """Boots that wait behind all others."""
        for work in works:
            self._queues[_need(work)].append((self._next, work))
            self._jobs.add(work.job.name)
            self._next += 1

    def appendleft(self, work: Work) -> None:
        """One that waits before all others."""
        self._first -= 1
        self._queues[_need(work)].appendleft((self._first, work))
        self._jobs.add(work.job.name)

    def give(self, take: Callable[[Work], bool]) -> None:
        """Offer boots in their order, each until ``take`` says that it waits on; so do those that need the same then.

        A boot that is taken waits no more. ``take`` adds none.
        """
        queues = {need: queue for need, queue in self._queues.items() if queue}
        while queues:
            need, queue = min(queues.items(), key=lambda one: one[1][0][0])
            _, work = queue[0]
            if not take(work):
                del queues[need]
                continue
            queue.popleft()
            self._jobs.remove(work.job.name)
            if not queue:
                del queues[need], self._queues[need]


def _need(work: Work) -> _Need:
    return work.memory_mib, work.is_timed, frozenset(name for name, _ in work.losses)


MOST_LOSSES = 3
"""Workers that a boot may lose before its cells fail."""

_PATIENCE = 60.0
"""Seconds without any worker, behind which a run ends, or without the one that a boot needs, behind which that fails.

One that was killed is replaced within ten.
"""

_LONGEST_REPORT = 500
"""Characters kept of each report of a lost worker: two of each of three, with names, are less than a reason has."""

_POLL = 1.0


@contextmanager
def fleet_crew(
    address: str,
    key: str,
    kinds: KindRegistry[BenchmarkKind],
    context: BuildContext,
    listener: ProgressListener,
) -> Iterator[Crew]:
    """The crew of a fleet, for one run. Raises HostError where no scheduler answers."""
    with linked(address, key) as link:
        yield FleetCrew(link, kinds, context, listener)


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
        self._side = Side(link, context, listener)
        self._admission = Admission(self._side, kinds, self._start_calibration)
        self._checking = Checking(self._side, check_every, self._start_check, self._retire)
        self._works: list[Work] = []
        self._waiting = Waiting()
        self._attempts: dict[str, Attempt] = {}
        self._number = 0
        self._token = secrets.token_hex(6)
        self._seen = 0.0
        self._left_at = -math.inf
        self._out: deque[tuple[Job, CrewEvent]] = deque()

    @property
    def jobs(self) -> int:
        """The guests of all workers at once; before they are known, one."""
        return max(1, self._side.roster.slots())

    def submit(self, job: Job) -> None:
        """See Crew."""
        if job.timed_on == "":
            raise UsageError(
                "times of this run were measured on this machine, and those of another do not go with them",
                hint="leave out --fleet to go on with it",
            )
        if job.timed_on is not None:
            self._side.roster.host_of_times = job.timed_on
        cells = {cell.id: cell for cell in job.task.cells}
        self._works.append(Work(job, cells, guests=_guests_so_far(job.task.directory)))

    def cancel(self) -> None:
        """See Crew."""

        def end() -> None:
            raise Cancelled

        self._side.link.heard.put(end)

    def events(self) -> Generator[tuple[Job, CrewEvent], None, None]:
        """See Crew."""
        with signals_in_turn(self._side.link.heard.put):
            self._waiting.extend(self._works)
            if self._waiting:
                self._admission.begin([work.job for work in self._works])
            self._seen = time.monotonic()
            try:
                while not self._is_done():
                    self._give()
                    self._hear()
                    while self._out:
                        yield self._out.popleft()
            finally:
                for attempt in list(self._attempts):
                    self._side.link.cancel(attempt)
                self._side.guests.end()

    # --- what is heard ------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Take what has come, or wait for something."""
        if self._side.link.is_lost:
            raise LabError(
                "the fleet's scheduler has gone, or does not answer any more",
                hint="what was measured is stored: --resume goes on with the run, with --fleet or without",
            )
        if self._side.roster.expected():
            self._seen = time.monotonic()
        try:
            item = self._side.link.heard.get(timeout=_POLL)
        except queue.Empty:
            self._check_members()
            return
        match item:
            case Joined(address):
                if self._side.roster.joined(address):
                    self._side.link.ask_offer(address)
            case Left(address):
                self._left(address)
            case Offered():
                self._admission.offered(item)
            case Told(message):
                self._told(message)
            case Ended():
                self._ended(item)
            case work:
                work()

    def _check_members(self) -> None:
        if self._side.roster.expected():
            return
        if time.monotonic() - self._seen > _PATIENCE or not self._may_return():
            members = [
                f"{member.name or member.address} {member.standing.value}: {member.why}" for member in self._side.roster
            ]
            raise HostError(
                "no worker of the fleet is left" if members else "the fleet has no worker",
                detail=members,
                hint="what was measured is stored: --resume goes on with the run, with --fleet or without",
            )

    def _may_return(self) -> bool:
        """Whether a worker has gone that its nanny may replace, or none has come yet."""
        members = list(self._side.roster)
        return not members or any(member.standing is Standing.GONE for member in members)

    def _left(self, address: str) -> None:
        member = self._side.roster.left(address)
        if member is None:
            return
        self._left_at = time.monotonic()
        self._lose_all_of(member, "it has left the fleet")

    def _told(self, message: object) -> None:
        try:
            told = received(message)
        except LabError as error:
            self._side.listener.warn(f"warning: {error}")
            return
        attempt = self._attempts.get(told.attempt)
        if attempt is None or told.number < attempt.heard:
            return  # late, or twice
        if told.number > attempt.heard:
            self._lose(attempt, f"message {attempt.heard} of the boot did not come")
            return
        attempt.heard += 1
        self._log(attempt, told.steps)
        match told.body:
            case Outcome(record, is_compared):
                self._outcome(attempt, record, is_compared=is_compared)
            case FileMessage() as file:
                self._file(attempt, file)
            case event:
                self._event(attempt, event)

    def _log(self, attempt: Attempt, steps: Steps) -> None:
        """Its worker's steps go into the run's log as those of a boot here do."""
        if attempt.work is not None:
            for ago, line in steps:
                pass_on(attempt.work.job.name, line, ago)

    def _event(self, attempt: Attempt, event: Event) -> None:
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

    def _outcome(self, attempt: Attempt, record: CellRecord, *, is_compared: bool) -> None:
        cell = next((cell for cell in attempt.task.cells if cell.id == record.id), None)
        if (
            cell is None
            or record.id in attempt.outcomes
            or any(getattr(record, name) != value for name, value in identity(cell).items())
            or not cell.parameters.items() <= record.parameters.items()  # a kind adds facts to them
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

    def _file(self, attempt: Attempt, file: FileMessage) -> None:
        if attempt.work is None:
            return
        attempt.files += 1
        attempt.bytes += len(file.content)
        try:
            target = attempt.work.job.task.directory / file.checked_name()
        except LabError as error:
            self._retire(attempt.member, error.what)
            return
        if attempt.files > MOST_FILES:
            self._retire(attempt.member, f"it sent more than {MOST_FILES} files of one boot")
            return
        if attempt.bytes > MOST_BYTES:
            self._retire(attempt.member, f"it sent files of more than {MOST_BYTES >> 20} MiB of one boot")
            return
        with storage_faults(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, file.content)

    def _ended(self, ended: Ended) -> None:
        attempt = self._attempts.get(ended.attempt)
        if attempt is None:
            return
        try:
            result = Result.model_validate(ended.result) if ended.error is None else None
        except ValidationError:
            result = None
        self._log(attempt, result.steps if result else ())
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

    def _lacks(self, attempt: Attempt) -> bool:
        return any(cell.id not in attempt.outcomes for cell in attempt.task.cells)

    # --- attempts -----------------------------------------------------------------------------------------------------

    def _finish(self, attempt: Attempt) -> None:
        self._end(attempt)
        member = attempt.member
        if attempt.check is not None:
            self._checking.compare(attempt)
        elif attempt.work is None:
            self._admission.calibrated(member, attempt.outcomes.values())
        else:
            work = attempt.work
            member.known.add(work.machine)
            if work.left:  # withdrawn while this attempt at the rest was under way
                self._waiting.appendleft(work)
            else:
                self._emit(work, JobEnded())
            self._admission.did_boot(member.name)
            self._checking.did_boot(member)

    def _end(self, attempt: Attempt) -> None:
        """It is over: its room is free, and what it has measured waits for a check."""
        del self._attempts[attempt.name]
        attempt.member.taken.pop(attempt.name, None)
        if attempt.work is not None and attempt.outcomes:
            self._checking.measured(attempt)

    def _lose(self, attempt: Attempt, why: str) -> None:
        """An attempt is given up: its outcomes so far stay, the rest is another worker's."""
        self._side.link.cancel(attempt.name)
        self._end(attempt)
        member = attempt.member
        if attempt.check is not None:
            self._checking.lost(attempt.check)
        elif attempt.work is None:
            self._admission.lost(attempt, why)
        elif attempt.heard == 0 and member.standing is not Standing.ADMITTED:
            self._waiting.appendleft(attempt.work)  # it had not begun: no loss of the boot's
        else:
            last = f"; the last that was heard: {_cut(attempt.last)}" if attempt.last else ""
            self._lost(attempt.work, member, _cut(why) + last)

    def _lose_all_of(self, member: Member, why: str) -> None:
        for attempt in [one for one in self._attempts.values() if one.member is member]:
            self._lose(attempt, why)

    def _lost(self, work: Work, member: Member, why: str) -> None:
        work.losses.append((member.name, why))
        if not work.left:
            self._emit(work, JobEnded())
        elif len(work.losses) < MOST_LOSSES:
            self._side.listener.say(f"{member.name}: {why}; {work.job.name} goes to another worker")
            self._waiting.appendleft(work)
        else:
            told = "; ".join(f"{name}: {heard}" for name, heard in work.losses)
            self._fail(work, f"the boot has lost {len(work.losses)} workers. {told}")

    def _fail(self, work: Work, reason: str) -> None:
        release = work.job.artifacts.kernel.release
        for cell in list(work.left.values()):
            del work.left[cell.id]
            self._emit(work, Outcome(without_number(cell, "failed", reason, release)))
        self._emit(work, JobEnded())

    # --- trust --------------------------------------------------------------------------------------------------------

    def _retire(self, member: Member, why: str, *, is_believed: bool = False) -> None:
        """A worker gets no boots any more. Unless it is believed, what it measured since its last check goes, too."""
        was_there = member.standing in (Standing.CANDIDATE, Standing.ADMITTED)
        if not was_there and (is_believed or not member.unchecked):
            return  # it has nothing more to lose
        was_candidate = member.standing is Standing.CANDIDATE
        member.standing, member.why = Standing.RETIRED, why
        self._lose_all_of(member, why)
        if was_candidate:
            self._side.listener.warn(f"warning: {member.name} does not take part: {why}")
            return
        if not is_believed:
            self._admission.bar(member.name)
        withdrawn = {} if is_believed else self._withdrawn(member)
        again = f"; {counted(sum(map(len, withdrawn.values())), 'cell')} will be measured again" if withdrawn else ""
        self._side.listener.warn(f"warning: {member.name} is retired: {why}{again}")
        for work in self._works:
            ids = withdrawn.get(work.job.name)
            if ids:
                self._take_back(work, ids, f"measured again: {member.name}, which was retired, had measured it: {why}")
        replaced = [one for one in self._side.roster.working() if one.name == member.name and not is_believed]
        for one in replaced:  # a nanny's next worker, on the same machine
            self._retire(one, why)

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

    def _take_back(self, work: Work, ids: Sequence[str], remark: str) -> None:
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
        return self._checking.is_done()

    def _give(self) -> None:
        """Start what can be started: checks first, then boots in the plan's order."""
        self._checking.give()
        self._waiting.give(self._give_boot)

    def _give_boot(self, work: Work) -> bool:
        """Start a boot, or let it fail; False where it waits on, and with it all that need what it needs."""
        roster = self._side.roster
        if not any(member.has_room(0) for member in roster.working()):
            return False
        largest = roster.largest()
        is_final = time.monotonic() - self._left_at > _PATIENCE  # else a worker that was killed may be replaced
        if is_final and roster.working() and work.memory_mib > largest and not roster.has_candidates():
            wanted = work.job.artifacts.machine.memory_mib
            self._fail(
                work, f"no worker has room for a guest of {wanted} MiB: the largest has {largest - OVERHEAD_MIB} MiB"
            )
            return True
        if is_final and work.is_timed and roster.has_lost_host_of_times():
            self._fail(
                work,
                f"times are measured on one worker, {roster.host_of_times}, and that does not work any more",
            )
            return True
        names = [name for name, _ in work.losses]
        member = roster.choose(work.memory_mib, work.machine, names, is_timed=work.is_timed)
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
        work.guests += len(task.cells) + 1  # as many as failed cells may cost: names of guests stay unique
        attempt = Attempt(self._name(work.job.name), member, task, work=work)
        member.taken[attempt.name] = work.memory_mib
        self._start(attempt, dataclasses.replace(work.job, task=task))
        return True

    def _start_calibration(self, member: Member, job: Job) -> None:
        self._start(Attempt(self._name("calibration"), member, job.task), job)

    def _start_check(self, member: Member, check: Check, job: Job) -> None:
        attempt = Attempt(self._name("check"), member, job.task, check=check)
        member.taken[attempt.name] = check.work.memory_mib
        self._start(attempt, job)

    def _start(self, attempt: Attempt, job: Job) -> None:
        self._attempts[attempt.name] = attempt
        self._side.link.start(attempt.name, attempt.member.address, packed_job(self._side.context, job))

    def _name(self, what: str) -> str:
        self._number += 1
        return f"{what}-{self._number}-{self._token}"  # a fleet has several clients, and one process several runs

    def _emit(self, work: Work, event: CrewEvent) -> None:
        self._out.append((work.job, event))


def _cut(told: str) -> str:
    """What was told of one worker, so that the reason of a failed cell has room for what was told of all."""
    shown = plain_line(told)
    return shown if len(shown) <= _LONGEST_REPORT else f"{shown[: _LONGEST_REPORT - 4]} ..."


def _guests_so_far(directory: Path) -> int:
    """How many guests have left logs in a boot's folder, by the names of these."""
    numbers = [path.name.removeprefix("guest").partition("-")[0] for path in directory.glob("guest*-*.console")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)
