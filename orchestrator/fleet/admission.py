# SPDX-License-Identifier: GPL-2.0-only
"""How a worker comes to be believed: equal versions, and a calibration that counts what this machine counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from pydantic import ValidationError

from orchestrator.counted import counted
from orchestrator.experiment.kind import KindRegistry
from orchestrator.fleet.attempts import Attempt
from orchestrator.fleet.calibration import calibrated_here, calibration_job
from orchestrator.fleet.facts import Offer, Versions
from orchestrator.fleet.link import Offered
from orchestrator.fleet.roster import Member, Standing
from orchestrator.fleet.side import Side
from orchestrator.fleet.trust import Counts, counts, difference
from orchestrator.results.contract import CellRecord
from orchestrator.run.crew import Job
from orchestrator.run.kind import BenchmarkKind

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
