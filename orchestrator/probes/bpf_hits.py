# SPDX-License-Identifier: GPL-2.0-only
"""The hits of a user's BPF programs: by a witness at the place of each, and by the kernel's own count of their runs.

A call may pass a tracepoint several times, and the function of the probe point once. So a program at an event has a
witness at that event. A program that has run more often than its place was hit is at other places, too.

The witness knows which process runs a program, and not whether that is within the calls: other tasks that are hit for
the calls are hit for others, too. QEMU's counts of the calls that are timed tell: a run that the clock sees begins at
the program's first instruction, whichever task it is in.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.catalog.bpf_sections import Section
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.plain_text import counted, shown
from orchestrator.probes.attachment import Called
from orchestrator.probes.bpf_program import AttachTarget, BpfProgram, keep_statistics
from orchestrator.probes.bpf_witness import Witness
from orchestrator.probes.tracefs import event_number, systems_of
from orchestrator.results.contract import ProgramRuns

_WORDS = {"raw-tracepoint": "raw_tp", "tp-btf": "tp_btf"}
"""Sections' words of probe kinds, which stand in a one-liner's sections."""
_SESSIONS = ("bpf-kprobe-session", "bpf-fsession", "bpf-fsession-multi")
"""Programs that run at a function's entry and at its return."""
_MAY_RUN_ALONE = ("bpf-fmod-ret", "bpf-lsm")
"""Programs that may let the function not run, so that a kprobe in it is not hit."""
_NAME = re.compile(r"\w{1,64}")

_FEWEST = 500
"""Minimum hits for a program at no known place: its runs for other processes, some tens, must not pass for hits."""
_OTHERS = 50
"""Runs more in one pass than in another that may be those of the guest's agent: a command makes some ten calls more."""


class UserBpfProgram(NamedTuple):
    """An attached program: its number and name, and its section, which says where it is attached."""

    number: int
    name: str
    section: str
    program: BpfProgram

    @property
    def at(self) -> Section:
        """The place that its section names."""
        word, slash, target = self.section.partition("/")
        return Section.of(f"{_WORDS.get(word, word)}{slash}{target}")

    @property
    def kind(self) -> str | None:
        """The probe kind that it is attached as, if the section says that."""
        return None if self.at.word is None else self.at.word.kind

    @property
    def function(self) -> str | None:
        """The function that its section names, or a pattern; None for one that is at no function."""
        word, target = self.at.word, self.at.target
        if word is None or not target or word.at not in ("function", "system call"):
            return None
        function = target.partition("+")[0]
        return f"__x64_sys_{function}" if word.at == "system call" else function

    @property
    def described(self) -> str:
        return f"the BPF program {self.name} ({self.section})"

    @property
    def runs_per_hit(self) -> int:
        return 2 if self.kind in _SESSIONS else 1


def _event_target(guest: Guest, program: UserBpfProgram) -> AttachTarget | None:
    """The tracepoint that a program is attached to; None for one that is at none, or at one of several of its name."""
    word, target = program.at.word, program.at.target
    if word is None or word.at not in ("event", "tracepoint"):
        return None
    system, _, name = target.rpartition("/")
    if not _NAME.fullmatch(name):
        return None
    if word.at == "tracepoint":
        return AttachTarget(probes()["bpf-raw-tracepoint"], name)
    systems = [system] if system else systems_of(guest, name)  # bpftrace's events have a name alone
    return (
        AttachTarget(probes()["bpf-tracepoint"], str(event_number(guest, f"{systems[0]}.{name}")))
        if len(systems) == 1
        else None
    )


class _Group:
    """Programs at one place, an ``event`` or the probe point, and the witness there.

    ``idle`` are the hits of a pass without calls, ``idle_others`` those of other threads meanwhile. ``runs`` are each
    program's while the witness was there, as the kernel has counted them. ``timed`` are the hits of a call that QEMU
    has counted, and ``elsewhere`` those of a call besides them, which no clock sees.
    """

    def __init__(self, witness: Witness, event: AttachTarget | None) -> None:
        self.witness, self.is_event = witness, event is not None
        self.programs: list[UserBpfProgram] = []
        self.idle, self.idle_others = 0, 1
        self.runs: Sequence[int] = ()
        self.timed: int | None = None
        self.elsewhere, self.is_by_others, self.is_uniform = 0, False, True
        self._before: Sequence[int] = ()

    def begin(self) -> None:
        self.witness.begin([(program.described, program.program) for program in self.programs])
        self._before = self._runs()

    def look(self) -> None:
        # A program runs no more often than the witness, which comes earlier and is asked later.
        self.runs = [now - before for now, before in zip(self._runs(), self._before, strict=True)]
        self.witness.look()

    def _runs(self) -> Sequence[int]:
        return [program.program.info().runs for program in self.programs]

    def counts(self, called: Called) -> tuple[int, int]:
        """The hits of the calls, and of others.

        An event that nothing hits without the calls is hit for them by any thread: the kernel may leave packets to its
        own (ksoftirqd), six of 3000 on Debian's Linux 6.1. Of others, and of functions that other processes enter for
        the calls, QEMU's counts say how many each call has; all threads together must have had them.
        """
        hits, hits_of_others = self.witness.counts(called)
        if not called.calls:
            self.idle, self.idle_others = hits, hits_of_others
        elif self.timed is not None and self.is_at_known_place(self.programs[0]):
            of_calls = self.idle + self.timed * called.calls
            if self._are_of_calls(hits - of_calls, hits_of_others - self.idle_others, called.calls):
                return of_calls, hits + hits_of_others - of_calls
        return (hits + hits_of_others, 0) if self.is_event and not self.idle_others else (hits, hits_of_others)

    def _are_of_calls(self, more: int, by_others: int, calls: int) -> bool:
        """Whether the hits that QEMU has counted are those of the process, or else of all threads together.

        The process had ``more`` than them, and others had some besides those of a pass without calls. Raises
        EvidenceError for a program that runs for the calls, and never within them.
        """
        if not self.is_event and (not more or not self.timed):
            return not more
        besides = hits_besides(more + by_others, calls)
        self.elsewhere, self.is_by_others = besides or 0, more < 0
        if besides and not self.timed:
            what = f"{self.programs[0].described} runs {besides} times a call, and never within what is timed"
            raise EvidenceError(what, hint="other tasks run it, or it runs later: no call pays for it")
        return not more or besides == 0 or (self.is_event and besides is not None)

    def learn(self, executed: Mapping[int, int], calls: int) -> None:
        """Learn the ``timed`` hits from how often ``calls`` executed the instructions at addresses; None if unequal."""
        program, info = self.programs[0], self.programs[0].program.info()
        code, runs = info.executed_in(executed), info.runs_among(executed)
        hits, rest = divmod(runs, calls * program.runs_per_hit)
        self.timed = None if rest else hits
        self.is_uniform = not runs or all(times % runs == 0 for times in code.values())

    def remarks(self) -> Iterator[str]:
        """What is to be said of the hits of a call."""
        every = self.elsewhere + (self.timed or 0)
        if self.elsewhere:
            yield f"{self.elsewhere} of {every} hits of a call are outside of what is timed: in other tasks, or later"
        if self.is_by_others:
            yield "other tasks than the calls' own have hits, too: QEMU has counted those within the timed calls"
        if self.is_event and (self.timed or 0) > 1 and not self.is_uniform:
            yield f"a hit is the mean of {self.timed} runs of a call, which take different ways"

    def is_at_known_place(self, program: UserBpfProgram) -> bool:
        return self.is_event or (program.function is not None and program.kind not in _MAY_RUN_ALONE)


@dataclass
class _Elsewhere:
    """A program of the same row at another function: the kernel's count of its runs, and that without calls."""

    program: UserBpfProgram
    before: int = 0
    runs: int = 0
    idle: int = 0

    def begin(self) -> None:
        self.before = self.program.program.info().runs

    def look(self) -> None:
        self.runs = self.program.program.info().runs - self.before


class HitCounter(ABC):
    """Counts what a user's programs do between ``begin`` and ``end``, while calls are made."""

    @property
    @abstractmethod
    def is_counting(self) -> bool:
        """Whether what counts is attached."""

    @abstractmethod
    def begin(self) -> None:
        """Begin to count. Raises PlaceRefused where the kernel takes no witness."""

    @abstractmethod
    def look(self) -> None:
        """Store the counts. Raises EvidenceError for a program that ran less often than its place was hit."""

    @abstractmethod
    def detach(self) -> None:
        """Detach what counts."""

    @abstractmethod
    def end(self) -> None:
        """Switch the kernel's statistics off."""

    @abstractmethod
    def counts(self, called: Called) -> tuple[int, int | None]:
        """The hits of the calls, and of others (None: not told apart). Raises EvidenceError, HitSkipped."""

    @abstractmethod
    def learn(self, executed: Mapping[int, int], calls: int) -> None:
        """Learn from QEMU how often ``calls``, as they are timed, execute the instructions at these addresses."""

    @abstractmethod
    def remarks(self) -> Sequence[str]:
        """What is to be said of the hits of a call."""

    def facts(self) -> Mapping[str, str]:
        """Further parameters of the cell."""
        return {}

    def program_runs(self) -> Sequence[ProgramRuns]:
        """The runs of each program, where they are attached together."""
        return ()


class ProgramHits(HitCounter):
    """Counts the hits of ``programs`` between ``begin`` and ``end``; ``elsewhere`` are others of the same row.

    ``target`` is the probe point.
    """

    def __init__(
        self,
        guest: Guest,
        target: AttachTarget,
        programs: Sequence[UserBpfProgram],
        elsewhere: Sequence[UserBpfProgram] = (),
    ) -> None:
        self._guest = guest
        groups: dict[tuple[str, str, int] | None, _Group] = {}
        for program in programs:
            event = _event_target(guest, program)
            key = None if event is None else (event.kind.name, event.name, event.offset)
            if key not in groups:
                name = f"lab-witness{len(groups) or ''}"
                groups[key] = _Group(Witness(guest, event or target, name), event)
            groups[key].programs.append(program)
        self._groups = [*groups.values()]
        here = {program.number for program in programs}
        self._elsewhere = [
            _Elsewhere(user_bpf_program) for user_bpf_program in elsewhere if user_bpf_program.number not in here
        ]

    def learn(self, executed: Mapping[int, int], calls: int) -> None:
        """Learn from QEMU how often ``calls``, as they are timed, execute the instructions at these addresses."""
        for group in self._groups:
            group.learn(executed, calls)

    def remarks(self) -> Sequence[str]:
        """What is to be said of the hits of a call, of the first place."""
        return [*self._groups[0].remarks()]

    @property
    def is_counting(self) -> bool:
        return any(group.witness.is_counting for group in self._groups)

    def begin(self) -> None:
        """Attach the witnesses. Raises PlaceRefused."""
        keep_statistics(self._guest, on=True)
        for program in self._elsewhere:
            program.begin()
        for group in self._groups:
            group.begin()

    def look(self) -> None:
        """Store the counts. Raises EvidenceError for a program that ran less often than its place was hit."""
        for group in self._groups:
            group.look()
        for program in self._elsewhere:
            program.look()

    def detach(self) -> None:
        for group in self._groups:
            group.witness.detach()

    def end(self) -> None:
        keep_statistics(self._guest, on=False)

    def counts(self, called: Called) -> tuple[int, int]:
        """The hits of the calls, and of others.

        Raises EvidenceError if the calls hit the programs unequally often, or one of them at other places, or if runs
        for other processes might pass for the hits; HitSkipped where the kernel skipped one.
        """
        pairs = [group.counts(called) for group in self._groups]
        if not called.calls:  # what the program does besides its calls
            for elsewhere in self._elsewhere:
                elsewhere.idle = elsewhere.runs
            return pairs[0]
        of_calls = [(group, hits - group.idle) for group, (hits, _) in zip(self._groups, pairs, strict=True)]
        for group, hits in of_calls:
            self._check_runs(group, hits, called.calls)
        self._check_equal(of_calls, called.calls)
        return pairs[0]

    def _check_runs(self, group: _Group, hits: int, calls: int) -> None:
        first = group.programs[0]
        if hits <= 0 and group.is_event:
            raise EvidenceError(f"{first.described} ran 0 times in {counted(calls, 'call')}")
        for program, runs in zip(group.programs, group.runs, strict=True):
            more = runs - program.runs_per_hit * group.witness.seen
            if not group.is_at_known_place(program):
                if 0 < hits < _FEWEST:
                    raise EvidenceError(
                        f"{hits} hits are too few to verify {program.described}: it is not at a function, so it also "
                        "runs for other processes",
                        hint=f"make {_FEWEST} calls or more",
                    )
            elif more > 0:
                raise EvidenceError(
                    f"{program.described} ran {more} times more than its place was hit in "
                    f"{counted(calls, 'call')}: these calls hit it at other places, too",
                    hint="name one place instead of a pattern, or calls that pass one of them alone",
                )

    def _check_equal(self, of_calls: Sequence[tuple[_Group, int]], calls: int) -> None:
        """Raise EvidenceError unless all programs are hit equally often, or another one not at all."""
        hits = of_calls[0][1]
        ran = [*self._ran(of_calls)]
        if any(abs(runs - hits) > noise(calls) for _, runs in ran):
            named = ", ".join(shown([f"{program.name} {runs} times" for program, runs in ran], 4, "{} more"))
            raise EvidenceError(
                f"{counted(calls, 'call')} hit the programs unequally often: {named}",
                hint="measure each alone: what a hit costs is a number of one of them",
            )

    def _ran(self, of_calls: Sequence[tuple[_Group, int]]) -> Iterator[tuple[UserBpfProgram, int]]:
        for group, hits in of_calls:
            yield group.programs[0], hits
        for elsewhere in self._elsewhere:
            runs = (elsewhere.runs - elsewhere.idle) // elsewhere.program.runs_per_hit
            if runs > _OTHERS:
                yield elsewhere.program, runs


def hits_besides(more: int, calls: int) -> int | None:
    """How often each of the calls is hit besides what the clock sees, by all ``more`` hits; None where unequally."""
    each = nearest_multiple(more, calls)
    return each if each >= 0 and abs(more - each * calls) <= noise(calls) else None


def nearest_multiple(hits: int, calls: int) -> int:
    """How often each of the calls hits it, if not for some hits more or fewer."""
    return (2 * hits + calls) // (2 * calls)


def noise(calls: int) -> int:
    """Hits that a pass of so many calls may have more or less by interrupts."""
    return min(_OTHERS, calls - 1)
