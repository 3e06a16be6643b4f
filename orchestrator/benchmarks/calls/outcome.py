# SPDX-License-Identifier: GPL-2.0-only
"""The outcome of a cell's calls: what they returned, in words, and whether that is what the experiment requires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from orchestrator.catalog.errnos import error_name, error_numbers
from orchestrator.errors import EvidenceError
from orchestrator.probes.call_results import MOST_VALUES, CallResults

SUCCESS = "success"
Expected = int | str
"""What each call must return: ``success``, an error by its name, or a number."""

_LARGEST_DECIMAL = (1 << 31) - 1
_LONGEST_PHRASE = 200


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
        """All observed calls."""
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
    return str(value) if value <= _LARGEST_DECIMAL else f"{value:#x}"


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
    """The parameters of a record: of ``outcome``, and of the counting pass where its calls' results are known.

    Without ``outcome`` the cell ran a user's function or program, whose exit status is 0: with another one it failed.
    """
    if outcome is None:
        return {"exit_status": 0}
    results = outcome.results
    parameters: dict[str, str | int] = {
        "outcome": summary(results),
        "result_first": _whole(results.values[0][0]),
        "result_last": _whole(results.last),
        "result_distinct": _distinct(results),
        "result_values": listed(results),
        "result_calls": results.observed,
        "result_failed": results.failed,
    }
    if counted is not None:
        parameters["result_counted"] = listed(counted)
    return parameters


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
    return text if len(text) <= _LONGEST_PHRASE else f"{text[: _LONGEST_PHRASE - 4]} ..."


def _whole(value: int) -> str:
    return f"{named(value)} ({value})" if value < 0 else named(value)


def _distinct(results: CallResults) -> int | str:
    return f"more than {MOST_VALUES}" if results.other else len(results.values)
