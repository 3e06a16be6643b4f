# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own tests in a guest: KUnit suites, programs that print KTAP, ftracetest.

A run keeps the results printed so far even if the guest dies, which is then one of the run's problems.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace

from orchestrator.errors import GuestError, UnsupportedError, UsageError
from orchestrator.guest.channel import Stream
from orchestrator.guest.commands import GuestCommands
from orchestrator.guest.console import QUOTED_LINES, plain_lines
from orchestrator.ktap.ftracetest import parse_ftracetest
from orchestrator.ktap.ktap import parse_ktap
from orchestrator.ktap.results import RESULTS_MAX, TestOutcome, TestResult, TestRun

OUTPUT_MAX = 16 << 20
"""Bytes of a run's output that are examined."""

_TOO_MUCH = f"more than {OUTPUT_MAX >> 20} MiB were printed; the rest was ignored"

_KUNIT = "/sys/kernel/debug/kunit"
_SUITES_MAX = 1000
_SHOWN_SUITES = 20
_SKIPPED = 4
"""Exit status of a skipped program (KSFT_SKIP in tools/testing/selftests/kselftest.h)."""

_LOGS = "/tmp/ftracetest-logs"  # noqa: S108 - in the guest; the script would write beside itself


def kunit_results(guest: GuestCommands, suites: Sequence[str] = ()) -> TestRun:
    """The latest results of KUnit suites, by default of all that ran: built-in ones and those of loaded modules.

    Raises UnsupportedError if the kernel has no KUnit, UsageError for an unknown suite.
    """
    result = guest.run(["ls", _KUNIT])
    if result.status != 0:
        hint = "CONFIG_KUNIT and CONFIG_KUNIT_DEBUGFS, and debugfs mounted; lab-i386-up-kunit has them"
        raise UnsupportedError("the guest's kernel shows no results of KUnit", hint=hint)
    listed = result.text.splitlines()[:_SUITES_MAX]
    for name in suites:
        if name not in listed:
            hint = f"the guest has: {', '.join(listed[:_SHOWN_SUITES])}{' ...' if len(listed) > _SHOWN_SUITES else ''}"
            raise UsageError(f"no suite {name!r} of KUnit has run in the guest", hint=hint)
    runs = [*_suite_runs(guest, dict.fromkeys(suites or listed), must_have_run=set(suites))]
    if len(result.text.splitlines()) > _SUITES_MAX:
        runs.append(TestRun((), (f"there are more than {_SUITES_MAX} suites; the others were ignored",)))
    results = tuple(result for run in runs for result in run.results)
    return TestRun(results, tuple(problem for run in runs for problem in run.problems))


def _suite_runs(guest: GuestCommands, names: Iterable[str], must_have_run: Container[str]) -> Iterator[TestRun]:
    size = results = 0
    for name in names:
        printed = guest.get(f"{_KUNIT}/{name}/results")
        size += len(printed)
        if size > OUTPUT_MAX:
            yield TestRun((), (f"suite {name}: {_TOO_MUCH}",))
            return
        run = parse_ktap(printed.decode("utf-8", errors="replace"))
        results += len(run.results)
        if results > RESULTS_MAX:
            yield TestRun((), (f"suite {name}: more than {RESULTS_MAX} results; the rest was ignored",))
            return
        if name in must_have_run and not run.results:
            yield TestRun((), (f"suite {name} has no result: it did not run",))
        yield run


def ftracetest_results(guest: GuestCommands, folder: str, cases: Sequence[str] = (), *, time_limit: float) -> TestRun:
    """The results of ``ftracetest`` in a guest's folder; ``cases`` are files and folders there, by default all.

    A failed or unresolved test has its log among its lines. ``time_limit`` is in host seconds for the whole run.
    """
    paths = [f"{folder}/{case}" for case in cases]
    if any(path.startswith("-") or re.search(r"\s", path) for path in (folder, *paths)):
        raise UsageError("ftracetest takes paths without spaces that do not begin with '-'")
    argv = [f"{folder}/ftracetest", "-v", "--fail-unresolved", "-l", _LOGS, *paths]
    return program_results(guest, argv, parse_ftracetest, time_limit=time_limit)


def program_results(
    guest: GuestCommands, argv: Sequence[str], parse: Callable[[str], TestRun] = parse_ktap, *, time_limit: float
) -> TestRun:
    """The results of a program that prints KTAP or TAP, such as a kselftest or ``run_kselftest.sh``.

    ``time_limit`` is in host seconds for the whole run.
    """
    printed = {stream: bytearray() for stream in Stream}

    def keep(stream: Stream, data: bytes) -> None:
        printed[stream] += data[: max(0, OUTPUT_MAX + 1 - len(printed[stream]))]

    problems = []
    try:
        status = guest.run(argv, time_limit=time_limit, listener=keep).status
    except GuestError as error:
        status = None
        problems.append(f"it did not finish: {error}")
    run = parse(printed[Stream.STDOUT][:OUTPUT_MAX].decode("utf-8", errors="replace"))
    if len(printed[Stream.STDOUT]) > OUTPUT_MAX:
        problems.append(_TOO_MUCH)
    words = plain_lines(bytes(printed[Stream.STDERR]))[-QUOTED_LINES:]
    if status == _SKIPPED and not run.results:
        return TestRun((TestResult("all", TestOutcome.SKIPPED, " ".join(words)),))
    if status and not any(result.outcome is TestOutcome.FAILED for result in run.results):
        quoted = "".join(f"\n    {line}" for line in words)
        problems.append(f"`{' '.join(argv)}` ended with status {status}, and no test failed{quoted}")
    return replace(run, problems=(*problems, *run.problems))
