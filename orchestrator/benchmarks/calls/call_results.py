# SPDX-License-Identifier: GPL-2.0-only
"""What calls return: parse it from the guest's output, compare it with what is expected, and describe it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from orchestrator.catalog.error_names import LARGEST, error_name, error_numbers
from orchestrator.errors import EvidenceError
from orchestrator.plain_text import cut
from orchestrator.probes.attachment import MOST_VALUES, CallResults
from orchestrator.results.parameters import OUTCOME, RESULT_FAILED

SUCCESS = "success"
Expected = int | str
"""What each call must return: ``success``, the name of an error, or a number."""


@dataclass(frozen=True)
class CallOutcome:
    """What the calls of timed processes returned.

    ``timed`` are the last call before the timed ones and the last call of each timed batch, whose result is in the
    registers: to record more would be timed as well. ``untimed`` are the calls after the samples, one by one, if any.
    """

    timed: CallResults
    untimed: CallResults

    @property
    def results(self) -> CallResults:
        return self.timed.followed_by(self.untimed)

    @property
    def uses_up(self) -> bool:
        """Whether calls began to fail while they were timed, and all later ones failed; False without later ones."""
        return self.timed.stopped_succeeding and self.untimed.failed == self.untimed.observed > 0


def joined(outcomes: Sequence[CallOutcome]) -> CallOutcome:
    """The outcome of the calls of several processes, in their order."""
    return CallOutcome(
        reduce(CallResults.followed_by, [outcome.timed for outcome in outcomes]),
        reduce(CallResults.followed_by, [outcome.untimed for outcome in outcomes]),
    )


def check_expected(expected: Expected | None, results: CallResults, which: str) -> None:
    """Raise EvidenceError unless all of ``which`` calls returned what is expected; None accepts anything."""
    if expected is None or not results.observed:
        return
    if expected == SUCCESS:
        right = not results.failed
    else:
        value = -error_numbers()[expected] if isinstance(expected, str) else expected
        right = not results.unlisted and {returned for returned, _ in results.values} == {value}
    if not right:
        raise EvidenceError(f"expected {expected} {_OF_EACH_CALL} {which} ones returned {summary(results)}")


_OF_EACH_CALL = "of each call; the"


def is_unexpected(reason: str) -> bool:
    """Whether a cell has failed because calls did not return what is expected."""
    return reason.startswith("expected ") and f" {_OF_EACH_CALL} " in reason


def named(value: int) -> str:
    """A returned value: an error's name, a decimal number, or from 2**31 on, as addresses are, a hexadecimal one."""
    if value < 0:
        return error_name(-value)
    return str(value) if value < 1 << 31 else f"{value:#x}"


def listed(results: CallResults) -> str:
    """The distinct values, each with the number of calls that returned it: ``0 x 510, EMFILE x 490``."""
    parts = [f"{named(value)} x {calls}" for value, calls in results.values]
    parts += [f"others x {results.unlisted}"] if results.unlisted else []
    return phrase(", ".join(parts))


def summary(results: CallResults) -> str:
    """The outcome in a few words: ``always EBADF``, or the distinct values where some calls failed and some did not."""
    if len(results.values) == 1 and not results.unlisted:
        return f"always {named(results.values[0][0])}"
    return listed(results) if results.failed else f"always success, {_distinct(results)} different results"


def outcome_parameters(outcome: CallOutcome | None, counted: CallResults | None) -> dict[str, str | int]:
    """The parameters of a record. Without ``outcome`` a user's function or program ran, whose exit status is 0."""
    if outcome is None:
        return {"exit_status": 0}
    results = outcome.results
    return {
        OUTCOME: summary(results),
        "result_first": _whole(results.values[0][0]),
        "result_last": _whole(results.last),
        "result_distinct": _distinct(results),
        "result_values": listed(results),
        "result_calls": results.observed,
        RESULT_FAILED: results.failed,
        **({} if counted is None else {"result_counted": listed(counted)}),
    }


def watched_parameters(watched: Mapping[str, CallResults]) -> dict[str, str | int]:
    """The parameters of a record of a user's function: what its system calls returned, failed ones first."""
    if not watched:
        return {}
    ordered = sorted(watched.items(), key=lambda pair: not pair[1].failed)
    return {
        OUTCOME: phrase("; ".join(f"{name} {summary(results)}" for name, results in ordered)),
        "result_calls": sum(results.observed for results in watched.values()),
        RESULT_FAILED: sum(results.failed for results in watched.values()),
    }


def always_failing(watched: Mapping[str, CallResults]) -> Sequence[str]:
    """The system calls that never succeed, and what they return: ``ioctl: always ENOTTY``."""
    return [
        f"{name}: {summary(results)}" for name, results in watched.items() if results.observed == results.failed > 0
    ]


def difference_note(outcome: CallOutcome | None, counted: CallResults | None) -> tuple[str, ...]:
    """A note where calls of the counting pass returned something else than those of the timed pass."""
    if outcome is None or counted is None or counted.endings == outcome.results.endings:
        return ()
    return (f"the counted calls ended otherwise than the timed ones: {listed(counted)}",)


def phrase(text: str) -> str:
    """The text, cut to the length that a record's parameter may have."""
    return cut(text, 200)


def _whole(value: int) -> str:
    return f"{named(value)} ({value})" if value < 0 else named(value)


def _distinct(results: CallResults) -> int | str:
    return f"more than {MOST_VALUES}" if results.unlisted else len(results.values)


NUMBER = r"(\d{1,18})"
WORD = r"0x[0-9a-f]{1,16}"
_LINE = re.compile(  # as images/guest/results.h prints it
    rf"results (timed|untimed|watched) observed={NUMBER} failed={NUMBER} before={NUMBER} other={NUMBER}"
    rf" last=({WORD}) values=((?:{WORD}:\d{{1,18}}(?:,(?!$)|$)){{0,{MOST_VALUES}}})"
)


def parse_results(line: str, name: str, entry: str) -> CallResults:
    """Parse the results line of this ``name``. Raises EvidenceError for another line, or contradictory figures."""
    unexpected = EvidenceError(
        "what the benchmark says of the calls' results is not what was expected", detail=[line[:300]]
    )
    match = _LINE.fullmatch(line)
    if match is None or match[1] != name:
        raise unexpected
    # The 32-bit entries return a 32-bit word; a 64-bit program sign-extends it.
    bits = 64 if entry == "syscall" else 32
    pairs = [part.split(":") for part in match[7].split(",")] if match[7] else []
    values = tuple((_value(word, bits), int(calls)) for word, calls in pairs)
    observed, failed, before_failure, unlisted = (int(match[group]) for group in range(2, 6))
    results = CallResults(observed, failed, before_failure, values, unlisted, _value(match[6], bits))
    calls = dict(values)
    kept_failures = sum(count for value, count in calls.items() if value < 0)
    is_consistent = (
        len(calls) == len(values)
        and all(calls.values())
        and sum(calls.values()) + unlisted == observed
        and (not unlisted or len(calls) == MOST_VALUES)
        and kept_failures <= failed <= kept_failures + unlisted
        and before_failure <= observed - failed
        and (failed > 0 or before_failure == observed)
        and (results.last in calls or unlisted > 0 or not observed)
    )
    if not is_consistent:
        raise unexpected
    return results


def _value(word: str, bits: int) -> int:
    value = int(word, 16) % (1 << bits)
    return value - (1 << bits) if value >= (1 << bits) - LARGEST else value
