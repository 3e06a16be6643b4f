# SPDX-License-Identifier: GPL-2.0-only
"""Is it noticed that a batch is not what the program in the guest says it is?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.errors import EvidenceError
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest

EMPTY, EACH = 29, 422
TICKS_PER_SECOND = 250


class Program:
    """A guest whose program times ``batch_cost(calls)`` a batch, and says what a batch of none costs."""

    def __init__(self, batch_cost: Callable[[int], int], empty: int = EMPTY) -> None:
        self.batch_cost = batch_cost
        self.empty = empty
        self.runs: list[tuple[int, int, int]] = []

    def run(self, argv: Sequence[str], *, time_limit: float) -> CommandResult:
        options = dict(zip(argv[1::2], argv[2::2], strict=True))
        calls, batch, repeats, untimed = (int(options[name]) for name in ("-n", "-b", "-r", "-u"))
        self.runs.append((calls, batch, untimed))
        sizes = [batch] * (calls // batch) + ([calls % batch] if calls % batch else [])
        taken = sum(map(self.batch_cost, sizes))
        lines = ["entry int80", f"empty tsc={self.empty} ns=1"]
        lines += [
            f"sample {number} calls={calls} batches={len(sizes)} tsc={taken} ns={taken} disturbed=0"
            for number in range(repeats)
        ]
        # Of timed calls, the result of the warm-up and one of each batch.
        observed = {"timed": 1 + len(sizes) * repeats, "untimed": untimed}
        lines += [
            f"results {name} observed={seen} failed=0 before={seen} other=0 last=0x0 values={value}"
            for name, seen in observed.items()
            for value in [f"0x0:{seen}" if seen else ""]
        ]
        return CommandResult(tuple(argv), 0, "\n".join(lines).encode(), b"")


def measured(program: Program) -> tuple[float, ...]:
    calls = Calls(["callbench"], 10_000)
    guest = cast("Guest", program)
    return calls.measure_exact(guest, repeats=2, ticks_per_second=TICKS_PER_SECOND, time_limit=1.0).samples


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


def test_what_the_first_call_of_a_batch_pays_for_all_is_no_part_of_a_call() -> None:
    """One call before each batch pays for it, and only where the batches are not their calls without."""
    program = Program(lambda calls: EMPTY + EACH * calls + 230 * (calls > 0))
    warmed = Program(lambda calls: EMPTY + EACH * calls)

    class Warmed(Program):
        def run(self, argv: Sequence[str], *, time_limit: float) -> CommandResult:
            return (warmed if "-w" in argv else program).run(argv, time_limit=time_limit)

    assert measured(Warmed(program.batch_cost)) == (EACH, EACH)
    assert [len(one.runs) for one in (program, warmed)] == [3, 2]
