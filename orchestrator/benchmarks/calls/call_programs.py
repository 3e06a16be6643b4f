# SPDX-License-Identifier: GPL-2.0-only
"""The programs in the guest that make the calls: what calls cost, in instructions or nanoseconds, and what they return.

``images/guest/bench.c`` runs batches of calls and discards those that an interrupt fell into. This module sizes the
batches, checks the program's output and turns it into samples.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from orchestrator.arch import Arch
from orchestrator.artifacts.compiler import LIBRARIES
from orchestrator.artifacts.program_code import SharedLibrary
from orchestrator.benchmarks.calls.benchmarks import Buffer
from orchestrator.catalog.words import LARGEST, error_name, error_numbers, system_calls
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.plain_text import cut
from orchestrator.probes.attachment import MOST_VALUES, Called, CallResults
from orchestrator.profile.counts import Timed

SUCCESS = "success"
Expected = int | str
"""What each call must return: ``success``, an error by its name, or a number."""


@dataclass(frozen=True)
class Outcome:
    """What the calls of timed processes returned.

    ``timed``: the last call before the timed ones, and the last of each timed batch: the registers have its result, and
    to note more would be timed as well. ``untimed``: the calls behind the samples, one by one; there may be none.
    """

    timed: CallResults
    untimed: CallResults

    @property
    def results(self) -> CallResults:
        return self.timed.followed_by(self.untimed)

    @property
    def uses_up(self) -> bool:
        """Whether calls began to fail while they were timed, and failed from then on; False where none followed."""
        return self.timed.stopped_succeeding and self.untimed.failed == self.untimed.observed > 0


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of several processes' calls, in their order."""
    return Outcome(
        reduce(CallResults.followed_by, [one.timed for one in outcomes]),
        reduce(CallResults.followed_by, [one.untimed for one in outcomes]),
    )


def check_expected(expected: Expected | None, results: CallResults, which: str) -> None:
    """Raise EvidenceError unless all of ``which`` calls returned what is expected; None expects nothing."""
    if expected is None or not results.observed:
        return
    if expected == SUCCESS:
        right = not results.failed
    else:
        value = -error_numbers()[expected] if isinstance(expected, str) else expected
        right = not results.other and {found for found, _ in results.values} == {value}
    if not right:
        raise EvidenceError(f"expected {expected} of each call; the {which} ones returned {summary(results)}")


def named(value: int) -> str:
    """A returned value: an error's name, a decimal number, or from 2**31 on, as addresses are, a hexadecimal one."""
    if value < 0:
        return error_name(-value)
    return str(value) if value < 1 << 31 else f"{value:#x}"


def listed(results: CallResults) -> str:
    """The different values with the number of calls that returned each: ``0 x 510, EMFILE x 490``."""
    parts = [f"{named(value)} x {calls}" for value, calls in results.values]
    parts += [f"others x {results.other}"] if results.other else []
    return phrase(", ".join(parts))


def summary(results: CallResults) -> str:
    """The outcome in a few words: ``always EBADF``, or the different values where calls failed and succeeded."""
    if len(results.values) == 1 and not results.other:
        return f"always {named(results.values[0][0])}"
    return listed(results) if results.failed else f"always success, {_distinct(results)} different results"


def outcome_parameters(outcome: Outcome | None, counted: CallResults | None) -> dict[str, str | int]:
    """The parameters of a record; without ``outcome`` a user's function or program ran, whose exit status is 0."""
    if outcome is None:
        return {"exit_status": 0}
    results = outcome.results
    return {
        "outcome": summary(results),
        "result_first": _whole(results.values[0][0]),
        "result_last": _whole(results.last),
        "result_distinct": _distinct(results),
        "result_values": listed(results),
        "result_calls": results.observed,
        "result_failed": results.failed,
        **({} if counted is None else {"result_counted": listed(counted)}),
    }


def watched_parameters(watched: Mapping[str, CallResults]) -> dict[str, str | int]:
    """The parameters of a cell that ran a user's function: what its system calls returned, those that failed first."""
    if not watched:
        return {}
    ordered = sorted(watched.items(), key=lambda one: not one[1].failed)
    return {
        "outcome": phrase("; ".join(f"{name} {summary(results)}" for name, results in ordered)),
        "result_calls": sum(results.observed for results in watched.values()),
        "result_failed": sum(results.failed for results in watched.values()),
    }


def always_failing(watched: Mapping[str, CallResults]) -> Sequence[str]:
    """The system calls that never succeed, with what they return: ``ioctl: always ENOTTY``."""
    return [f"{name}: {summary(one)}" for name, one in watched.items() if one.observed == one.failed > 0]


def difference_note(outcome: Outcome | None, counted: CallResults | None) -> tuple[str, ...]:
    """A note where calls of the counting pass ended otherwise than those of the timed one."""
    if outcome is None or counted is None or counted.endings == outcome.results.endings:
        return ()
    return (f"the counted calls ended otherwise than the timed ones: {listed(counted)}",)


def phrase(text: str) -> str:
    """The text as far as a parameter of a record holds it."""
    return cut(text, 200)


def _whole(value: int) -> str:
    return f"{named(value)} ({value})" if value < 0 else named(value)


def _distinct(results: CallResults) -> int | str:
    return f"more than {MOST_VALUES}" if results.other else len(results.values)


@dataclass(frozen=True)
class Measurement:
    """Samples per call, the entry they used, and the batches they are made of.

    ``samples`` are in units of the guest's TSC, which are instructions on the exact clock; ``nanoseconds`` are the same
    by the guest's clock. ``disturbed`` batches were discarded and repeated. ``number`` and ``outcome`` are of system
    calls. A ``batch`` has so many calls at most, an ``empty`` one takes so many TSC units; ``ticks`` are each sample's
    batches and TSC units, with nothing subtracted. ``is_uniform`` where one call costs what one of many does.
    ``warming`` calls preceded each batch and are not in it.
    """

    samples: tuple[float, ...]
    nanoseconds: tuple[float, ...]
    entry: str
    calls: int
    batches: int
    disturbed: int
    number: int | None = None
    outcome: Outcome | None = None
    batch: int = 1
    empty: int = 0
    ticks: tuple[tuple[int, int], ...] = ()
    is_uniform: bool = False
    warming: int = 0

    @property
    def scatter(self) -> float:
        """How far samples are apart, in their unit: 0 where all calls cost the same on the exact clock."""
        return max(self.samples) - min(self.samples) if self.samples else 0.0


def together(ones: Sequence[Measurement]) -> Measurement:
    """Samples that were measured one by one, of the same calls. What the calls returned is of the last."""
    return replace(
        ones[-1],
        samples=tuple(sample for one in ones for sample in one.samples),
        nanoseconds=tuple(time for one in ones for time in one.nanoseconds),
        batches=sum(one.batches for one in ones),
        disturbed=sum(one.disturbed for one in ones),
        ticks=tuple(ticks for one in ones for ticks in one.ticks),
    )


@dataclass(frozen=True)
class MarkedSamples:
    """What the clock of ``program`` said in the batches that it marked; each sample is of ``calls`` calls."""

    program: str
    calls: int
    timed: Timed


# The line on what calls returned that programs in the guest print (``images/guest/results.h``).

_NUMBER = r"(\d{1,18})"
_WORD = r"0x[0-9a-f]{1,16}"
_LINE = re.compile(
    rf"results (timed|untimed|watched) observed={_NUMBER} failed={_NUMBER} before={_NUMBER} other={_NUMBER}"
    rf" last=({_WORD}) values=((?:{_WORD}:\d{{1,18}}(?:,(?!$)|$)){{0,{MOST_VALUES}}})"
)


def parse_results(line: str, name: str, entry: str) -> CallResults:
    """Read the line of this ``name``; raises EvidenceError for another, and for figures that contradict each other."""
    unexpected = EvidenceError(
        "what the benchmark says of the calls' results is not what was expected", detail=[line[:300]]
    )
    found = _LINE.fullmatch(line)
    if found is None or found[1] != name:
        raise unexpected
    # The 32-bit entries return a word of 32 bits; a 64-bit program extends its sign.
    bits = 64 if entry == "syscall" else 32
    pairs = [part.split(":") for part in found[7].split(",")] if found[7] else []
    values = tuple((_value(word, bits), int(calls)) for word, calls in pairs)
    observed, failed, before_failure, other = (int(found[group]) for group in range(2, 6))
    results = CallResults(observed, failed, before_failure, values, other, _value(found[6], bits))
    if not _is_consistent(results):
        raise unexpected
    return results


def _value(word: str, bits: int) -> int:
    value = int(word, 16) % (1 << bits)
    return value - (1 << bits) if value >= (1 << bits) - LARGEST else value


def _is_consistent(results: CallResults) -> bool:
    calls = dict(results.values)
    kept_failures = sum(count for value, count in calls.items() if value < 0)
    return (
        len(calls) == len(results.values)
        and all(calls.values())
        and sum(calls.values()) + results.other == results.observed
        and (not results.other or len(calls) == MOST_VALUES)
        and kept_failures <= results.failed <= kept_failures + results.other
        and results.before_failure <= results.observed - results.failed
        and (results.failed > 0 or results.before_failure == results.observed)
        and (results.last in calls or results.other > 0 or not results.observed)
    )


INSTRUCTIONS_PER_SECOND = 1_000_000_000
"""Per second of guest time under ``-icount shift=0``, where the guest's TSC counts instructions."""
COUNTED_CALLS = 1000
"""Calls of a counting pass, at most; each must give exactly ``hits`` hits."""
MOST_HITS = 3000
"""Hits of a counting pass; a ring has room for 4096, and other processes may hit the same probe point."""

_NANOSECONDS_PER_SECOND = 1_000_000_000
_PROGRAM = "callbench"
OWN_PROGRAM = "/tmp/workload"  # noqa: S108 - in the guest
_END_PROGRAM = """
for exe in /proc/[0-9]*/exe; do
    case $(readlink "$exe") in "$1"*) pid=${exe%/exe}; kill -KILL "${pid#/proc/}" ;; esac
done 2>/dev/null
rm -f "$1"
"""
_SOUNDING_CALLS = 50
_MARKED_CALLS = 500
_MARKED_SAMPLES = 2
"""Samples for a profile: they must be the same instructions."""
_WARMING_CALLS = 3
"""Calls directly before each batch of those samples. With LRU, whether a line is still in a cache depends on what was
accessed since its last use. One call makes that the same for level 1, two for level 2, three for a call that takes
turns."""
_WARM_UP_CALLS = 100
"""Calls of a process before its timed ones, as in ``bench.c``."""
_MOST_ALONE = 100_000
"""Calls of the process that shows which one is the first to fail: seconds. Timed ones may be a hundred million."""
_WATCHED_CALLS = 100
_USES_UP = "the call uses a resource up"
_MOST_DIFFERENT = 4
"""Samples from an empty buffer that may differ from the others: what a discarded batch has left changes the cost of
those behind it, and so does an event of somebody else's."""
_UNEVEN = 0.001
"""Part of a call: what is recorded between batches decides how many events of each batch begin a page of the buffer. A
page costs 176 instructions on debian-amd64, and 245 on lab-i386-smp-bpf@6.12."""
_SINGLE_CALLS = 200
"""Calls that are timed one by one where samples scatter: they show whether calls do."""
_MOST_SCATTER = 0.05
"""Of the smallest sample: with more, a mean says nothing. Opening and closing /dev/null has 0.2 to 1.5 %."""
_SMALLER = 8
"""By how much a batch is made smaller when none was free of interrupts."""
_TRIES_OF_ONE = 10
"""How often batches of one call are tried on the guest's own clock before the calls are said to take too long."""
_SHARE_OF_A_TICK = 0.6
"""The fraction of a tick's period that a batch may fill; a batch begins shortly after a tick."""

_FUNCTION = "function"
_ENTRY = re.compile(rf"entry (int80|sysenter|syscall|{_FUNCTION})")
_TIMED = re.compile(rf"{_ENTRY.pattern}(?: number={_NUMBER})?")
_EMPTY = re.compile(rf"empty tsc={_NUMBER} ns={_NUMBER}")
_SAMPLE = re.compile(
    rf"sample {_NUMBER} calls={_NUMBER} batches={_NUMBER} tsc={_NUMBER} ns={_NUMBER} disturbed={_NUMBER}"
)
_CALLED = re.compile(
    rf"called calls={_NUMBER} pid={_NUMBER} result=({_WORD})(?: number={_NUMBER} arguments=({_WORD}(?:,{_WORD}){{5}}))?"
)
_WATCHED = re.compile(rf"watched bits=(32|64) calls={_NUMBER} kinds=(\d{{1,2}}) signal=(\d{{1,3}})")
_WATCHED_CALL = re.compile(rf"call {_NUMBER} (results watched .+)")

Argument = int | str | Buffer
"""A system call's argument: a number, a text to point to, or a buffer to point to."""


class DisturbedError(EvidenceError):
    """An interrupt, a page fault or another task fell into each of two hundred batches."""


@dataclass(frozen=True)
class Sampling:
    """What one process does: samples, each batch behind ``warming`` calls, and then ``untimed`` calls one by one."""

    calls: int
    batch: int
    repeats: int
    untimed: int = 0
    is_marked: bool = False
    warming: int = 0

    @property
    def options(self) -> Sequence[str]:
        """The program's, as in ``bench.c``."""
        numbers = {"-n": self.calls, "-b": self.batch, "-r": self.repeats, "-u": self.untimed}
        numbers |= {"-m": 1} if self.is_marked else {}
        numbers |= {"-w": self.warming} if self.warming else {}
        return [word for option, value in numbers.items() for word in (option, str(value))]


@dataclass(frozen=True)
class Calls:
    """A program in the guest that makes ``calls`` calls a sample. Made by ``system_call`` and ``user_function``.

    Samples of one boot are equal on the exact clock, unless single calls are shown to differ. ``file`` is the program
    on the host, None for one in the initramfs, ``libraries`` what it is linked with; ``hits`` is how often each call
    enters the probe point; ``number`` is the system call's, None for a function. ``renew`` is done before each sample,
    which then has a process of its own: what calls cost depends on what samples before have left. Methods that make
    calls raise EvidenceError where the program makes another system call, or one does not return what is ``expected``.
    """

    argv: Sequence[str]
    calls: int
    hits: int = 1
    file: Path | None = None
    number: int | None = None
    expected: Expected | None = None
    renew: Callable[[], None] | None = None
    libraries: Sequence[SharedLibrary] = ()

    metric = "cost per call"

    @property
    def counted(self) -> int:
        """Calls of a counting pass: their events fit into a ring."""
        return max(1, min(COUNTED_CALLS, MOST_HITS // self.hits))

    def prepare(self, guest: Guest) -> None:
        if self.file is not None:
            put_program(guest, self.file, OWN_PROGRAM)
        for library in self.libraries:
            if library.is_brought:
                guest.succeed(["mkdir", "-p", LIBRARIES])
                guest.put(library.file, library.path)

    def measure_exact(self, guest: Guest, *, repeats: int, ticks_per_second: int, time_limit: float) -> Measurement:
        """Measure ``repeats`` samples of ``calls`` calls, in batches that fit between two timer ticks.

        On the exact clock samples are equal, unless the calls themselves cost different numbers of instructions. Raises
        EvidenceError where samples differ and single calls do not, where they differ too much, and where they depend on
        the size of the batches.
        """
        sounding = self._samples(guest, Sampling(_SOUNDING_CALLS, 1, 1), time_limit)
        between_ticks = INSTRUCTIONS_PER_SECOND / ticks_per_second
        batch = int(between_ticks * _SHARE_OF_A_TICK / max(1.0, sounding.samples[0]))
        if batch < 1:
            raise EvidenceError(f"one call takes {sounding.samples[0]:g} instructions: more than fit between two ticks")
        # The check for equal samples needs at least two.
        wanted = Sampling(self.calls, min(batch, self.calls), max(2, repeats), self.calls)
        measured = self._samples(guest, wanted, time_limit)
        if len(set(measured.samples)) != 1:
            self._check_scatter(guest, measured, time_limit)
        # A batch has to cost n times one call, and what a batch of no calls does. Where batches of one call agree with
        # the samples that is proved; where calls differ from each other, the same calls in smaller batches prove it.
        elif sounding.samples[0] != measured.samples[0] and wanted.batch > 1:
            measured = self._of_any_batches(guest, wanted, measured, time_limit)
        # Of samples that scatter all stay: one alone would look like an exact count.
        kept = None if measured.scatter else repeats
        return replace(
            measured,
            samples=measured.samples[:kept],
            nanoseconds=measured.nanoseconds[:kept],
            is_uniform=sounding.samples[0] == measured.samples[0],
        )

    def _check_scatter(self, guest: Guest, measured: Measurement, time_limit: float) -> None:
        results = None if measured.outcome is None else measured.outcome.results
        detail = [f"the calls returned: {listed(results)}"] if results and len(results.values) > 1 else []
        found = f"samples of one boot differ: {', '.join(f'{s:.10g}' for s in measured.samples)}"
        if self.renew is not None:
            raise EvidenceError(found, detail=detail)
        singles = self._sampled(guest, Sampling(1, 1, _SINGLE_CALLS), time_limit).samples
        usual, times = Counter(singles).most_common(1)[0]
        # One that differs may be an error of the clock's; what calls find in the kernel differs again and again.
        if times >= _SINGLE_CALLS - 1 and usual in measured.samples:
            raise EvidenceError(f"{found}; {times} of {_SINGLE_CALLS} single calls take {usual:g}", detail=detail)
        if measured.scatter > _MOST_SCATTER * min(measured.samples):
            raise EvidenceError(
                f"{found}; single calls take {min(singles):g} to {max(singles):g} instructions",
                hint="let each call undo what it does, or make more calls a sample (benchmark.calls)",
                detail=detail,
            )

    def _of_any_batches(self, guest: Guest, wanted: Sampling, measured: Measurement, time_limit: float) -> Measurement:
        """The samples that are the same in batches of half the size: as ``measured``, or with calls before each batch.

        A batch begins shortly after a timer tick, and its first call may do what is due once a tick: a read notes the
        time of access, 302 instructions with a pipe on debian-amd64.
        """

        def in_halves(of: Sampling) -> Measurement:
            halves = replace(of, batch=wanted.batch // 2, repeats=1, untimed=0)
            return self._samples(guest, halves, time_limit)

        halved = in_halves(wanted)
        if self._agree(measured, halved):
            return measured
        warmed = replace(wanted, warming=min(_WARMING_CALLS, wanted.batch // 4))
        if warmed.warming:
            again = self._samples(guest, warmed, time_limit)
            if not again.scatter and self._agree(again, in_halves(warmed)):
                return replace(again, warming=warmed.warming)
        raise EvidenceError(
            f"in batches of {wanted.batch} calls one takes {measured.samples[0]:.10g} instructions, "
            f"and {halved.samples[0]:.10g} in batches of {halved.batch}"
        )

    def _agree(self, one: Measurement, other: Measurement) -> bool:
        uneven = _UNEVEN * one.samples[0] if self.renew is not None else 0.0
        return abs(one.samples[0] - other.samples[0]) <= uneven

    def measure_cheaper(self, guest: Guest, dearer: Measurement, *, time_limit: float) -> Sequence[float]:
        """Two samples in batches as of ``dearer``: as a call now costs no more, they fit between two timer ticks."""
        batches = dearer.batches // max(2, len(dearer.samples))
        wanted = Sampling(self.calls, -(-self.calls // batches), 2, warming=dearer.warming)
        return self._sampled(guest, wanted, time_limit).samples

    def measure_marked(self, guest: Guest, measured: Measurement, *, time_limit: float) -> MarkedSamples:
        """Two samples in batches as of ``measured``, of fewer calls where these are alike, which the plugin counts."""
        calls = min(self.calls, _MARKED_CALLS) if measured.is_uniform else self.calls
        # They add at most a quarter to a batch, which fills six tenths of the time between two timer ticks.
        warming = measured.warming or min(_WARMING_CALLS, measured.batch // 4)
        # Samples that scatter are not the same instructions: then one.
        samples = 1 if measured.scatter else _MARKED_SAMPLES
        wanted = Sampling(calls, min(calls, measured.batch), samples, is_marked=True, warming=warming)
        if self.renew is not None:
            self.renew()
            wanted = replace(wanted, repeats=1, warming=measured.warming)
        marked = self._sampled(guest, wanted, time_limit)
        return MarkedSamples(Path(self.argv[0]).name, calls, Timed(marked.empty, marked.ticks))

    def measure_one(self, guest: Guest, *, ticks_per_second: int, time_limit: float) -> Measurement:
        """Measure one sample, in batches that fit between two timer ticks: smaller ones where the host is busy."""
        sounding = self._undisturbed(guest, Sampling(_SOUNDING_CALLS, 1, 1), time_limit)
        between_ticks = _NANOSECONDS_PER_SECOND / ticks_per_second
        batch = int(between_ticks * _SHARE_OF_A_TICK / max(1.0, sounding.nanoseconds[0]))
        batch = min(max(1, batch), self.calls)
        return self._undisturbed(guest, Sampling(self.calls, batch, 1, self.calls), time_limit)

    def _undisturbed(self, guest: Guest, wanted: Sampling, time_limit: float) -> Measurement:
        """Sample in smaller and smaller batches, and try batches of one call several times.

        A guest that the host let wait gets the ticks of that time one after the other (QEMU's i8254 delivers all of
        them): after two seconds of waiting 250 ticks a second fall into every one of 200 attempts.
        """
        tries = _TRIES_OF_ONE
        while True:
            try:
                return self._sampled(guest, wanted, time_limit)
            except DisturbedError:
                tries -= wanted.batch == 1
                if not tries:
                    raise
                wanted = replace(wanted, batch=max(1, wanted.batch // _SMALLER))

    def call(self, guest: Guest, calls: int, *, caller: str | None, time_limit: float) -> Called:
        """Make exactly ``calls`` calls, untimed. Their process writes its process id to the guest's file ``caller``."""
        caller_option = () if caller is None else ("-P", caller)
        called = parse_called(_checked(guest, [*self.argv, "-c", str(calls), *caller_option], time_limit), calls)
        self._check_number(called.number)
        if called.results is not None:
            check_expected(self.expected, called.results, "counted")
        return called

    def watch(self, guest: Guest, *, time_limit: float) -> Mapping[str, CallResults]:
        """What the system calls of a user's function return, by their names: of calls in a process that is traced.

        Nothing where a system call is measured. Raises EvidenceError where one does not return what is ``expected``, or
        is not seen.
        """
        if self.number is not None:
            return {}
        output = _checked(guest, [*self.argv, "-o", str(_WATCHED_CALLS)], time_limit)
        seen = parse_watched(output, _WATCHED_CALLS)
        if self.expected is not None and not seen:
            raise EvidenceError(f"expected {self.expected} of each system call, and workload() makes none")
        for name, results in seen.items():
            check_expected(self.expected, results, name)
        return seen

    def _samples(self, guest: Guest, wanted: Sampling, time_limit: float) -> Measurement:
        """All samples of one process; with ``renew``, which others may disturb, of one each until enough are equal."""
        if self.renew is None:
            return self._sampled(guest, wanted, time_limit)
        # Marked as for a profile: what comes before the first batch counts, too.
        alone = replace(wanted, repeats=1, is_marked=True)
        ones: list[Measurement] = []
        while len(ones) < wanted.repeats + _MOST_DIFFERENT:
            self.renew()
            ones.append(self._sampled(guest, alone, time_limit))
            equal = [one for one in ones if one.samples == ones[-1].samples]
            if len(equal) == wanted.repeats:
                found = together(equal)
                return replace(found, disturbed=found.disturbed + len(ones) - len(equal))
        return together(ones)

    def _sampled(self, guest: Guest, wanted: Sampling, time_limit: float) -> Measurement:
        measured = parse(_checked(guest, [*self.argv, *wanted.options], time_limit), wanted)
        self._check_number(measured.number)
        outcome = measured.outcome
        if outcome is None:
            return measured
        if outcome.uses_up:
            # A new process that makes as many calls one by one shows which of them is the first to fail.
            again = min(_WARM_UP_CALLS + wanted.calls * wanted.repeats, _MOST_ALONE)
            called = parse_called(_checked(guest, [*self.argv, "-c", str(again)], time_limit), again)
            raise _used_up(outcome, called.results or outcome.results)
        check_expected(self.expected, outcome.timed, "timed")
        check_expected(self.expected, outcome.untimed, "untimed")
        return measured

    def _check_number(self, number: int | None) -> None:
        """Raise EvidenceError unless it made this system call: a baseline has no hits that would prove it."""
        if number != self.number:
            raise EvidenceError(f"the program made system call {number}, not {self.number}")


def system_call(
    number: int, arguments: Sequence[Argument], *, entry: str, word_size: int, calls: int, hits: int = 1
) -> Calls:
    """Calls of a system call by its number, with arguments of ``word_size`` bytes; ``entry`` may be ``auto``."""
    words = [part for argument in arguments for part in _options(argument, word_size)]
    return Calls([_PROGRAM, "-e", entry, "-N", str(number), *words], calls, hits, number=number)


def user_function(program: Path, *, calls: int, hits: int = 1, libraries: Sequence[SharedLibrary] = ()) -> Calls:
    """Calls of ``workload()`` in a program compiled from a user's C file, and linked with shared ``libraries``."""
    return Calls([OWN_PROGRAM], calls, hits, program, libraries=libraries)


def _used_up(outcome: Outcome, alone: CallResults) -> EvidenceError:
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


def _options(argument: Argument, word_size: int) -> tuple[str, str]:
    if isinstance(argument, int):
        return "-a", f"{argument % (1 << 8 * word_size):x}"
    return ("-t", argument) if isinstance(argument, str) else ("-z", str(argument.buffer))


def put_program(guest: Guest, file: Path, program: str) -> None:
    """Copy a user's program into the guest, and end processes of an earlier one: they would hit the probe."""
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
    if [one.observed for one in results] != [calls] * len(results):
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
    found = [match for line in lines[1:] if (match := _WATCHED_CALL.fullmatch(line))]
    if head is None or len(found) != len(lines) - 1 or len(found) > int(head[3]):
        raise _unexpected(lines)
    completed, kinds, signal = (int(group) for group in head.groups()[1:])
    if completed < calls or signal:
        end = f"signal {signal} ended its process" if signal else "its process ended, or it makes too many system calls"
        raise EvidenceError(f"of {calls} calls of workload(), {completed} were seen to their end: {end}")
    if kinds > len(found):
        raise EvidenceError(f"workload() makes more than {len(found)} different system calls, and only those were seen")
    arch: Arch = "x86_64" if head[1] == "64" else "i386"
    entry = "syscall" if arch == "x86_64" else "int80"
    names = {call.number(arch, entry): name for name, call in system_calls().items()}
    return {
        names.get(int(match[1]), f"system call {match[1]}"): parse_results(match[2], "watched", entry)
        for match in found
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
    is_disturbed = "no batch without an interrupt" in message
    raise (DisturbedError if is_disturbed else EvidenceError)(message or f"{argv[0]} {end}")


def parse(output: str, wanted: Sampling) -> Measurement:
    """Turn the program's output into a measurement; raises EvidenceError for incomplete or unexpected output."""
    calls, repeats = wanted.calls, wanted.repeats
    lines = output.splitlines()
    entry = _TIMED.fullmatch(lines[0]) if lines else None
    empty = _EMPTY.fullmatch(lines[1]) if len(lines) > 1 else None
    found = [_SAMPLE.fullmatch(line) for line in lines[2 : 2 + repeats]]
    samples = [tuple(int(group) for group in match.groups()) for match in found if match]
    fixed = int(empty[1]) if empty else 0
    right = [s[0] == number and s[1] == calls and s[2] > 0 and s[3] > s[2] * fixed for number, s in enumerate(samples)]
    if entry is None or empty is None or len(samples) != len(found) or len(samples) != repeats or not all(right):
        raise _unexpected(lines)
    batches = sum(s[2] for s in samples)
    results = _results(lines, 2 + repeats, ("timed", "untimed"), entry[1])
    if results and [one.observed for one in results] != [1 + batches, wanted.untimed]:
        raise _unexpected(lines)
    return Measurement(
        samples=tuple((tsc - batches * fixed) / calls for _, _, batches, tsc, _, _ in samples),
        nanoseconds=tuple((ns - batches * int(empty[2])) / calls for _, _, batches, _, ns, _ in samples),
        entry=entry[1],
        calls=calls,
        batches=batches,
        disturbed=sum(s[5] for s in samples),
        batch=wanted.batch,
        empty=fixed,
        ticks=tuple((batches, tsc) for _, _, batches, tsc, _, _ in samples),
        number=int(entry[2]) if entry[2] else None,
        outcome=Outcome(*results) if results else None,
    )


def _unexpected(lines: Sequence[str]) -> EvidenceError:
    return EvidenceError("the benchmark's output is not what was expected", detail=lines[:10])


COUNTED_RUNS = 3
"""Runs of a counting pass, at most."""

PROGRAM = "/tmp/program"  # noqa: S108 - in the guest
_RUN = re.compile(r"run (\d{1,9}) tsc=(\d{1,18}) ns=(\d{1,18}) pid=(\d{1,9})")


@dataclass(frozen=True)
class WholeProgram:
    """A user's static program, run repeatedly; ``hits`` is how often one run enters the probe point.

    A run is longer than a timer tick's period, so it includes ticks and its samples scatter a little, on the exact
    clock too: they are compared in the way of the wall clock's.
    """

    file: Path
    arguments: Sequence[str]
    hits: int

    metric = "cost per run"

    @property
    def counted(self) -> int:
        """Runs of a counting pass: their events fit into a ring."""
        return max(1, min(COUNTED_RUNS, MOST_HITS // self.hits))

    def prepare(self, guest: Guest) -> None:
        put_program(guest, self.file, PROGRAM)

    def measure_one(self, guest: Guest, *, ticks_per_second: int, time_limit: float) -> Measurement:
        _, (tsc, nanoseconds, _) = self._run(guest, 2, None, time_limit)
        return Measurement((float(tsc),), (float(nanoseconds),), "program", 1, 1, 0)

    def call(self, guest: Guest, calls: int, *, caller: str | None, time_limit: float) -> Called:
        runs = self._run(guest, calls, caller, time_limit) if calls else []
        return Called("program", calls, frozenset(pid for _, _, pid in runs))

    def watch(self, guest: Guest, *, time_limit: float) -> Mapping[str, CallResults]:
        """Nothing: a program's exit status says whether it did what it should."""
        return {}

    def _run(self, guest: Guest, runs: int, caller: str | None, time_limit: float) -> list[tuple[int, int, int]]:
        caller_option = () if caller is None else ("-P", caller)
        argv = ["runbench", *caller_option, str(runs), PROGRAM, *self.arguments]
        result = guest.run(argv, time_limit=time_limit)
        if result.status != 0:
            messages = result.stderr.decode("utf-8", errors="replace").strip().splitlines()[-5:]
            raise EvidenceError(f"{self.file.name} did not run to its end", detail=messages)
        return parse_runs(result.text, runs)


Workload = Calls | WholeProgram


def parse_runs(output: str, runs: int) -> list[tuple[int, int, int]]:
    """Each run's TSC units, nanoseconds and process; raises EvidenceError for anything but ``runs`` complete lines."""
    lines = output.splitlines()
    found = [_RUN.fullmatch(line) for line in lines]
    whole = [tuple(int(group) for group in match.groups()) for match in found if match]
    if [run[0] for run in whole] != list(range(runs)) or len(whole) != len(lines):
        raise EvidenceError("the output of the program's runner is not what was expected", detail=lines[:10])
    return [(tsc, nanoseconds, pid) for _, tsc, nanoseconds, pid in whole]
