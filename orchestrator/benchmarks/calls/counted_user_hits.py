# SPDX-License-Identifier: GPL-2.0-only
"""Hits of a command's runs in user space: their instructions, from the trap of each to the return to the program.

Runs of a command differ by more than a probe adds to them. What a hit executes in the kernel begins at an exception or
a system call that nothing else makes: without the probe there is none. QEMU counts what it begins, in each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.benchmarks.calls.samples import Figures
from orchestrator.errors import EvidenceError, NotEntered
from orchestrator.plain_text import counted as number_of
from orchestrator.profile.counted.kernel_entries import Part, RunCounts
from orchestrator.results.parameters import RUN_HITS, RUN_SEMAPHORE
from orchestrator.results.statistics import median

_INT3: Part = ("exception", "int3")
_STEP: Part = ("exception", "debug")
_RETURN: Part = ("call", "uretprobe")
"""Since Linux 6.11 a return enters the kernel by a system call (ff474a78cef5)."""
_TRAPS = (_INT3, _STEP, _RETURN)
"""What enters the kernel for a uprobe alone: no program without a debugger makes any of them."""
_USER: Part = ("user", "")
_RETURN_CODE = 8
"""Instructions of user space around the system call of a return (uretprobe_trampoline_entry of arch/x86)."""


@dataclass(frozen=True)
class HitsOfRun:
    """The hits of a run, how often each trap of theirs was taken, and the instructions that each began."""

    hits: int
    entered: Mapping[Part, int]
    counts: RunCounts

    @property
    def in_kernel(self) -> int:
        """Instructions from the traps to the returns to the program."""
        return sum(self.counts.get(trap, 0) for trap in _TRAPS)

    @property
    def in_program(self) -> int:
        """Instructions of user space that the mechanism adds.

        An int3 takes the place of the probed instruction. That is then stepped, by a trap more, or emulated.
        """
        entered = self.entered
        return entered[_INT3] + entered[_STEP] - self.hits + _RETURN_CODE * entered[_RETURN]

    @property
    def traps_of_hit(self) -> tuple[float, ...]:
        return tuple(self.entered[trap] / self.hits for trap in _TRAPS)


def check_plain(entered: Sequence[Mapping[Part, int]]) -> None:
    """Raise EvidenceError if runs without the probe take traps that are to be its own."""
    for run in entered:
        taken = next((trap for trap in _TRAPS if run[trap]), None)
        if taken is not None:
            times = number_of(run[taken], f"{taken[0]} {taken[1]}")
            raise EvidenceError(f"a run without the probe has {times}: which are the probe's is not known")


def check_hits(runs: Sequence[HitsOfRun]) -> None:
    """Raise EvidenceError unless each hit of all runs takes the same traps; NotEntered where a run has none."""
    if not all(run.hits for run in runs):
        raise NotEntered("a run of the program never entered the probe point")
    taken = {run.traps_of_hit for run in runs}
    if len(taken) > 1 or any(each % 1 for each in runs[0].traps_of_hit):
        first = next((run for run in runs if any(each % 1 for each in run.traps_of_hit)), runs[0])
        traps = ", ".join(f"{first.entered[trap]} {trap[0]}s {trap[1]}" for trap in _TRAPS if first.entered[trap])
        raise EvidenceError(f"hits take unequal traps: {number_of(first.hits, 'hit')}, {traps}")


@dataclass(frozen=True)
class UserHits:
    """The hits of ``runs`` with a probe in user space, between ``plain`` ones without it.

    With a semaphore the program does work of its own for each hit, which is what its instructions differ by.
    """

    runs: Sequence[HitsOfRun]
    plain: Sequence[RunCounts]
    has_semaphore: bool

    def bounds(self, run: HitsOfRun) -> tuple[float, float, float]:
        """Instructions of a hit of the run, with the fewest and the most that it may be."""
        if not self.has_semaphore:
            each = (run.in_kernel + run.in_program) / run.hits
            return each, each, each
        before = [counts.get(_USER, 0) for counts in self.plain]
        now = run.in_kernel + run.counts.get(_USER, 0)
        return (now - median(before)) / run.hits, (now - max(before)) / run.hits, (now - min(before)) / run.hits

    def figures(self, whole: Figures, run: HitsOfRun) -> Figures:
        """The figures of ``whole`` runs with the hits of this one as their overhead.

        The interval has a hit of each run, for as many hits as this one has.
        """
        each, (low, high) = self.bounds(run)[0], self.span
        notes = []
        if whole.interval is not None:
            least, most = whole.interval
            notes.append(
                f"a whole run takes {least:.0f} to {most:.0f} instructions more with the probe: it varies by itself, "
                "and has the work of putting the probe into each process, too"
            )
        if low <= 0:
            in_kernel = run.in_kernel / run.hits
            varies = f"as the program varies by itself; {in_kernel:.0f} of them are the kernel's"
            notes.insert(0, f"no verdict: a hit takes {low:.0f} to {high:.0f} instructions, {varies}")
        return replace(
            whole,
            overhead=each * run.hits,
            interval=(low * run.hits, high * run.hits),
            verdict="none" if low <= 0 else None,
            notes=tuple(notes),
        )

    @property
    def span(self) -> tuple[float, float]:
        """The fewest and the most instructions of a hit in all runs."""
        every = [self.bounds(run) for run in self.runs]
        return min(bounds[1] for bounds in every), max(bounds[2] for bounds in every)

    def facts(self) -> Mapping[str, str]:
        """Sentences on the hits for the cell."""
        numbers, (low, high) = sorted({run.hits for run in self.runs}), self.span
        times = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        takes = f"{low:.10g}" if low == high else f"{low:.6g} to {high:.6g}"
        runs = number_of(len(self.runs), "run")
        said = f"{runs} of {times} hits: a hit takes {takes} on the mean, with what the first of a process sets up"
        semaphore = "the point's semaphore is set: what the program itself does then is in a hit"
        return {RUN_HITS: said, **({RUN_SEMAPHORE: semaphore} if self.has_semaphore else {})}
