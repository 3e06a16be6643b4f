# SPDX-License-Identifier: GPL-2.0-only
"""Is what calls returned read, put into words, compared with what is required, and shown?"""

from __future__ import annotations

from typing import Any

import pytest
from record_builders import cell, failed, run
from report_text import check_golden, printed

from orchestrator.benchmarks.calls.call_programs import (
    Expected,
    Outcome,
    check_expected,
    difference_note,
    joined,
    outcome_parameters,
    parse_results,
    summary,
)
from orchestrator.catalog.words import error_name, error_numbers
from orchestrator.errors import EvidenceError
from orchestrator.probes.attachment import CallResults

GOOD = "results untimed observed=10 failed=4 before=6 other=0 last=0xffffffe8 values=0x0:6,0xffffffe8:4"


def returned(*values: int) -> CallResults:
    """The results of calls that returned these."""
    results = CallResults(0, 0, 0, (), 0, 0)
    for value in values:
        one = CallResults(1, int(value < 0), int(value >= 0), ((value, 1),), 0, value)
        results = results.followed_by(one)
    return results


# --- what the program prints ----------------------------------------------------------------------


def test_results_are_read() -> None:
    assert parse_results(GOOD, "untimed", "sysenter") == CallResults(10, 4, 6, ((0, 6), (-24, 4)), 0, -24)
    nothing = "results untimed observed=0 failed=0 before=0 other=0 last=0x0 values="
    assert parse_results(nothing, "untimed", "int80") == CallResults(0, 0, 0, (), 0, 0)


@pytest.mark.parametrize(
    ("word", "entry", "value"),
    [
        ("0xfffff001", "sysenter", -4095),
        ("0xfffff000", "sysenter", 0xFFFFF000),  # an address
        ("0xfffff001", "syscall", 0xFFFFF001),
        ("0xfffffffffffff001", "syscall", -4095),
        ("0xfffffffffffff000", "syscall", 0xFFFFFFFFFFFFF000),
        ("0xfffffffffffff001", "int80", -4095),  # extended to 64 bits by the program
        ("0xffffffffb7f00000", "int80", 0xB7F00000),
        ("0x7fffffff", "int80", 0x7FFFFFFF),
    ],
)
def test_an_error_is_a_value_above_all_addresses_of_the_entry(word: str, entry: str, value: int) -> None:
    failures = int(value < 0)
    counts = f"observed=1 failed={failures} before={1 - failures} other=0"
    results = parse_results(f"results timed {counts} last={word} values={word}:1", "timed", entry)
    assert (results.last, results.values) == (value, ((value, 1),))


@pytest.mark.parametrize(
    "line",
    [
        "",
        GOOD + " ",
        GOOD + ",",
        GOOD.replace("untimed", "timed"),
        GOOD.replace("untimed", "counted"),
        GOOD.replace("observed=10", "observed=11"),
        GOOD.replace("observed=10", f"observed={'1' * 19}"),
        GOOD.replace("failed=4", "failed=3"),
        GOOD.replace("failed=4", "failed=5"),
        GOOD.replace("before=6", "before=7"),
        GOOD.replace("other=0", "other=1"),
        GOOD.replace("last=0xffffffe8", "last=0x1"),
        GOOD.replace("last=0xffffffe8", "last=-24"),
        GOOD.replace("0x0:6", "0x0:6,0x1:0"),
        GOOD.replace("0x0:6", "0x0:3,0x0:3"),
        GOOD.replace("0x0:6", ",0x0:6"),
        GOOD.replace("0x0:6", ",".join(f"{value:#x}:1" for value in range(8))),
        "results untimed observed=5 failed=0 before=4 other=0 last=0x0 values=0x0:5",
    ],
)
def test_anything_else_is_refused_within_bounds(line: str) -> None:
    for text in (line, line + "x" * 10_000):
        with pytest.raises(EvidenceError, match="not what was expected") as refused:
            parse_results(text, "untimed", "int80")
        assert len("".join(refused.value.detail)) <= 300


# --- in words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("results", "text"),
    [
        (returned(-9, -9), "always EBADF"),
        (returned(0), "always 0"),
        (returned(0xB7F00000), "always 0xb7f00000"),
        (returned(-4000), "always errno 4000"),
        (returned(3, 4, 5), "always success, 3 different results"),
        (returned(*range(20)), "always success, more than 8 different results"),
        (returned(0, 0, -24), "0 x 2, EMFILE x 1"),
        (returned(*range(10), -24), "0 x 1, 1 x 1, 2 x 1, 3 x 1, 4 x 1, 5 x 1, 6 x 1, 7 x 1, others x 3"),
    ],
)
def test_an_outcome_has_a_few_words(results: CallResults, text: str) -> None:
    assert summary(results) == text


def test_errors_have_the_kernels_names() -> None:
    """include/uapi/asm-generic/errno.h: the second names are of the C library, or defined as the first ones."""
    assert [error_name(number) for number in (9, 11, 35, 95)] == ["EBADF", "EAGAIN", "EDEADLK", "EOPNOTSUPP"]
    assert error_numbers()["EWOULDBLOCK"] == error_numbers()["EAGAIN"] == 11


def test_parameters_fit_into_a_record() -> None:
    widest = [0xFFFFFFFFFFFFE000 + number for number in range(9)]
    outcome = Outcome(returned(*widest), returned(*widest, -9))
    parameters = outcome_parameters(outcome, returned(-9))
    assert cell("none", parameters=parameters).parameters == parameters
    assert parameters["result_first"] == "0xffffffffffffe000"
    assert parameters["result_last"] == "EBADF (-9)"
    assert (parameters["result_calls"], parameters["result_failed"]) == (19, 1)
    assert parameters["result_distinct"] == "more than 8"
    assert parameters["result_counted"] == "EBADF x 1"
    assert outcome_parameters(None, None) == {"exit_status": 0}


def test_results_of_several_processes_are_joined() -> None:
    one, other = Outcome(returned(0), returned(0, -9)), Outcome(returned(1), returned(-9))
    both = joined([one, other])
    assert both == Outcome(returned(0, 1), returned(0, -9, -9))
    assert both.results == returned(0, 1, 0, -9, -9)
    assert both.results.before_failure == 3
    assert joined([one]) == one


@pytest.mark.parametrize(
    ("timed", "untimed", "uses_up"),
    [
        ([0, 0, -24, -24], [-24, -24], True),
        ([3, -24], [-24], True),
        ([0, 0], [0, -24], False),  # behind the timed calls
        ([-24, -24], [-24], False),  # before them
        ([0, -11], [0, -11], False),  # now and then
        ([0, -11, 0], [-11], False),
        ([0, 0], [0], False),
        ([0, -24], [], False),  # not known
    ],
)
def test_a_resource_is_used_up_where_calls_fail_from_one_on(
    timed: list[int], untimed: list[int], *, uses_up: bool
) -> None:
    assert Outcome(returned(*timed), returned(*untimed)).uses_up is uses_up


def test_counted_calls_that_end_otherwise_are_noted() -> None:
    outcome = Outcome(returned(3), returned(4))
    assert difference_note(outcome, returned(5, 6)) == ()  # other descriptors
    assert difference_note(outcome, None) == ()
    assert difference_note(None, None) == ()
    assert difference_note(outcome, returned(3, -24)) == (
        "the counted calls ended otherwise than the timed ones: 3 x 1, EMFILE x 1",
    )


# --- required -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "right", "wrong"),
    [
        ("success", returned(*range(20)), returned(0, -9)),
        ("EBADF", returned(-9, -9), returned(-9, -2)),
        ("EWOULDBLOCK", returned(-11), returned(11)),
        (0, returned(0), returned(0, 1)),
        (16, returned(16), returned(-16)),
        (0, returned(), returned(0, *range(1, 20))),
    ],
)
def test_each_call_must_return_what_is_required(expected: Expected, right: CallResults, wrong: CallResults) -> None:
    check_expected(expected, right, "timed")
    check_expected(None, wrong, "timed")
    with pytest.raises(EvidenceError, match=f"expected {expected} of each call; the timed ones returned "):
        check_expected(expected, wrong, "timed")


# --- shown ----------------------------------------------------------------------------------------


def shown(outcome: str, failures: int, **changes: Any) -> dict[str, Any]:
    """The parameters of a cell whose calls ended so."""
    return {"call": "close", "arguments": "[-1]", "outcome": outcome, "result_failed": failures, **changes}


def test_a_call_that_always_fails_is_said_above_the_table() -> None:
    parameters = shown("always EBADF", 5003)
    record = run(*(cell(probe, benchmark="syscall", parameters=parameters) for probe in ("none", "kprobe")))
    check_golden("failing_calls", record)


def test_cells_that_differ_in_their_outcome_are_named() -> None:
    text = printed(
        run(
            cell("none", parameters=shown("always 0", 0)),
            cell("kprobe", parameters=shown("always EINTR", 5003)),
            failed("djprobe", "expected 0 of each call"),
        )
    )
    above, below = text.split("gtodbench(sample1)")
    assert "close(-1): always 0 (linux-debian-686)." in above
    assert "close(-1): always EINTR (kprobes)." in above
    assert "always" not in below


def test_a_call_that_succeeds_is_said_below_the_table() -> None:
    parameters = shown("always 0", 0, call="gettimeofday", arguments='[{"buffer": 16}, 0]')
    text = printed(run(*(cell(probe, parameters=parameters) for probe in ("none", "kprobe"))))
    assert 'Instructions are a count, not time.\ngettimeofday({"buffer": 16}, 0): always 0.\n' in text


def test_results_that_differ_from_cell_to_cell_are_no_news() -> None:
    text = printed(
        run(
            cell("none", parameters=shown("always 57", 0, call="getpid", arguments="[]")),
            cell("kprobe", parameters=shown("always 58", 0, call="getpid", arguments="[]")),
        )
    )
    assert "getpid(): always success, with different results." in text
