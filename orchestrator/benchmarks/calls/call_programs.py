# SPDX-License-Identifier: GPL-2.0-only
"""The programs in the guest that make calls: how large their batches are, and how their output becomes samples.

``images/guest/bench.c`` runs batches of calls and discards those that an interrupt fell into. This module sizes the
batches, and checks and parses the output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from orchestrator.arch import Arch
from orchestrator.artifacts.compiler import LIBRARIES
from orchestrator.artifacts.program_code import SharedLibrary
from orchestrator.benchmarks.calls.benchmarks import Buffer
from orchestrator.benchmarks.calls.call_results import (
    NUMBER,
    SUCCESS,
    WORD,
    CallOutcome,
    Expected,
    check_expected,
    is_unexpected,
    named,
    parse_results,
)
from orchestrator.benchmarks.calls.samples import Measurement, repeating, together
from orchestrator.catalog.system_calls import system_calls
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Called, CallResults
from orchestrator.profile.counted.turns import TurnsBatch

_PER_SECOND = 1_000_000_000
"""Units in a second of guest time: nanoseconds, and instructions under ``-icount shift=0``, which the TSC counts."""
COUNTED_CALLS = 1000
"""Most calls of a counting pass; each must give exactly ``hits`` hits."""
MOST_HITS = 3000
"""Most hits of a counting pass: a ring has room for 4096, and other processes may hit the same point."""

_PROGRAM = "callbench"
OWN_PROGRAM = "/tmp/workload"  # noqa: S108 - in the guest
_END_PROGRAM = """
ls -l /proc/[0-9]*/exe 2>/dev/null | while read -r line; do
    link=${line#* /proc/}
    case ${link#* -> } in "$1"*) kill -KILL "${link%%/*}" ;; esac
done 2>/dev/null
rm -f "$1"
"""
"""One ``ls``: a program for each process of an image's guest would take a third of a second."""
_MARKED_CALLS = 500
_MARKED_SAMPLES = 2
"""Samples of a profile, which must execute the same instructions."""
_WARMING_CALLS = 3
"""Calls directly before each batch of those samples. With LRU, whether a line is still in a cache depends on what was
accessed since its last use: one call makes that equal for level 1, two for level 2, three for a call that alternates
between two paths."""
_WARM_UP_CALLS = 100
"""Calls of a process before its timed ones, as in ``bench.h``."""
_MOST_ALONE = 100_000
"""Most calls of the process that finds the first one that fails, which takes seconds. A cell may time 100 million."""
_WATCHED_CALLS = 100
_USES_UP = "the call uses a resource up"
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
_FEWER_TURNS = 5
"""The first batch has a fifth of a sample's calls (``turns.c``): less it, the others are without their fixed cost."""
_SHARE_OF_A_TICK = 0.6
"""Largest fraction of a tick's period that a batch fills; it begins shortly after a tick."""

_FUNCTION = "function"
_ENTRY = re.compile(rf"entry (int80|sysenter|syscall|{_FUNCTION})")
_TIMED = re.compile(rf"{_ENTRY.pattern}(?: number={NUMBER})?")
_EMPTY = re.compile(rf"empty tsc={NUMBER} ns={NUMBER}")
_SAMPLE = re.compile(rf"sample {NUMBER} calls={NUMBER} batches={NUMBER} tsc={NUMBER} ns={NUMBER} disturbed={NUMBER}")
_COSTS = re.compile(r"costs(?: \d{1,10}\*\d{1,5})+")
_TURNS = re.compile(rf"turns calls={NUMBER} tsc={NUMBER} disturbed={NUMBER}")
_CALLED = re.compile(
    rf"called calls={NUMBER} pid={NUMBER} result=({WORD})(?: number={NUMBER} arguments=({WORD}(?:,{WORD}){{5}}))?"
)
_LIVE = re.compile(r"^live ((?:[0-9a-f]{2}){16})\n\Z", re.MULTILINE)
_WATCHED = re.compile(rf"watched bits=(32|64) calls={NUMBER} kinds=(\d{{1,2}}) signal=(\d{{1,3}})")
_WATCHED_CALL = re.compile(rf"call {NUMBER} (results watched .+)")

Argument = int | str | Buffer
"""A system call's argument: a number, a text to point to, or a buffer to point to."""


class DisturbedError(EvidenceError):
    """An interrupt, a page fault or another task disturbed each of two hundred batches."""


@dataclass(frozen=True)
class Sampling:
    """What one process does: samples, with ``warming`` calls before each batch, then ``untimed`` calls one by one."""

    calls: int
    batch: int
    repeats: int
    untimed: int = 0
    is_marked: bool = False
    warming: int = 0
    is_single: bool = False

    @property
    def options(self) -> Sequence[str]:
        """The options of ``bench.c``."""
        numbers = {"-n": self.calls, "-b": self.batch, "-r": self.repeats, "-u": self.untimed}
        numbers |= {"-m": 1} if self.is_marked else {}
        numbers |= {"-w": self.warming} if self.warming else {}
        numbers |= {"-k": 1} if self.is_single else {}
        return [word for option, value in numbers.items() for word in (option, str(value))]

    def warmed(self) -> Sampling:
        """The same with warming calls, at most a quarter of a batch, which fills six tenths of a tick."""
        return replace(self, warming=min(_WARMING_CALLS, self.batch // 4))


_SOUNDING = Sampling(calls=50, batch=1, repeats=1)
"""Finds how large a batch may be."""


def calls_before_timed(argv: Sequence[str]) -> int | None:
    """Calls that a program with these arguments makes before its timed ones; None if it makes no samples of a cell."""
    given, sounding = dict(pairwise(argv)), [*_SOUNDING.options]
    if "-b" not in given or [*argv[-len(sounding) :]] == sounding:
        return None
    return _WARM_UP_CALLS + int(given.get("-w", "0"))


@dataclass(frozen=True)
class Calls:
    """A program in the guest that makes ``calls`` calls a sample; see ``system_call`` and ``user_function``.

    Samples of one boot are equal on the exact clock, unless single calls are shown to differ. ``file`` is the program
    on the host, None for one in the initramfs; ``libraries`` are what it is linked with. Each call enters the probe
    point ``hits`` times. ``number`` is that of the system call, None for a function. ``renew`` is called before each
    sample, which then has a process of its own, where earlier samples change the cost of calls. With ``live_at``, a
    file's offset and path (``64:/tmp/workload``), each process tells which bytes it executes there in the end. Where
    the cost of a call ``depends_on_ticks``, warming calls always precede a batch. A batch of calls that are timed one
    by one has at most ``largest_batch``. Methods that make calls raise EvidenceError where the program makes another
    system call, or a call does not return what is ``expected``.
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

    @property
    def counted(self) -> int:
        """Calls of a counting pass, whose events fit into a ring."""
        return max(1, min(COUNTED_CALLS, MOST_HITS // self.hits))

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
        sounding = self._samples(guest, _SOUNDING, time_limit)
        batch = _between_ticks(ticks_per_second, max(1.0, sounding.samples[0]))
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
        warming = measured.warming or min(_WARMING_CALLS, measured.batch // 4)
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
        first, *rest = _checked(guest, [*self.argv, *words], time_limit).splitlines() or [""]
        entry, matches = _TIMED.fullmatch(first), [match for line in rest if (match := _TURNS.fullmatch(line))]
        batches = [TurnsBatch(*map(int, match.groups())) for match in matches]
        if (
            entry is None
            or [batche.calls for batche in batches] != [calls // _FEWER_TURNS, *[calls] * repeats]
            or len(matches) != len(rest)
        ):
            raise _unexpected([first, *rest])
        self._check_number(int(entry[2]) if entry[2] else None)
        return entry[1], batches

    def measure_one(self, guest: Guest, *, ticks_per_second: int, time_limit: float) -> Measurement:
        """Measure one sample, in batches that fit between two timer ticks, or smaller ones on a busy host."""
        sounding = self._undisturbed(guest, _SOUNDING, time_limit)
        batch = _between_ticks(ticks_per_second, max(1.0, sounding.nanoseconds[0]))
        batch = min(max(1, batch), self.calls)
        return self._undisturbed(guest, Sampling(self.calls, batch, 1, self.calls), time_limit)

    def measure_singly(self, guest: Guest, *, ticks_per_second: int, time_limit: float) -> Measurement:
        """Measure one sample on the exact clock, each call alone: ``costs`` has what calls that differ take."""
        sounding = self._undisturbed(guest, _SOUNDING, time_limit)
        each = _SINGLE_TOLL + max(1.0, sounding.samples[0])
        batch = _between_ticks(ticks_per_second, each)
        calls = self.single
        sampling = Sampling(calls, max(1, min(batch, calls, self.largest_batch)), 1, calls, is_single=True)
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
        output = _checked(guest, [*self.argv, "-o", str(calls)], time_limit)
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
        output, live = self._output(guest, sampling.options, time_limit)
        measured = replace(parse(output, sampling), live=live)
        self._check_number(measured.number)
        outcome = measured.outcome
        if outcome is None:
            return measured
        if outcome.uses_up:
            # A new process makes as many calls one by one, to find the first that fails.
            again = min(_WARM_UP_CALLS + sampling.calls * sampling.repeats, _MOST_ALONE)
            called = parse_called(_checked(guest, [*self.argv, "-c", str(again)], time_limit), again)
            raise _used_up(outcome, called.results or outcome.results)
        check_expected(self.expected, outcome.timed, "timed")
        check_expected(self.expected, outcome.untimed, "untimed")
        return measured

    def _output(self, guest: Guest, options: Sequence[str], time_limit: float) -> tuple[str, bytes | None]:
        """What the program says, and the bytes at ``live_at``."""
        if self.live_at is None:
            return _checked(guest, [*self.argv, *options], time_limit), None
        output = _checked(guest, [*self.argv, *options, "-l", self.live_at], time_limit)
        live = _LIVE.search(output)
        if live is None:
            raise _unexpected(output.splitlines())
        return output[: live.start()], bytes.fromhex(live[1])

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


def _used_up(outcome: CallOutcome, alone: CallResults) -> EvidenceError:
    results = alone if alone.stopped_succeeding else outcome.results
    succeeded = [named(value) for value, _ in results.values if value >= 0]
    change = f"from {succeeded[0] if len(succeeded) == 1 else SUCCESS} to {named(results.last)}"
    undo = "undo what each call does, in a workload() of your own"
    if not alone.stopped_succeeding:
        return EvidenceError(f"the call's result changed {change} while calls were timed: {_USES_UP}", hint=undo)
    calls = alone.before_failure
    room = calls - _WARM_UP_CALLS
    return EvidenceError(
        f"the call's result changed {change} after {calls} calls of one process: {_USES_UP}",
        hint=f"{undo}; or make fewer calls: a process has {room} timed ones before the change" if room > 0 else undo,
    )


def put_program(guest: Guest, file: Path, program: str) -> None:
    """Copy a user's program into the guest, and kill processes of an earlier one, which would hit the probe."""
    guest.succeed(["sh", "-c", _END_PROGRAM, "sh", program])
    guest.put(file, program)
    guest.succeed(["chmod", "755", program])


def parse_called(output: str, calls: int) -> Called:
    """Parse the program's output after untimed calls; raises EvidenceError for unexpected output."""
    lines = output.splitlines()
    entry = _ENTRY.fullmatch(lines[0]) if lines else None
    called = _CALLED.fullmatch(lines[1]) if len(lines) > 1 else None
    if entry is None or called is None or int(called[1]) != calls:
        raise _unexpected(lines)
    results = _results(lines, 2, ("untimed",), entry[1])
    if [result.observed for result in results] != [calls] * len(results):
        raise _unexpected(lines)
    return Called(
        entry=entry[1],
        calls=calls,
        pids=frozenset({int(called[2])}),
        number=int(called[4]) if called[4] else None,
        arguments=tuple(int(word, 16) for word in called[5].split(",")) if called[5] else (),
        result=int(called[3], 16) if called[4] else None,
        results=results[0] if results else None,
    )


def _results(lines: Sequence[str], first: int, names: Sequence[str], entry: str) -> Sequence[CallResults]:
    expected = () if entry == _FUNCTION else names
    if len(lines) != first + len(expected):
        raise _unexpected(lines)
    return [parse_results(line, name, entry) for line, name in zip(lines[first:], expected, strict=True)]


def parse_watched(output: str, calls: int) -> Mapping[str, CallResults]:
    """What the system calls of a workload returned; raises EvidenceError where not all of them were seen."""
    lines = output.splitlines()
    head = _WATCHED.fullmatch(lines[0]) if lines else None
    matches = [match for line in lines[1:] if (match := _WATCHED_CALL.fullmatch(line))]
    if head is None or len(matches) != len(lines) - 1 or len(matches) > int(head[3]):
        raise _unexpected(lines)
    completed, kinds, signal = (int(group) for group in head.groups()[1:])
    if completed < calls or signal:
        end = f"signal {signal} ended its process" if signal else "its process ended, or it makes too many system calls"
        raise EvidenceError(f"of {calls} calls of workload(), {completed} were seen to their end: {end}")
    if kinds > len(matches):
        raise EvidenceError(
            f"workload() makes more than {len(matches)} different system calls, and only those were seen"
        )
    arch: Arch = "x86_64" if head[1] == "64" else "i386"
    entry = "syscall" if arch == "x86_64" else "int80"
    names = {call.number(arch, entry): name for name, call in system_calls().items()}
    return {
        names.get(int(match[1]), f"system call {match[1]}"): parse_results(match[2], "watched", entry)
        for match in matches
    }


def _checked(guest: Guest, argv: list[str], time_limit: float) -> str:
    result = guest.run(argv, time_limit=time_limit)
    if result.status == 0:
        return result.text
    message = result.stderr.decode("utf-8", errors="replace").strip()[:300]
    if "no system call entry" in message:
        raise UnsupportedError(message)
    # The guest's agent reports a signal as shells do: 128 plus its number.
    signal = result.status - 128
    end = f"was ended by signal {signal}" if signal > 0 else f"ended with status {result.status}"
    if "no batch without an interrupt" in message:
        raise DisturbedError(message)
    if message.startswith(f"{Path(argv[0]).name}: "):  # of the part that times the calls, not of the calls
        raise EvidenceError(message)
    raise EvidenceError(f"{argv[0]} {end}", detail=message.splitlines())


_CALLS_ENDED = re.compile(r"/\S+ (?:ended with status \d+|was ended by signal (?!9\b)\d+)")
"""The kernel ends a program by signal 9 where memory runs out."""


def is_of_failed_calls(reason: str) -> bool:
    """Whether a cell has failed because its calls did: they ended their program, or returned what is not expected."""
    first = reason.partition("\n")[0]
    return _CALLS_ENDED.fullmatch(first) is not None or is_unexpected(first)


def parse(output: str, sampling: Sampling) -> Measurement:
    """Turn the program's output into a measurement; raises EvidenceError for incomplete or unexpected output."""
    calls, repeats = sampling.calls, sampling.repeats
    lines = output.splitlines()
    costs = [line for line in lines if _COSTS.fullmatch(line)]
    lines = [line for line in lines if not _COSTS.fullmatch(line)]
    entry = _TIMED.fullmatch(lines[0]) if lines else None
    empty = _EMPTY.fullmatch(lines[1]) if len(lines) > 1 else None
    matches = [_SAMPLE.fullmatch(line) for line in lines[2 : 2 + repeats]]
    samples = [tuple(int(group) for group in match.groups()) for match in matches if match]
    fixed = int(empty[1]) if empty else 0
    regions = [s[1] if sampling.is_single else s[2] for s in samples]
    right = [s[0] == number and s[1] == calls and s[2] > 0 and s[3] > s[2] * fixed for number, s in enumerate(samples)]
    if entry is None or empty is None or len(samples) != len(matches) or len(samples) != repeats or not all(right):
        raise _unexpected(lines)
    in_turn: list[int] = []
    made = calls * repeats if sampling.is_single else 0
    for cost, _, times in (run.partition("*") for line in costs for run in line.split()[1:]):
        if len(in_turn) > made:
            break
        in_turn += [int(cost) - fixed] * int(times)
    if len(in_turn) != made:
        raise _unexpected(costs)
    batches = sum(s[2] for s in samples)
    results = _results(lines, 2 + repeats, ("timed", "untimed"), entry[1])
    if results and [result.observed for result in results] != [1 + batches, sampling.untimed]:
        raise _unexpected(lines)
    return Measurement(
        samples=tuple((s[3] - times * fixed) / calls for s, times in zip(samples, regions, strict=True)),
        nanoseconds=tuple((ns - batches * int(empty[2])) / calls for _, _, batches, _, ns, _ in samples),
        entry=entry[1],
        calls=calls,
        batches=batches,
        disturbed=sum(s[5] for s in samples),
        batch=sampling.batch,
        empty=fixed,
        ticks=tuple((batches, tsc) for _, _, batches, tsc, _, _ in samples),
        costs=Counter(in_turn),
        cycle=repeating(in_turn, sampling.batch) if repeats == 1 else Counter(),
        number=int(entry[2]) if entry[2] else None,
        outcome=CallOutcome(*results) if results else None,
    )


def _unexpected(lines: Sequence[str]) -> EvidenceError:
    return EvidenceError("the benchmark's output is not what was expected", detail=lines[:10])


COUNTED_RUNS = 3
"""Most runs of a counting pass."""
_COLD_RUNS = 2
"""Runs before those that QEMU counts: the first ones read files and grow the kernel's caches."""

PROGRAM = "/tmp/program"  # noqa: S108 - in the guest
_RUN = re.compile(r"run (\d{1,9}) tsc=(\d{1,18}) ns=(\d{1,18}) pid=(\d{1,9})")


@dataclass(frozen=True)
class WholeProgram:
    """A program that is run repeatedly; ``hits`` is how often one run enters the probe point.

    ``argv`` names a program of the guest, or ``PROGRAM`` for the user's ``file``. A run is longer than a timer tick's
    period. Its samples include ticks and scatter a little on the exact clock, too, so they are compared like those of
    the wall clock. Where ``is_counted``, QEMU counts the instructions of each run.
    """

    file: Path | None
    argv: Sequence[str]
    hits: int
    is_counted: bool = False

    @property
    def counted(self) -> int:
        """Runs of a counting pass, whose events fit into a ring."""
        return max(1, min(COUNTED_RUNS, MOST_HITS // self.hits))

    def prepare(self, guest: Guest) -> None:
        if self.file is not None:
            put_program(guest, self.file, PROGRAM)

    def measure_counted(
        self, guest: Guest, runs: int, *, caller: str | None, time_limit: float, cold: int = _COLD_RUNS
    ) -> Measurement:
        """The clock's ticks of runs that QEMU counts, after ``cold`` ones that it does not."""
        counted_runs = self._run(guest, cold + runs, caller, time_limit, counted=runs)[cold:]
        ticks, nanoseconds = (tuple(float(run[at]) for run in counted_runs) for at in (0, 1))
        return Measurement(ticks, nanoseconds, "program", 1, runs, 0)

    def measure_one(self, guest: Guest, *, ticks_per_second: int, time_limit: float) -> Measurement:
        _, (tsc, nanoseconds, _) = self._run(guest, 2, None, time_limit)
        return Measurement((float(tsc),), (float(nanoseconds),), "program", 1, 1, 0)

    def call(self, guest: Guest, calls: int, *, caller: str | None, time_limit: float) -> Called:
        runs = self._run(guest, calls, caller, time_limit) if calls else []
        return Called("program", calls, frozenset(pid for _, _, pid in runs))

    def watch(self, guest: Guest, *, time_limit: float) -> Mapping[str, CallResults]:
        """Nothing: a program's exit status tells whether it succeeded."""
        return {}

    def _run(
        self, guest: Guest, runs: int, caller: str | None, time_limit: float, counted: int = 0
    ) -> list[tuple[int, int, int]]:
        options = (*(() if caller is None else ("-P", caller)), *(("-m", str(counted)) if counted else ()))
        result = guest.run(["runbench", *options, str(runs), *self.argv], time_limit=time_limit)
        if result.status != 0:
            messages = result.stderr.decode("utf-8", errors="replace").strip().splitlines()[-5:]
            name = self.argv[-1] if self.file is None else self.file.name
            raise EvidenceError(f"{name} did not run to its end", detail=messages)
        return parse_runs(result.text, runs)


Workload = Calls | WholeProgram


def parse_runs(output: str, runs: int) -> list[tuple[int, int, int]]:
    """Each run's TSC units, nanoseconds and process; raises EvidenceError for anything but ``runs`` complete lines."""
    lines = output.splitlines()
    matches = [_RUN.fullmatch(line) for line in lines]
    whole = [tuple(int(group) for group in match.groups()) for match in matches if match]
    if [run[0] for run in whole] != list(range(runs)) or len(whole) != len(lines):
        raise EvidenceError("the output of the program's runner is not what was expected", detail=lines[:10])
    return [(tsc, nanoseconds, pid) for _, tsc, nanoseconds, pid in whole]
