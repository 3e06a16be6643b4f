# SPDX-License-Identifier: GPL-2.0-only
"""Instructions in a test's guest: counts of a system call, of a C function and of a command, on the exact clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import workload_program
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.call_programs import Argument, Calls, system_call, user_function
from orchestrator.benchmarks.calls.outcome import always_failing, summary
from orchestrator.benchmarks.calls.table import CallsBenchmark
from orchestrator.benchmarks.calls.whole_program import parse_runs
from orchestrator.benchmarks.calls.workload import Measurement
from orchestrator.catalog.system_calls import system_calls
from orchestrator.errors import EvidenceError, UnsupportedError, UsageError
from orchestrator.experiment.file.problems import problems_of
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.profiled import Counter
from orchestrator.results.profile import CellProfile
from orchestrator.run.postconditions import check_clocksource

_CALLS = 1000
_REPEATS = 4
_RUNS = 8
_LIMIT = 600.0
_WORD_SIZES = {"i386": 4, "x86_64": 8}
_CLOCKSOURCE_FILE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_SETTLING_LIMIT = 180.0


@dataclass(frozen=True)
class Counted:
    """Instructions of one call, and what counts them one by one; None where the guest does not.

    ``failing`` are the system calls that always failed, with what they returned.
    """

    instructions: float
    profile: Callable[[], CellProfile] | None = None
    failing: Sequence[str] = ()


def settle(guest: Guest) -> None:
    """Wait until the guest's kernel has settled on its final clocksource: it changes its clock's code for it.

    Raises UsageError for a guest that is not on the exact clock.
    """
    if guest.machine.timing != "instructions":
        raise UsageError("instructions are counted on the exact clock", hint="guest(timing='instructions')")
    guest.wait_until_succeeds(["grep", "-qx", "tsc", _CLOCKSOURCE_FILE], time_limit=_SETTLING_LIMIT)


def count_call(guest: Guest, kernel: Kernel, call: str, arguments: Sequence[object], expect: object = None) -> Counted:
    """Instructions of one system call, from user space and back.

    Raises EvidenceError where calls differ, or one does not return what is expected.
    """
    checked = _checked({"name": "syscall", "call": call, "arguments": arguments}, expect)
    number = system_calls()[call].number(kernel.spec.arch, "auto")
    if number is None:
        raise UnsupportedError(f"kernel {kernel.spec.name} has no system call {call}")
    usual: Sequence[Argument] = next((one.arguments for one in benchmarks().values() if one.call == call), ())
    words = checked.arguments or usual
    calls = system_call(number, words, entry="auto", word_size=_WORD_SIZES[kernel.spec.arch], calls=_CALLS)
    return _counted(guest, kernel, replace(calls, expected=checked.expect))


def count_function(guest: Guest, workshop: BuildContext, kernel: Kernel, file: Path, expect: object = None) -> Counted:
    """Instructions of one call of ``workload()``, which a C file defines, in user space and in the kernel.

    Raises EvidenceError where calls differ, or a system call of it does not return what is expected.
    """
    calls = user_function(workload_program(workshop, kernel.spec.arch, file), calls=_CALLS)
    if expect is not None:
        calls = replace(calls, expected=_checked({"name": "workload", "file": str(file)}, expect).expect)
    return _counted(guest, kernel, calls)


def _checked(benchmark: Mapping[str, object], expect: object) -> CallsBenchmark:
    """A benchmark as in an experiment. Raises UsageError."""
    try:
        return CallsBenchmark.model_validate({**benchmark, **({} if expect is None else {"expect": expect})})
    except ValidationError as error:
        raise UsageError("; ".join(problem.sentence for problem in problems_of(error, lambda path: ""))) from None


def count_command(guest: Guest, argv: Sequence[str]) -> Counted:
    """Instructions of one run of a program of the guest, by its path, from before its fork to after its end.

    The cheapest of several runs: the first one brings its files into memory, and timer ticks fall into some.
    """
    settle(guest)
    result = guest.succeed(["runbench", str(_RUNS), *argv], time_limit=_LIMIT)
    return Counted(float(min(instructions for instructions, _, _ in parse_runs(result.text, _RUNS))))


def _counted(guest: Guest, kernel: Kernel, calls: Calls) -> Counted:
    settle(guest)
    calls.prepare(guest)
    ticks = int(kernel.config["CONFIG_HZ"])
    measured = calls.measure_exact(guest, repeats=_REPEATS, ticks_per_second=ticks, time_limit=_LIMIT)
    check_clocksource(guest)
    if not measured.samples:
        raise EvidenceError("nothing was counted")
    if measured.scatter:
        raise EvidenceError(
            f"a call takes {min(measured.samples):.10g} to {max(measured.samples):.10g} instructions: "
            "what it finds in the kernel is not always the same, and there is no exact count"
        )
    failing = _failing(guest, calls, measured)
    if guest.machine.counter is None:
        return Counted(measured.samples[0], failing=failing)
    return Counted(measured.samples[0], lambda: _profile(guest, calls, measured), failing)


def _failing(guest: Guest, calls: Calls, measured: Measurement) -> Sequence[str]:
    """The system calls that always failed, and were not expected to."""
    if measured.outcome is not None:
        results = measured.outcome.results
        return [summary(results)] if results.failed == results.observed and calls.expected is None else []
    try:
        watched = calls.watch(guest, time_limit=_LIMIT)
    except EvidenceError:
        if calls.expected is not None:
            raise
        return []
    return always_failing(watched) if calls.expected is None else []


def _profile(guest: Guest, calls: Calls, measured: Measurement) -> CellProfile:
    """Where the instructions of the calls go, made again. Raises EvidenceError where they are others."""
    counter = Counter(guest, Symbols.of(guest))
    mark = counter.mark()
    marked = calls.measure_marked(guest, measured, time_limit=_LIMIT)
    profile = counter.profile(mark, marked.timed, cell="call", calls=marked.calls, program=marked.program)
    if profile.executed != marked.calls * measured.samples[0]:
        raise EvidenceError(f"made again, a call takes {profile.executed / marked.calls:.15g} instructions")
    return profile
