# SPDX-License-Identifier: GPL-2.0-only
"""The programs in the guest that make calls: which samples they make, and how large their batches are.

``images/guest/bench.c`` runs batches of calls and discards those that an interrupt fell into.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.program_code import SharedLibrary
from orchestrator.artifacts.user_programs import LIBRARIES
from orchestrator.benchmarks.calls.benchmarks import Buffer
from orchestrator.benchmarks.calls.call_results import Expected, check_expected
from orchestrator.benchmarks.calls.copied_programs import OWN_PROGRAM, put_program
from orchestrator.benchmarks.calls.program_failures import DisturbedError, checked_output, used_up
from orchestrator.benchmarks.calls.program_output import parse, parse_called, parse_live, parse_turns, parse_watched
from orchestrator.benchmarks.calls.samples import Measurement, together
from orchestrator.benchmarks.calls.sampling import SOUNDING, WARM_UP_CALLS, WARMING_CALLS, Sampling
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Called, CallResults, Reader
from orchestrator.profile.counted.turns import TurnsBatch

_PER_SECOND = 1_000_000_000
"""Units in a second of guest time: nanoseconds, and instructions under ``-icount shift=0``, which the TSC counts."""
COUNTED_CALLS = 1000
"""Most calls of a counting pass; each must give exactly ``hits`` hits."""
MOST_HITS = 3000
"""Most hits of a counting pass: a ring has room for 4096, and other processes may hit the same point."""

_PROGRAM = "callbench"
_MARKED_CALLS = 500
_MARKED_SAMPLES = 2
"""Samples of a profile, which must execute the same instructions."""
_MOST_ALONE = 100_000
"""Most calls of the process that finds the first one that fails, which takes seconds. A cell may time 100 million."""
_WATCHED_CALLS = 100
_MOST_DIFFERENT = 4
"""Samples from an empty buffer that may differ from the others: events of a discarded batch, or of another process,
change the cost of the calls after them."""
_UNEVEN = 0.001
"""Fraction of a call: events between batches decide how many events of a batch begin a page of the buffer. A page costs
176 instructions on debian-amd64, and 245 on lab-i386-smp-bpf@6.12."""
_SMALLER = 8
"""Factor by which a batch shrinks when every one was interrupted."""
_TRIES_OF_ONE = 10
"""Tries of batches of one call on the guest's clock before the calls are reported to take too long."""
_LOOKED_AT = 2000
"""Calls that are looked at one by one where a sample has fewer: no more than the samples' process makes."""
_MOST_SINGLE = 8192
"""Most calls of a sample that are timed each alone, as in ``bench.c``."""
_SINGLE_TOLL = 30
"""Instructions that the timing of each call takes besides the call, about."""
MOST_TURNS = 50
"""Most calls that each CPU makes in turns: those of eight CPUs, of 5000 instructions each, fit between two ticks."""
_ANY_NUMBER = 1 << 30
_SHARE_OF_A_TICK = 0.6
"""Largest fraction of a tick's period that a batch fills; it begins shortly after a tick."""

Argument = int | str | Buffer
"""A system call's argument: a number, a text to point to, or a buffer to point to."""


@dataclass(frozen=True)
class Calls:
    """A program in the guest that makes ``calls`` calls a sample; see ``system_call`` and ``user_function``.

    Samples of one boot are equal on the exact clock, unless single calls are shown to differ. ``file`` is the program
    on the host, None for one in the initramfs; ``libraries`` are what it is linked with. Each call enters the probe
    point ``hits`` times. ``number`` is that of the system call, None for a function. ``renew`` is called before each
    sample, which then has a process of its own, where earlier samples change the cost of calls. With ``live_at``, a
    file's offset and path (``64:/tmp/workload``), each process tells which bytes it executes there in the end. Where
    the cost of a call ``depends_on_ticks``, warming calls always precede a batch. A batch of calls that are timed one
    by one has at most ``largest_batch``. A ``reader`` reads what the calls' probes
    write, between batches. Methods that make calls raise
    EvidenceError where the program makes another system call, or a call does not return what is ``expected``.
    """

    argv: Sequence[str]
    calls: int
    hits: int = 1
    file: Path | None = None
    number: int | None = None
    expected: Expected | None = None
    renew: Callable[[], None] | None = None
    libraries: Sequence[SharedLibrary] = ()
    live_at: str | None = None
    depends_on_ticks: bool = False
    largest_batch: int = _MOST_SINGLE
    reader: Reader | None = None

    @property
    def counted(self) -> int:
        """Calls of a counting pass, whose events fit into a ring."""
        return max(1, min(COUNTED_CALLS, MOST_HITS // self.hits, self.room))

    @property
    def room(self) -> int:
        """Most calls of a batch: warming calls and one that may wake the reader have room before them."""
        return _ANY_NUMBER if self.reader is None else max(1, self.reader.room // 2)

    @property
    def single(self) -> int:
        """Calls of a sample that are timed each alone."""
        return min(self.calls, _MOST_SINGLE)

    @property
    def program(self) -> str:
        """The program's name, as the counting plugin has it."""
        return Path(self.argv[0]).name

    def prepare(self, guest: Guest) -> None:
        if self.file is not None:
            put_program(guest, self.file, OWN_PROGRAM)
        for library in self.libraries:
            if library.is_brought:
                guest.succeed(["mkdir", "-p", LIBRARIES])
                guest.put(library.file, library.path)

    def measure_exact(self, guest: Guest, *, repeats: int, ticks_per_second: int, time_limit: float) -> Measurement:
        """Measure ``repeats`` samples of ``calls`` calls, in batches that fit between two timer ticks.

        On the exact clock samples are equal, unless single calls cost different numbers of instructions: then they
        scatter. Raises EvidenceError where samples differ, or depend on the size of the batches, and calls do not.
        """
        sounding = self._samples(guest, SOUNDING, time_limit)
        batch = _between_ticks(ticks_per_second, max(1.0, sounding.samples[0]))
        batch = min(batch, self.room)
        if batch < 1:
            raise EvidenceError(f"one call takes {sounding.samples[0]:g} instructions: more than fit between two ticks")
        # At least two, to check that they are equal.
        sampling = Sampling(self.calls, min(batch, self.calls), max(2, repeats), self.calls)
        sampling = sampling.warmed() if self.depends_on_ticks else sampling
        try:
            measured = self._samples(guest, sampling, time_limit)
        except DisturbedError:
            if self.renew is not None or sampling.batch == 1:
                raise
            # Some calls have an interrupt themselves: mmap() and munmap() on Linux 7.3, one of a hundred.
            return self.measure_singly(guest, ticks_per_second=ticks_per_second, time_limit=time_limit)
        single = sounding.samples[0]
        if self.renew is None:
            measured = self._looked_into(guest, sampling, measured, ticks_per_second, time_limit)
        elif not measured.scatter and single != measured.samples[0] and sampling.batch > 1:
            measured = self._of_any_batches(guest, sampling, measured, time_limit)
        # All samples that vary are kept: one alone would look like an exact count.
        kept = None if measured.varies else repeats
        return replace(
            measured,
            samples=measured.samples[:kept],
            nanoseconds=measured.nanoseconds[:kept],
            is_uniform=single == measured.samples[0],
        )

    def _looked_into(
        self, guest: Guest, wanted_sampling: Sampling, measured: Measurement, ticks_per_second: int, time_limit: float
    ) -> Measurement:
        """The samples, if they are what calls cost that are timed one by one and all alike; else others, or ``costs``.

        Equal samples prove nothing alone: what every sixteenth call does is in each sample equally often. Samples of
        whole periods have it in proportion. A batch begins shortly after a timer tick, and its first call may do work
        that is due once a tick: a read of a pipe updates the access time, 302 instructions on debian-amd64. It is among
        the warming calls then. Raises EvidenceError where all calls are alike, and batches of them are not.
        """
        looked = self._one_by_one(guest, wanted_sampling, measured, ticks_per_second, time_limit)
        tries = [(measured, wanted_sampling, looked)]
        warmed = wanted_sampling.warmed()
        is_explained = _is_sum_of(measured, looked) or bool(looked.cycle) or (measured.scatter and not looked.varies)
        if warmed.warming > wanted_sampling.warming and not is_explained:
            again = self._samples(guest, warmed, time_limit)
            looked = self._one_by_one(guest, warmed, again, ticks_per_second, time_limit)
            tries.append((replace(again, warming=warmed.warming), warmed, looked))
        for samples, sampling, alone in tries:
            if _is_sum_of(samples, alone):
                return samples
            if alone.cycle and (whole := self._of_whole_periods(guest, sampling, alone.cycle, time_limit)) is not None:
                return whole
        _, _, alone = tries[0]
        if len(alone.costs) > 1:
            return replace(measured, costs=alone.costs)
        # An error of the clock or of the lab.
        timed = ", ".join(f"{sample:.10g}" for sample in measured.samples)
        ((each, calls),) = alone.costs.items()
        raise EvidenceError(
            f"samples of one boot, {timed}, are not what their calls take: each of {calls}, timed one by one, {each}",
            detail=[f"samples are of batches of {wanted_sampling.batch} calls"],
        )

    def _one_by_one(
        self, guest: Guest, like: Sampling, measured: Measurement, ticks_per_second: int, time_limit: float
    ) -> Measurement:
        """Calls timed each alone, no more than the samples have and some thousands."""
        calls = min(_MOST_SINGLE, max(like.calls, min(_LOOKED_AT, like.calls * like.repeats)))
        batch = max(1, _between_ticks(ticks_per_second, _SINGLE_TOLL + max(1.0, *measured.samples)))
        batch = min(batch, self.room)
        sampling = Sampling(calls, min(batch, calls), 1, warming=min(like.warming, batch // 4), is_single=True)
        return self._undisturbed(guest, sampling, time_limit)

    def _of_whole_periods(
        self, guest: Guest, sampling: Sampling, cycle: Counter[int], time_limit: float
    ) -> Measurement | None:
        """Samples and batches of whole periods; None where they are not the mean of one."""
        period = cycle.total()
        batch, calls = (max(1, number // period) * period for number in (sampling.batch, sampling.calls))
        whole = replace(sampling, calls=calls, batch=min(batch, calls))
        measured = self._samples(guest, whole, time_limit)
        cost = sum(each * times for each, times in cycle.items()) / period
        is_mean = set(measured.samples) == {cost}
        return replace(measured, warming=sampling.warming, cycle=cycle) if is_mean else None

    def _of_any_batches(
        self, guest: Guest, sampling: Sampling, measured: Measurement, time_limit: float
    ) -> Measurement:
        """The samples that are equal in batches of half the size: ``measured``, or ones with warming calls.

        Else the samples of both sizes, which scatter. Calls that fill a buffer are no means of their own kinds.
        """

        def in_halves(of: Sampling) -> Measurement:
            halves = replace(of, batch=sampling.batch // 2, repeats=1, untimed=0)
            return self._samples(guest, halves, time_limit)

        halved = in_halves(sampling)
        if _agree(measured, halved):
            return measured
        warmed = sampling.warmed()
        if warmed.warming > sampling.warming:
            again = self._samples(guest, warmed, time_limit)
            if not again.scatter and _agree(again, in_halves(warmed)):
                return replace(again, warming=warmed.warming)
        return together([measured, halved])

    def measure_cheaper(self, guest: Guest, dearer: Measurement, *, time_limit: float) -> Sequence[float]:
        """Two samples in batches as in ``dearer``: calls cost no more now, so they fit between two timer ticks."""
        sampling = Sampling(dearer.calls, min(dearer.calls, dearer.batch), 2, warming=dearer.warming)
        return self._sampled(guest, sampling, time_limit).samples

    def measure_marked(self, guest: Guest, measured: Measurement, *, time_limit: float) -> Measurement:
        """Two samples for the counting plugin, in batches as in ``measured``, of fewer calls where all are alike."""
        calls = min(self.calls, _MARKED_CALLS) if measured.is_uniform else self.calls
        if measured.cycle:
            period = measured.cycle.total()
            calls = max(1, calls // period) * period
        # At most a quarter of a batch, which fills six tenths of the time between two timer ticks.
        warming = measured.warming or min(WARMING_CALLS, measured.batch // 4)
        # Samples that scatter do not execute the same instructions.
        samples = 1 if measured.varies else _MARKED_SAMPLES
        sampling = Sampling(calls, min(calls, measured.batch), samples, is_marked=True, warming=warming)
        if self.renew is not None:
            self.renew()
            sampling = replace(sampling, repeats=1, warming=measured.warming)
        return self._sampled(guest, sampling, time_limit)

    def mark_calls(self, guest: Guest, *, time_limit: float) -> Measurement:
        """One sample for the counting plugin, whatever a call does: fault, sleep, or cost something else each time.

        Batches of several calls that were disturbed are before it in the plugin's file.
        """
        sampling = Sampling(self.calls, min(self.calls, self.largest_batch), 1, self.calls, is_marked=True)
        return self._undisturbed(guest, sampling, time_limit)

    def take_turns(
        self, guest: Guest, *, cpus: int, repeats: int, time_limit: float
    ) -> tuple[str, Sequence[TurnsBatch]]:
        """A small batch and ``repeats`` others of processes on so many CPUs in turns; and the entry of their calls.

        QEMU's plugin for several CPUs counts meanwhile.
        """
        calls = min(self.calls, MOST_TURNS)
        options = {"-j": cpus, "-n": calls, "-r": repeats}
        words = [word for option, value in options.items() for word in (option, str(value))]
        output = checked_output(guest, [*self.argv, *words], time_limit)
        entry, number, batches = parse_turns(output, calls, repeats)
        self._check_number(number)
        return entry, batches

    def measure_one(self, guest: Guest, *, ticks_per_second: int, time_limit: float) -> Measurement:
        """Measure one sample, in batches that fit between two timer ticks, or smaller ones on a busy host."""
        sounding = self._undisturbed(guest, SOUNDING, time_limit)
        batch = _between_ticks(ticks_per_second, max(1.0, sounding.nanoseconds[0]))
        batch = min(max(1, batch), self.calls, self.room)
        return self._undisturbed(guest, Sampling(self.calls, batch, 1, self.calls), time_limit)

    def measure_singly(self, guest: Guest, *, ticks_per_second: int, time_limit: float) -> Measurement:
        """Measure one sample on the exact clock, each call alone: ``costs`` has what calls that differ take."""
        sounding = self._undisturbed(guest, SOUNDING, time_limit)
        each = _SINGLE_TOLL + max(1.0, sounding.samples[0])
        batch = _between_ticks(ticks_per_second, each)
        calls = self.single
        most = min(calls, self.largest_batch, self.room)
        sampling = Sampling(calls, max(1, min(batch, most)), 1, calls, is_single=True)
        return self._undisturbed(guest, sampling.warmed() if self.depends_on_ticks else sampling, time_limit)

    def _undisturbed(self, guest: Guest, sampling: Sampling, time_limit: float) -> Measurement:
        """Sample in smaller and smaller batches, and try batches of one call several times.

        When the host suspends a guest, QEMU's i8254 delivers the missed ticks one after the other: after two seconds,
        250 ticks a second disturb each of 200 attempts.
        """
        tries = _TRIES_OF_ONE
        while True:
            try:
                return self._sampled(guest, sampling, time_limit)
            except DisturbedError:
                tries -= sampling.batch == 1
                if not tries:
                    raise
                sampling = replace(sampling, batch=max(1, sampling.batch // _SMALLER))

    def call(self, guest: Guest, calls: int, *, caller: str | None, time_limit: float) -> Called:
        """Make exactly ``calls`` calls, untimed. Their process writes its id to the guest's file ``caller``."""
        caller_option = () if caller is None else ("-P", caller)
        output, live = self._output(guest, ["-c", str(calls), *caller_option], time_limit)
        called = replace(parse_called(output, calls), live=live)
        self._check_number(called.number)
        if called.results is not None:
            check_expected(self.expected, called.results, "counted")
        return called

    def watch(self, guest: Guest, *, time_limit: float, calls: int = _WATCHED_CALLS) -> Mapping[str, CallResults]:
        """What the system calls of ``calls`` calls of a user's function return, by name, in a traced process.

        Empty where a system call is measured. Raises EvidenceError where one does not return what is ``expected``, or
        is not seen.
        """
        if self.number is not None:
            return {}
        output = checked_output(guest, [*self.argv, "-o", str(calls)], time_limit)
        seen = parse_watched(output, calls)
        if self.expected is not None and not seen:
            raise EvidenceError(f"expected {self.expected} of each system call, and workload() makes none")
        for name, results in seen.items():
            check_expected(self.expected, results, name)
        return seen

    def _samples(self, guest: Guest, sampling: Sampling, time_limit: float) -> Measurement:
        """All samples of one process; with ``renew``, processes of one sample each until enough samples are equal."""
        if self.renew is None:
            return self._sampled(guest, sampling, time_limit)
        # Marked as for a profile: the work before the first batch matters, too.
        alone = replace(sampling, repeats=1, is_marked=True)
        ones: list[Measurement] = []
        while len(ones) < sampling.repeats + _MOST_DIFFERENT:
            self.renew()
            ones.append(self._sampled(guest, alone, time_limit))
            equal = [measurement for measurement in ones if measurement.samples == ones[-1].samples]
            if len(equal) == sampling.repeats:
                measurement = together(equal)
                return replace(measurement, disturbed=measurement.disturbed + len(ones) - len(equal))
        return together(ones)

    def _sampled(self, guest: Guest, sampling: Sampling, time_limit: float) -> Measurement:
        reader = () if self.reader is None else ("-R", str(self.reader.group), "-Q", str(self.reader.room))
        output, live = self._output(guest, [*sampling.options, *reader], time_limit)
        measured = replace(parse(output, sampling), live=live)
        self._check_number(measured.number)
        outcome = measured.outcome
        if outcome is None:
            return measured
        if outcome.uses_up:
            # A new process makes as many calls one by one, to find the first that fails.
            again = min(WARM_UP_CALLS + sampling.calls * sampling.repeats, _MOST_ALONE)
            called = parse_called(checked_output(guest, [*self.argv, "-c", str(again)], time_limit), again)
            raise used_up(outcome, called.results or outcome.results)
        check_expected(self.expected, outcome.timed, "timed")
        check_expected(self.expected, outcome.untimed, "untimed")
        return measured

    def _output(self, guest: Guest, options: Sequence[str], time_limit: float) -> tuple[str, bytes | None]:
        """What the program says, and the bytes at ``live_at``."""
        if self.live_at is None:
            return checked_output(guest, [*self.argv, *options], time_limit), None
        return parse_live(checked_output(guest, [*self.argv, *options, "-l", self.live_at], time_limit))

    def _check_number(self, number: int | None) -> None:
        """Raise EvidenceError for another system call: a baseline has no hits that would prove which one it made."""
        if number != self.number:
            raise EvidenceError(f"the program made system call {number}, not {self.number}")


def _agree(measurement: Measurement, other_measurement: Measurement) -> bool:
    return abs(measurement.samples[0] - other_measurement.samples[0]) <= _UNEVEN * measurement.samples[0]


def _is_sum_of(measured: Measurement, alone: Measurement) -> bool:
    """Whether the samples are what calls take that are all alike, timed ``alone``."""
    return len(alone.costs) == 1 and {*measured.samples} == {*map(float, alone.costs)}


def _between_ticks(ticks_per_second: int, each: float) -> int:
    """How many calls that take ``each`` so many units fit between two timer ticks."""
    return int(_PER_SECOND / ticks_per_second * _SHARE_OF_A_TICK / each)


def system_call(
    number: int, arguments: Sequence[Argument], *, entry: str, word_size: int, calls: int, hits: int = 1
) -> Calls:
    """Calls of a system call by its number, with arguments of ``word_size`` bytes; ``entry`` may be ``auto``."""
    words: list[str] = []
    for argument in arguments:
        if isinstance(argument, int):
            words += ("-a", f"{argument % (1 << 8 * word_size):x}")
        else:
            words += ("-t", argument) if isinstance(argument, str) else ("-z", str(argument.buffer))
    return Calls([_PROGRAM, "-e", entry, "-N", str(number), *words], calls, hits, number=number)


def user_function(program: Path, *, calls: int, hits: int = 1, libraries: Sequence[SharedLibrary] = ()) -> Calls:
    """Calls of ``workload()`` in a program compiled from a user's C file, and linked with shared ``libraries``."""
    return Calls([OWN_PROGRAM], calls, hits, program, libraries=libraries)
