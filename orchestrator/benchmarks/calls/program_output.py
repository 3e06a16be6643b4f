# SPDX-License-Identifier: GPL-2.0-only
"""What the programs that make calls print, checked: samples, untimed calls, calls in turns and watched calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from orchestrator.arch import Arch
from orchestrator.benchmarks.calls.call_results import NUMBER, WORD, CallOutcome, parse_results
from orchestrator.benchmarks.calls.samples import Measurement, repeating
from orchestrator.benchmarks.calls.sampling import Sampling
from orchestrator.catalog.system_calls import system_calls
from orchestrator.errors import EvidenceError
from orchestrator.probes.attachment import Called, CallResults
from orchestrator.profile.counted.turns import TurnsBatch

_FEWER_TURNS = 5
"""The first batch has a fifth of a sample's calls (``turns.c``): less it, the others are without their fixed cost."""

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


def parse_live(output: str) -> tuple[str, bytes]:
    """Take the line that ``-l`` adds off the output: the other lines, and the bytes at that place of the process.

    Raises EvidenceError where there is none.
    """
    live = _LIVE.search(output)
    if live is None:
        raise _unexpected(output.splitlines())
    return output[: live.start()], bytes.fromhex(live[1])


def parse_turns(output: str, calls: int, repeats: int) -> tuple[str, int | None, Sequence[TurnsBatch]]:
    """The entry and the number of calls in turns, a small batch, and ``repeats`` others of ``calls`` calls.

    Raises EvidenceError for unexpected output.
    """
    first, *rest = output.splitlines() or [""]
    entry, matches = _TIMED.fullmatch(first), [match for line in rest if (match := _TURNS.fullmatch(line))]
    batches = [TurnsBatch(*map(int, match.groups())) for match in matches]
    if (
        entry is None
        or [batch.calls for batch in batches] != [calls // _FEWER_TURNS, *[calls] * repeats]
        or len(matches) != len(rest)
    ):
        raise _unexpected([first, *rest])
    return entry[1], int(entry[2]) if entry[2] else None, batches


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
