# SPDX-License-Identifier: GPL-2.0-only
"""How a worker goes on being believed: another one counts cells of its boots again.

Where there is no other one, and where two differ, this machine does.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.errors import LabError
from orchestrator.fleet.attempts import Attempt, Check
from orchestrator.fleet.calibration import measured_here
from orchestrator.fleet.roster import Member, Standing
from orchestrator.fleet.side import Side
from orchestrator.fleet.trust import Counts, checkable, counts, difference
from orchestrator.run.crew import Job


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
