# SPDX-License-Identifier: GPL-2.0-only
"""Is it noticed that a batch is not what the program in the guest says it is?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, cast

import pytest
from record_builders import cell, failed, run
from report_text import check_golden_table, printed

from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.benchmarks.calls.call_results import (
    CallOutcome,
    Expected,
    check_expected,
    difference_note,
    joined,
    outcome_parameters,
    parse_results,
    summary,
)
from orchestrator.benchmarks.calls.program_output import parse
from orchestrator.benchmarks.calls.samples import Measurement, exact_baseline
from orchestrator.benchmarks.calls.sampling import Sampling
from orchestrator.catalog.error_names import error_name, error_numbers
from orchestrator.errors import EvidenceError
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import CallResults

EMPTY, EACH = 29, 422


TICKS_PER_SECOND = 250


CALLS = Calls(["callbench"], 10_000)


class Program:
    """A guest whose program times ``batch_cost(calls)`` a batch, and says what a batch of none costs.

    ``in_batch`` is what a call costs that is timed alone, by its place in the batch; without it, a batch of one.
    """

    def __init__(
        self, batch_cost: Callable[[int], int], empty: int = EMPTY, in_batch: Callable[[int], int] | None = None
    ) -> None:
        self.batch_cost = batch_cost
        self.in_batch = in_batch
        self.empty = empty
        self.runs: list[tuple[int, int, int]] = []
        self.is_warm = False
        self.warming = 0

    def run(self, argv: Sequence[str], *, time_limit: float) -> CommandResult:
        options = dict(zip(argv[1::2], argv[2::2], strict=True))
        calls, batch, repeats, untimed = (int(options[name]) for name in ("-n", "-b", "-r", "-u"))
        self.runs.append((calls, batch, untimed))
        self.is_warm = "-w" in options
        self.warming = int(options.get("-w", 0))
        sizes = [batch] * (calls // batch) + ([calls % batch] if calls % batch else [])
        lines = ["entry int80", f"empty tsc={self.empty} ns=1"]
        for number in range(repeats):
            taken = sum(map(self.batch_cost, sizes))
            costs = [self.alone(place % batch) for place in range(calls)] if "-k" in options else []
            taken = sum(costs) or taken
            lines.append(f"sample {number} calls={calls} batches={len(sizes)} tsc={taken} ns={taken} disturbed=0")
            lines += [" ".join(["costs", *(f"{cost}*1" for cost in costs)])] if costs else []
        # Of timed calls, the result of the warm-up and one of each batch.
        observed = {"timed": 1 + len(sizes) * repeats, "untimed": untimed}
        lines += [
            f"results {name} observed={seen} failed=0 before={seen} other=0 last=0x0 values={value}"
            for name, seen in observed.items()
            for value in [f"0x0:{seen}" if seen else ""]
        ]
        return CommandResult(tuple(argv), 0, "\n".join(lines).encode(), b"")

    def alone(self, place: int) -> int:
        """What a call costs at this place of a batch."""
        return self.batch_cost(1) if self.in_batch is None else EMPTY + self.in_batch(place)


def measurement(program: Program, calls: Calls = CALLS, repeats: int = 2) -> Measurement:
    guest = cast("Guest", program)
    return calls.measure_exact(guest, repeats=repeats, ticks_per_second=TICKS_PER_SECOND, time_limit=1.0)


def measured(program: Program) -> tuple[float, ...]:
    return measurement(program).samples


def each_call(cost: Callable[[int], int]) -> Program:
    """Calls of which the first, second, third ... of all costs ``cost(0)``, ``cost(1)``, ``cost(2)`` ..."""
    made = count()
    return Program(lambda calls: EMPTY + sum(cost(next(made)) for _ in range(calls)))


def test_calls_that_cost_the_same_are_looked_at_one_by_one() -> None:
    program = Program(lambda calls: EMPTY + EACH * calls)
    assert measured(program) == (EACH, EACH)
    assert program.runs == [(50, 1, 0), (10_000, 5687, 10_000), (8192, 2_400_000 // (EACH + 30), 0)]


def test_calls_that_cost_more_in_batches_of_one_are_exact_in_larger_ones() -> None:
    program = Program(lambda calls: EMPTY + (EACH + (calls == 1)) * calls, in_batch=lambda place: EACH)
    assert measured(program) == (EACH, EACH)


@pytest.mark.parametrize(
    "program",
    [
        Program(lambda calls: EMPTY + EACH * (calls - (calls > 1))),
        Program(lambda calls: EMPTY + EACH * calls, empty=EMPTY + 1),
        Program(lambda calls: EMPTY + EACH * calls + (calls > 1)),
    ],
    ids=["a call fewer", "another empty batch", "an instruction more"],
)
def test_batches_that_are_not_their_calls_are_refused(program: Program) -> None:
    with pytest.raises(EvidenceError, match=r"^samples of one boot, .*, are not what their calls take: .* 42[12]\n"):
        measured(program)


GROWING = (
    ("what the last one left", lambda number: EACH + number % 4999),
    ("a list", lambda number: EACH + number // 2000),
)


@pytest.mark.parametrize("cost", [cost for _, cost in GROWING], ids=[name for name, _ in GROWING])
def test_calls_that_differ_have_a_mean_with_its_spread(cost: Callable[[int], int]) -> None:
    found = measurement(each_call(cost))
    assert found.varies
    assert len(set(found.samples)) == 2
    figures = exact_baseline(found)
    assert figures.value == sum(found.samples) / 2
    assert figures.interval == (min(found.samples) - figures.value, max(found.samples) - figures.value)
    (note,) = figures.notes
    low, high = min(found.samples), max(found.samples)
    assert note.startswith("calls vary: ")
    assert f"samples lie between {low:.10g} and {high:.10g} instructions (" in note


@pytest.mark.parametrize("calls", [100, 5000, 10_000])
@pytest.mark.parametrize("period", [2, 7, 16, 48, 64, 100])
def test_what_each_nth_call_does_is_in_samples_of_whole_periods_in_proportion(period: int, calls: int) -> None:
    """Sixteen calls of 716 instructions, of which one does 1240 more."""
    program = each_call(lambda number: EACH + 1240 * (number % period == 0))
    asked = replace(CALLS, calls=calls)
    found = measurement(program, asked, repeats=4)
    assert found.samples == ((EACH * period + 1240) / period,) * 4
    assert not found.varies
    assert (found.calls % period, found.batch % period, found.cycle) == (0, 0, {EACH: period - 1, EACH + 1240: 1})
    (note,) = exact_baseline(found).notes
    assert note.startswith(f"the costs of calls repeat after {period}: {period - 1} take")
    asked.measure_marked(cast("Guest", program), found, time_limit=1.0)
    assert (program.runs[-1][0] % period, program.runs[-1][1] % period) == (0, 0)
    dearer = asked.measure_cheaper(cast("Guest", program), found, time_limit=1.0)
    assert set(dearer) == set(found.samples)


def test_two_periods_at_once_repeat_after_both() -> None:
    program = each_call(lambda number: EACH + 1240 * (number % 16 == 0) + 300 * (number % 24 == 7))
    found = measurement(program)
    assert set(found.samples) == {EACH + 1240 / 16 + 300 / 24}
    assert found.cycle.total() == 48


def test_a_period_goes_on_after_what_is_due_once_a_tick() -> None:
    made = count()

    def batch(calls: int) -> int:
        own = sum(EACH + 1240 * (next(made) % 16 == 0) for _ in range(calls + program.warming))
        return EMPTY + own - program.warming * EACH + 302 * (calls > 0 and not program.is_warm)

    program = Program(batch)
    program.in_batch = lambda place: EACH + 1240 * (next(made) % 16 == 0) + 302 * (place == 0 and not program.is_warm)
    assert measurement(program).varies  # the simulated warming calls are timed


@pytest.mark.parametrize("period", [1000, 2500, 5000])
def test_what_each_thousandth_call_does_is_no_exact_count_though_samples_are_equal(period: int) -> None:
    """Too rarely for two periods in a batch, and equally often in each sample."""
    calls = replace(CALLS, calls=5000)
    program = each_call(lambda number: 6000 + 1240 * (number % period == 0))
    found = measurement(program, calls, repeats=4)
    assert len(found.costs) == 2
    assert found.varies


def test_one_sample_of_varying_calls_is_no_exact_count() -> None:
    found = measurement(each_call(lambda number: EACH + number % 4999), repeats=1)
    assert found.scatter > 0
    assert len(exact_baseline(found).notes) == 1
    assert measurement(Program(lambda calls: EMPTY + EACH * calls), repeats=1).samples == (EACH,)


def test_costs_that_are_not_of_all_calls_are_refused() -> None:
    sampling = Sampling(3, 3, 1, is_single=True)
    head = "entry function\nempty tsc=29 ns=1\nsample 0 calls=3 batches=1 tsc=1353 ns=1353 disturbed=0\n"
    found = parse(f"{head}costs 451*2 451*1\n", sampling)
    assert (found.costs, found.samples) == ({422: 3}, (422.0,))
    for costs in ("costs 451*2", "costs 451*2 451", "", "costs 451*3\ncosts 451*3"):
        with pytest.raises(EvidenceError, match="is not what was expected"):
            parse(f"{head}{costs}\n", sampling)


def test_samples_that_differ_though_calls_do_not_are_refused() -> None:
    """An error of the clock's or of the lab's, and not the calls'."""
    taken = count()
    program = Program(lambda calls: EMPTY + EACH * calls + (next(taken) == 52))
    with pytest.raises(
        EvidenceError,
        match=r"^samples of one boot, 422, 422\.0001, are not what their calls take: each of 8192, timed one by one, 4",
    ):
        measured(program)


@pytest.mark.parametrize("due", [302, -3], ids=["a time of access", "a way that is warm"])
def test_work_due_once_a_tick_is_left_out(due: int) -> None:
    program = Program(lambda calls: EMPTY + EACH * calls + due * (calls > 0 and not program.is_warm))
    program.in_batch = lambda place: EACH + due * (place == 0 and not program.is_warm)
    found = measurement(program)
    assert (found.samples, found.warming) == ((EACH, EACH), 3)
    (note,) = exact_baseline(found).notes
    assert note.endswith("3 before each batch are not counted")


def test_work_due_after_some_ticks_is_left_out_for_calls_known_for_it() -> None:
    batches = count()
    program = Program(lambda calls: EMPTY + EACH * calls + 222 * (next(batches) % 26 == 0 and not program.is_warm))
    assert measurement(program).scatter > 0
    found = measurement(program, replace(CALLS, depends_on_ticks=True))
    assert (found.samples, found.scatter) == ((EACH, EACH), 0)


@pytest.mark.parametrize("renew", [None, lambda: None], ids=["one process", "one each"])
@pytest.mark.parametrize("due", [0, 3020])
def test_a_profile_is_of_calls_made_as_the_measured_ones(renew: Callable[[], None] | None, due: int) -> None:
    """What is due once a tick is in both or in neither."""
    program = Program(lambda calls: EMPTY + EACH * calls + due * (calls > 0 and not program.is_warm))
    program.in_batch = lambda place: EACH + due * (place == 0 and not program.is_warm)
    calls = replace(CALLS, renew=renew)
    found = measurement(program, calls)
    calls.measure_marked(cast("Guest", program), found, time_limit=1.0)
    assert found.warming == (3 if due else 0)
    # Without a renewal, calls before a batch change nothing but what is in the caches.
    assert program.warming == (3 if due or renew is None else 0)


def test_batches_too_small_for_calls_before_them_are_not_made_again() -> None:
    program = Program(lambda calls: EMPTY + 800_000 * calls + 9 * (calls > 1))
    with pytest.raises(
        EvidenceError, match=r"^samples of one boot, 800002\.9997, 800002\.9997, are not what"
    ) as raised:
        measured(program)
    assert raised.value.detail == ("samples are of batches of 3 calls",)
    # Fifty to find the size, the samples, and each call alone.
    assert [batch for _, batch, _ in program.runs] == [1, 3, 2]


# Is what calls returned read, put into words, compared with what is required, and shown?

GOOD = "results untimed observed=10 failed=4 before=6 other=0 last=0xffffffe8 values=0x0:6,0xffffffe8:4"


def returned(*values: int) -> CallResults:
    """The results of calls that returned these."""
    results = CallResults(0, 0, 0, (), 0, 0)
    for value in values:
        call_results = CallResults(1, int(value < 0), int(value >= 0), ((value, 1),), 0, value)
        results = results.followed_by(call_results)
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
    outcome = CallOutcome(returned(*widest), returned(*widest, -9))
    parameters = outcome_parameters(outcome, returned(-9))
    assert cell("none", parameters=parameters).parameters == parameters
    assert parameters["result_first"] == "0xffffffffffffe000"
    assert parameters["result_last"] == "EBADF (-9)"
    assert (parameters["result_calls"], parameters["result_failed"]) == (19, 1)
    assert parameters["result_distinct"] == "more than 8"
    assert parameters["result_counted"] == "EBADF x 1"
    assert outcome_parameters(None, None) == {"exit_status": 0}


def test_results_of_several_processes_are_joined() -> None:
    outcome, other_outcome = CallOutcome(returned(0), returned(0, -9)), CallOutcome(returned(1), returned(-9))
    both = joined([outcome, other_outcome])
    assert both == CallOutcome(returned(0, 1), returned(0, -9, -9))
    assert both.results == returned(0, 1, 0, -9, -9)
    assert both.results.before_failure == 3
    assert joined([outcome]) == outcome


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
    assert CallOutcome(returned(*timed), returned(*untimed)).uses_up is uses_up


def test_counted_calls_that_end_otherwise_are_noted() -> None:
    outcome = CallOutcome(returned(3), returned(4))
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
    check_golden_table("failing_calls", record)


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
