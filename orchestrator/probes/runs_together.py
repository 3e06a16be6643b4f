# SPDX-License-Identifier: GPL-2.0-only
"""The runs of a user's BPF programs that are attached at once, wherever their sections say.

The kernel counts the runs of each while calls are made, and QEMU counts how often the timed calls enter its code. The
kernel's count is never the smaller one: it has what other tasks run, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError, HitSkipped
from orchestrator.guest.guest import Guest
from orchestrator.plain_text import counted, cut, shown
from orchestrator.probes.attachment import Called
from orchestrator.probes.bpf_hits import HitCounter, UserBpfProgram, hits_besides, noise
from orchestrator.probes.bpf_program import Attached, ProgramInfo, infos, keep_statistics
from orchestrator.results.contract import LONGEST_PHRASE, ProgramRuns
from orchestrator.results.parameters import BPF_NOT_ATTACHED, BPF_NOT_RUN

_SHOWN = 6
_UNSAID = 255
"""What ``images/bpf/attached.c`` says of flags that the kernel does not tell."""


@dataclass
class ProgramTogether:
    """A program and its ``links``, none if it is only loaded; its runs in a pass of calls and in one without calls.

    ``of_call`` are the kernel's runs of each call, None where they are not equal; ``timed`` QEMU's in a timed call.
    """

    program: UserBpfProgram
    links: Sequence[Attached]
    before: int = 0
    runs: int = 0
    idle: int = 0
    of_calls: int = 0
    of_call: int | None = None
    timed: Fraction | None = None

    @property
    def places(self) -> str:
        """How and where the kernel says that it is attached: ``bpf-kprobe vfs_read``."""
        names = dict.fromkeys(f"{link.kind} {link.name}".strip() for link in self.links)
        return ", ".join(shown([*names], _SHOWN, "{} more"))

    @property
    def has_run(self) -> bool:
        return self.of_call != 0 if self.timed is None else bool(self.timed or self.of_call)

    def check_links(self) -> None:
        """Raise EvidenceError unless the kernel has it attached as its section says."""
        kind = None if self.program.kind is None else probes()[self.program.kind].program
        if not self.links:
            raise EvidenceError(f"the kernel does not say that {self.program.described} is attached")
        for link in self.links if kind is not None else ():
            assert kind is not None
            flags = kind.flags if link.flags == _UNSAID else link.flags
            if (link.link, link.attach_type, flags) != (kind.link, kind.attach_type, kind.flags):
                raise EvidenceError(f"{self.program.described} is attached as {link.kind}, not as {self.program.kind}")

    def look(self, info: ProgramInfo) -> None:
        self.runs = info.runs - self.before

    def check(self, calls: int) -> None:
        """Compare the kernel's count with the last one and with QEMU's. Raises EvidenceError."""
        self.of_calls = max(0, self.runs - self.idle)
        earlier, self.of_call = self.of_call, hits_besides(self.of_calls, calls)
        if None not in (earlier, self.of_call) and earlier != self.of_call:
            what = f"ran {earlier} times a call in one pass, and {self.of_call} times in another"
            raise EvidenceError(f"{self.program.described} {what}")
        if self.links and self.timed is not None and self.of_calls + noise(calls) < self.timed * calls:
            entered = f"QEMU has counted {float(self.timed):.4g} a timed call"
            what = f"ran {self.of_calls} times in {counted(calls, 'call')} by the kernel's count, and {entered}"
            raise EvidenceError(f"{self.program.described} {what}")

    def remark(self) -> str:
        """What is to be said of its runs; empty if there is nothing."""
        if self.timed is None or not self.links:
            return ""
        if self.of_call is None:
            return f"other tasks run {self.program.name}, too"
        if self.timed.denominator == 1 and self.of_call > self.timed:
            outside = self.of_call - int(self.timed)
            return f"{outside} of {counted(self.of_call, 'run')} of {self.program.name} a call are not timed"
        return ""


class RunsTogether(HitCounter):
    """Counts the runs of programs that are attached at once; a hit is a call, which has to run one of them.

    ``unattached`` are loaded with them, and may be run by tail calls. ``left`` are optional programs, not loaded.
    """

    def __init__(
        self,
        guest: Guest,
        attached: Sequence[UserBpfProgram],
        links: Sequence[Attached],
        unattached: Sequence[UserBpfProgram] = (),
        left: Sequence[str] = (),
    ) -> None:
        self._guest, self._left = guest, left
        self._programs = [
            ProgramTogether(program, [link for link in links if link.number == program.number])
            for program in (*attached, *unattached)
        ]
        for program in self._programs[: len(attached)]:
            program.check_links()
        self._is_counting = False
        self._before: Sequence[ProgramInfo] = ()
        self._skipped = ""

    @property
    def is_counting(self) -> bool:
        return self._is_counting

    def begin(self) -> None:
        keep_statistics(self._guest, on=True)
        self._before, self._is_counting, self._skipped = self._infos(), True, ""
        for program, info in zip(self._programs, self._before, strict=True):
            program.before = info.runs

    def look(self) -> None:
        for program, before, info in zip(self._programs, self._before, self._infos(), strict=True):
            program.look(info)
            if info.missed != before.missed:
                missed = counted(info.missed - before.missed, "time")
                self._skipped = f"the kernel skipped {program.program.described} {missed}"

    def detach(self) -> None:
        """Nothing is beside the programs."""
        self._is_counting = False

    def end(self) -> None:
        keep_statistics(self._guest, on=False)

    def counts(self, called: Called) -> tuple[int, int | None]:
        """The calls, if they have run a program; others are not told apart. Raises HitSkipped, EvidenceError."""
        if self._skipped:
            raise HitSkipped(self._skipped)
        if not called.calls:
            for program in self._programs:
                program.idle = program.runs
            return 0, None
        for program in self._programs:
            program.check(called.calls)
        timed = [program.timed for program in self._programs if program.timed is not None]
        total = sum(program.of_calls for program in self._programs)
        if (timed and not any(timed)) or total < called.calls - noise(called.calls):
            within = ", none within what is timed" if total >= called.calls else ""
            raise EvidenceError(
                f"{counted(called.calls, 'call')} were made, and its programs ran {counted(total, 'time')}{within}",
                hint="make calls that reach what it is attached to: each of them has to run a program",
                detail=[f"attached: {places}" for program in self._programs if (places := program.places)][:_SHOWN],
            )
        return called.calls, None

    def learn(self, executed: Mapping[int, int], calls: int) -> None:
        for program, info in zip(self._programs, self._infos(), strict=True):
            program.timed = Fraction(info.entered_among(executed), calls)

    def remarks(self) -> Sequence[str]:
        return [remark for program in self._programs if (remark := program.remark())]

    def facts(self) -> Mapping[str, str]:
        """The programs that no call runs, and those that are not attached."""
        idle = [program.program.name for program in self._programs if program.links and not program.has_run]
        unattached = [program.program for program in self._programs if not program.links]
        loaded = [f"{program.name} ({program.section}) names no place" for program in unattached]
        left = [f"{name} is optional" for name in self._left]
        return {
            **({BPF_NOT_RUN: _cut(f"attached, and not run by these calls: {', '.join(idle)}")} if idle else {}),
            **({BPF_NOT_ATTACHED: _cut(f"not attached: {', '.join([*loaded, *left])}")} if loaded or left else {}),
        }

    def program_runs(self) -> Sequence[ProgramRuns]:
        """The runs of each program in the counted calls, by the kernel's own count, and where its code is."""
        return [
            ProgramRuns(
                name=cut(program.program.name, LONGEST_PHRASE),
                attached=cut(program.places, LONGEST_PHRASE),
                runs=program.of_calls,
                address=f"{info.code:#x}",
                size=info.jited,
            )
            for program, info in zip(self._programs, self._infos(), strict=True)
        ]

    def _infos(self) -> Sequence[ProgramInfo]:
        return infos(self._guest, [program.program.program for program in self._programs])


def _cut(text: str) -> str:
    return cut(text, LONGEST_PHRASE)
