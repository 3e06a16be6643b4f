# SPDX-License-Identifier: GPL-2.0-only
"""Is what a benchmark prints turned into the right samples, and anything else refused?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.benchmarks.calls.call_programs import Measurement, Outcome, Sampling, parse, parse_called, system_call
from orchestrator.errors import EvidenceError
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Called, CallResults

# 5000 calls of 409 instructions in two batches that cost 17 each.
GOOD = """\
entry sysenter number=78
empty tsc=17 ns=1093
sample 0 calls=5000 batches=2 tsc=2045034 ns=2047186 disturbed=1
sample 1 calls=5000 batches=2 tsc=2045034 ns=2047186 disturbed=0
results timed observed=5 failed=0 before=5 other=0 last=0x0 values=0x0:5
results untimed observed=5000 failed=0 before=5000 other=0 last=0x0 values=0x0:5000
"""


def results(timed: int, untimed: int) -> str:
    """The lines on calls that all returned 0."""
    return "\n".join(
        f"results {name} observed={calls} failed=0 before={calls} other=0 last=0x0 values={value}"
        for name, calls in (("timed", timed), ("untimed", untimed))
        for value in [f"0x0:{calls}" if calls else ""]
    )


def asked(calls: int, repeats: int) -> Sampling:
    """What a program was asked to do, in batches of any size."""
    return Sampling(calls, calls, repeats, calls)


def succeeded(calls: int) -> CallResults:
    """The results of calls that all returned 0."""
    return CallResults(calls, 0, calls, ((0, calls),), 0, 0)


def test_samples_are_instructions_a_call() -> None:
    outcome = Outcome(succeeded(5), succeeded(5000))
    assert parse(GOOD, asked(5000, 2)) == Measurement(
        samples=(409.0, 409.0),
        nanoseconds=(409.0, 409.0),
        entry="sysenter",
        calls=5000,
        batches=4,
        disturbed=1,
        number=78,
        outcome=outcome,
        batch=5000,
        empty=17,
        ticks=((2, 2045034), (2, 2045034)),
    )


def test_calls_behind_the_samples_are_as_many_as_asked_for() -> None:
    alone = Sampling(5000, 2500, 2)
    output = GOOD.replace("observed=5000 failed=0 before=5000", "observed=0 failed=0 before=0").replace("0x0:5000", "")
    measured = parse(output, alone)
    assert measured.samples == (409.0, 409.0)
    assert measured.outcome is not None
    assert (measured.outcome.untimed.observed, measured.outcome.results) == (0, succeeded(5))
    for text, wanted in ((GOOD, alone), (output, asked(5000, 2))):
        with pytest.raises(EvidenceError, match="not what was expected"):
            parse(text, wanted)


def test_of_a_function_no_results_are_known() -> None:
    output = GOOD.replace("sysenter number=78", "function")
    measured = parse(output[: output.index("results")], asked(5000, 2))
    assert (measured.samples, measured.number, measured.outcome) == ((409.0, 409.0), None, None)
    with pytest.raises(EvidenceError, match="not what was expected"):
        parse(output, asked(5000, 2))


def test_a_sample_need_not_be_a_whole_number() -> None:
    output = "entry int80\nempty tsc=10 ns=1\nsample 0 calls=4 batches=1 tsc=1013 ns=1 disturbed=0\n" + results(2, 4)
    assert parse(output, asked(4, 1)).samples == (250.75,)


def test_an_odd_sample_is_not_evened_out() -> None:
    output = GOOD.replace("tsc=2045034", "tsc=2045035", 1)
    assert parse(output, asked(5000, 2)).samples == (409.0002, 409.0)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "\n",
        "callbench: gettimeofday failed\n",
        GOOD.replace("entry sysenter number=78\n", ""),
        GOOD.replace("number=78", "number="),
        GOOD.replace("empty tsc=17 ns=1093\n", ""),
        GOOD.replace("sysenter", "vdso"),
        GOOD + GOOD.splitlines()[-1],
        GOOD.replace("results timed observed=5 failed=0 before=5", "results timed observed=4 failed=0 before=4"),
        GOOD.replace("0x0:5000", "0x0:4999"),
        GOOD.replace("results untimed", "results timed"),
        GOOD + "something else\n",
        GOOD + "\n",
        "\n" + GOOD,
        GOOD[: GOOD.rindex("sample")],
        GOOD[:-2],
        GOOD[: GOOD.index("results")],
        GOOD[: GOOD.rindex("results")],
        GOOD.replace("sample 1", "sample 0"),
        GOOD.replace("sample 1", "sample 2"),
        GOOD.replace("calls=5000", "calls=4999"),
        GOOD.replace("batches=2", "batches=0"),
        GOOD.replace("tsc=2045034", "tsc=-1"),
        GOOD.replace("tsc=2045034", "tsc=1e6"),
        GOOD.replace("tsc=2045034", "tsc=33"),
        GOOD.replace("tsc=2045034", f"tsc={'9' * 19}"),
        GOOD.replace("sample 1", f"sample {'1' * 5000}"),
        GOOD.replace("disturbed=0", "disturbed="),
        GOOD.replace("tsc=17", "tsc=x"),
        GOOD.replace(" ns", "  ns"),
    ],
)
def test_anything_but_a_whole_answer_is_refused(output: str) -> None:
    with pytest.raises(EvidenceError, match="not what was expected"):
        parse(output, asked(5000, 2))


def test_samples_of_another_run_are_refused() -> None:
    for calls, repeats in ((5000, 1), (5000, 3), (1000, 2)):
        with pytest.raises(EvidenceError):
            parse(GOOD, asked(calls, repeats))


def test_a_refusal_quotes_what_was_printed_within_bounds() -> None:
    with pytest.raises(EvidenceError) as caught:
        parse("nonsense\n" * 1000, asked(5000, 2))
    assert caught.value.detail == ("nonsense",) * 10


counts = st.integers(1, 10**6)


@given(counts, st.lists(counts, min_size=1, max_size=5), st.integers(0, 10**4), st.integers(1, 1000), counts)
def test_what_the_program_prints_is_read_back(
    calls: int, instructions: list[int], fixed: int, batches: int, disturbed: int
) -> None:
    lines = ["entry syscall", f"empty tsc={fixed} ns=0"]
    lines += [
        f"sample {i} calls={calls} batches={batches} tsc={calls * each + batches * fixed} ns=1 disturbed={disturbed}"
        for i, each in enumerate(instructions)
    ]
    lines.append(results(1 + batches * len(instructions), calls))
    measured = parse("\n".join(lines), asked(calls, len(instructions)))
    assert measured.samples == tuple(map(float, instructions))
    assert measured.batches == batches * len(instructions)
    assert measured.disturbed == disturbed * len(instructions)


@given(st.lists(st.tuples(st.integers(0, len(GOOD)), st.text("0123456789 =-xe\n\0ä", max_size=3)), max_size=4))
def test_a_damaged_output_is_read_or_refused(damage: list[tuple[int, str]]) -> None:
    text = GOOD
    for place, inserted in damage:
        text = text[:place] + inserted + text[place + 1 :]
    try:
        measured = parse(text, asked(5000, 2))
    except EvidenceError:
        return
    assert len(measured.samples) == 2
    assert min(measured.samples) > 0
    assert measured.entry in ("int80", "sysenter", "syscall")


CALLED = (
    "entry int80\ncalled calls=1000 pid=28 result=0x0 number=78 arguments=0x8050228,0x0,0x0,0x0,0x0,0x5\n"
    + results(1, 1000).splitlines()[1]
)
FUNCTION = "entry function\ncalled calls=7 pid=28 result=0x0\n"


def test_calls_that_were_not_timed_are_read() -> None:
    arguments = (0x8050228, 0, 0, 0, 0, 5)
    assert parse_called(CALLED, 1000) == Called("int80", 1000, frozenset({28}), 78, arguments, 0, succeeded(1000))
    assert parse_called(FUNCTION, 7) == Called("function", 7, frozenset({28}))


@pytest.mark.parametrize(
    "output",
    [
        "",
        "entry int80\n",
        CALLED.replace("entry int80\n", ""),
        CALLED.replace("int80", "vdso"),
        CALLED + "\nmore\n",
        CALLED[: CALLED.index("results")],
        CALLED.replace("observed=1000 failed=0 before=1000", "observed=999 failed=0 before=999"),
        CALLED.replace("calls=1000", "calls=999"),
        CALLED.replace("pid=28", "pid=-28"),
        CALLED.replace("pid=28", f"pid={'1' * 19}"),
        CALLED.replace("0x8050228", "8050228"),
        CALLED.replace("0x8050228", "0x8050228g"),
        CALLED.replace("0x8050228", f"0x{'f' * 17}"),
        CALLED.replace("0x0", "(null)"),
        CALLED.replace("untimed", "timed"),
        CALLED.replace(",0x5", ""),
        CALLED.replace("0x5", "0x5,0x6"),
        CALLED.replace(" result=0x0", ""),
        CALLED.replace(" number=78", ""),
        CALLED.replace("int80", "function"),
        CALLED.replace("78", "78 "),
        CALLED.replace("called calls", "called  calls"),
    ],
)
def test_anything_else_about_them_is_refused(output: str) -> None:
    with pytest.raises(EvidenceError, match="not what was expected"):
        parse_called(output, 1000)


class Programs:
    """A guest in which the program prints one of these after the other, the last again and again."""

    def __init__(self, *outputs: str) -> None:
        self.outputs = list(outputs)
        self.asked: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], *, time_limit: float) -> CommandResult:
        del time_limit
        self.asked.append(argv)
        output = self.outputs.pop(0) if len(self.outputs) > 1 else self.outputs[0]
        return CommandResult(tuple(argv), 0, output.encode(), b"")


def test_a_baseline_is_of_the_system_call_that_was_asked_for() -> None:
    """No hits prove it: a program that makes another call is told by the number that its loop loads."""
    right, wrong = (system_call(number, [], entry="auto", word_size=4, calls=50) for number in (78, 20))
    head = "entry int80 number=78\nempty tsc=10 ns=1\nsample 0 calls=50 batches=50 tsc=1000 ns=1000 disturbed=0\n"
    output, sized = head + results(51, 50), head + results(51, 0)
    guest = cast(Guest, Programs(sized, output))
    assert right.measure_one(guest, ticks_per_second=250, time_limit=1.0).number == 78
    for program in (sized, sized.replace(" number=78", "")):
        guest = cast(Guest, Programs(program))
        with pytest.raises(EvidenceError, match=r"^the program made system call (78|None), not 20$"):
            wrong.measure_one(guest, ticks_per_second=250, time_limit=1.0)
    counted = cast(Guest, Programs(CALLED))
    assert right.call(counted, 1000, caller=None, time_limit=1.0).number == 78
    with pytest.raises(EvidenceError, match=r"^the program made system call 78, not 20$"):
        wrong.call(counted, 1000, caller=None, time_limit=1.0)


def test_the_first_call_to_fail_is_looked_for_within_bounds() -> None:
    """A sample has up to a million calls, and a cell a hundred samples: as many once more would take hours."""
    calls = 1_000_000
    head = "entry int80 number=78\nempty tsc=10 ns=1\n"
    guest = Programs(
        f"{head}sample 0 calls=50 batches=50 tsc=1000 ns=1000 disturbed=0\n{results(51, 0)}",
        f"{head}sample 0 calls={calls} batches=1 tsc=9000000 ns=1 disturbed=0\n"
        "results timed observed=2 failed=1 before=1 other=0 last=0xffffffe8 values=0x0:1,0xffffffe8:1\n"
        f"results untimed observed={calls} failed={calls} before=0 other=0 last=0xffffffe8 values=0xffffffe8:{calls}\n",
    )
    program = system_call(78, [], entry="auto", word_size=4, calls=calls)
    with pytest.raises(EvidenceError):
        program.measure_one(cast(Guest, guest), ticks_per_second=250, time_limit=1.0)
    assert guest.asked[-1][-2:] == ["-c", "100000"]


class BusyHost(Programs):
    """Programs beside so much else that only batches of up to ``largest`` calls are not interrupted.

    The ticks that the guest has ``missed`` fall into the first so many tries, however small they are.
    """

    def __init__(self, largest: int, *outputs: str, missed: int = 0) -> None:
        super().__init__(*outputs)
        self.largest, self.missed = largest, missed

    def run(self, argv: Sequence[str], *, time_limit: float) -> CommandResult:
        self.missed -= 1
        if self.missed < 0 and int(argv[argv.index("-b") + 1]) <= self.largest:
            return super().run(argv, time_limit=time_limit)
        self.asked.append(argv)
        complaint = b"callbench: no batch without an interrupt, a page fault or another task in 200 attempts: ...\n"
        return CommandResult(tuple(argv), 2, b"", complaint)


def test_batches_are_smaller_where_they_are_interrupted() -> None:
    head = "entry int80 number=78\nempty tsc=10 ns=1\nsample 0 calls=50 batches=50 tsc=1000 ns=1000 disturbed=0\n"
    program = system_call(78, [], entry="auto", word_size=4, calls=50)
    guest = BusyHost(1, head + results(51, 0), head + results(51, 50))
    assert program.measure_one(cast(Guest, guest), ticks_per_second=250, time_limit=1.0).batch == 1
    assert [argv[argv.index("-b") + 1] for argv in guest.asked] == ["1", "50", "6", "1"]
    late = BusyHost(50, head + results(51, 0), head + results(51, 50), missed=3)
    assert program.measure_one(cast(Guest, late), ticks_per_second=250, time_limit=1.0).batch == 50
    never = BusyHost(0, head)
    with pytest.raises(EvidenceError, match="no batch without an interrupt"):
        program.measure_one(cast(Guest, never), ticks_per_second=250, time_limit=1.0)
    assert len(never.asked) == 10
