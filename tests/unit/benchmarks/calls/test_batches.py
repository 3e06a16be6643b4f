# SPDX-License-Identifier: GPL-2.0-only
"""Is it noticed that a batch is not what the program in the guest says it is?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import cast

import pytest

from orchestrator.benchmarks.calls.call_programs import Calls, Measurement
from orchestrator.benchmarks.calls.measurement import exact_baseline
from orchestrator.errors import EvidenceError
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest

EMPTY, EACH = 29, 422
TICKS_PER_SECOND = 250
CALLS = Calls(["callbench"], 10_000)


class Program:
    """A guest whose program times ``batch_cost(calls)`` a batch, and says what a batch of none costs."""

    def __init__(self, batch_cost: Callable[[int], int], empty: int = EMPTY) -> None:
        self.batch_cost = batch_cost
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
            lines.append(f"sample {number} calls={calls} batches={len(sizes)} tsc={taken} ns={taken} disturbed=0")
        # Of timed calls, the result of the warm-up and one of each batch.
        observed = {"timed": 1 + len(sizes) * repeats, "untimed": untimed}
        lines += [
            f"results {name} observed={seen} failed=0 before={seen} other=0 last=0x0 values={value}"
            for name, seen in observed.items()
            for value in [f"0x0:{seen}" if seen else ""]
        ]
        return CommandResult(tuple(argv), 0, "\n".join(lines).encode(), b"")


def measurement(program: Program, calls: Calls = CALLS, repeats: int = 2) -> Measurement:
    guest = cast("Guest", program)
    return calls.measure_exact(guest, repeats=repeats, ticks_per_second=TICKS_PER_SECOND, time_limit=1.0)


def measured(program: Program) -> tuple[float, ...]:
    return measurement(program).samples


def each_call(cost: Callable[[int], int]) -> Program:
    """Calls of which the first, second, third ... of all costs ``cost(0)``, ``cost(1)``, ``cost(2)`` ..."""
    made = count()
    return Program(lambda calls: EMPTY + sum(cost(next(made)) for _ in range(calls)))


def test_calls_that_cost_the_same_need_no_further_batches() -> None:
    program = Program(lambda calls: EMPTY + EACH * calls)
    assert measured(program) == (EACH, EACH)
    assert program.runs == [(50, 1, 0), (10_000, 5687, 10_000)]


def test_calls_that_differ_from_each_other_are_made_again_in_smaller_batches() -> None:
    """Those of the first fifty cost more; of ten thousand, the batches are as they should be."""
    program = Program(lambda calls: EMPTY + (EACH + (calls == 1)) * calls)
    assert measured(program) == (EACH, EACH)
    assert program.runs[-1] == (10_000, 2_400_000 // (EACH + 1) // 2, 0)


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
    with pytest.raises(EvidenceError, match=r"^in batches of \d+ calls one takes 42[12]\.\d+ instructions, and 42"):
        measured(program)


@pytest.mark.parametrize(
    "program",
    [
        each_call(lambda number: EACH + 30 * (number % 7 == 0)),
        each_call(lambda number: EACH + number % 64),
        each_call(lambda number: EACH + number // 2000),
    ],
    ids=["a slower way now and then", "what the last one left", "a list that grows"],
)
def test_calls_that_differ_have_a_mean_with_its_spread(program: Program) -> None:
    found = measurement(program)
    assert len(set(found.samples)) == 2
    assert program.runs[-1] == (1, 1, 0)
    figures = exact_baseline(found)
    assert figures.value == sum(found.samples) / 2
    assert figures.interval == (min(found.samples) - figures.value, max(found.samples) - figures.value)
    (note,) = figures.notes
    assert note.startswith(
        f"samples lie between {min(found.samples):.10g} and {max(found.samples):.10g} instructions ("
    )


def test_of_calls_that_differ_one_sample_is_no_exact_count() -> None:
    found = measurement(each_call(lambda number: EACH + number % 64), repeats=1)
    assert found.scatter > 0
    assert len(exact_baseline(found).notes) == 1
    assert measurement(Program(lambda calls: EMPTY + EACH * calls), repeats=1).samples == (EACH,)


def test_samples_that_differ_though_calls_do_not_are_refused() -> None:
    """An error of the clock's or of the lab's, and not the calls'."""
    taken = count()
    program = Program(lambda calls: EMPTY + EACH * calls + (next(taken) == 52))
    with pytest.raises(
        EvidenceError, match=r"^samples of one boot differ: 422, 422\.0001; 200 of 200 single calls take 422"
    ):
        measured(program)


def test_samples_that_differ_much_are_refused() -> None:
    program = each_call(lambda number: EACH + number // 10)
    with pytest.raises(
        EvidenceError, match=r"^samples of one boot differ: \d.*; single calls take \d+ to \d+ instr"
    ) as raised:
        measured(program)
    assert "let each call undo what it does" in raised.value.hint


@pytest.mark.parametrize("due", [302, -3], ids=["a time of access", "a way that is warm"])
def test_what_is_due_once_a_tick_is_left_out(due: int) -> None:
    program = Program(lambda calls: EMPTY + EACH * calls + due * (calls > 0 and not program.is_warm))
    found = measurement(program)
    assert (found.samples, found.warming) == ((EACH, EACH), 3)
    (note,) = exact_baseline(found).notes
    assert note.endswith("3 before each batch do not count")


@pytest.mark.parametrize("renew", [None, lambda: None], ids=["one process", "one each"])
@pytest.mark.parametrize("due", [0, 3020])
def test_a_profile_is_of_calls_made_as_the_measured_ones(renew: Callable[[], None] | None, due: int) -> None:
    """What is due once a tick is in both or in neither."""
    program = Program(lambda calls: EMPTY + EACH * calls + due * (calls > 0 and not program.is_warm))
    calls = replace(CALLS, renew=renew)
    found = measurement(program, calls)
    calls.measure_marked(cast("Guest", program), found, time_limit=1.0)
    assert found.warming == (3 if due else 0)
    # Without a renewal, calls before a batch change nothing but what is in the caches.
    assert program.warming == (3 if due or renew is None else 0)


def test_batches_too_small_for_calls_before_them_are_not_made_again() -> None:
    program = Program(lambda calls: EMPTY + 800_000 * calls + 9 * (calls > 1))
    with pytest.raises(EvidenceError, match=r"^in batches of 3 calls one takes"):
        measured(program)
    # Fifty to find the size, the samples, and those in batches of half the size.
    assert [batch for _, batch, _ in program.runs] == [1, 3, 1]
