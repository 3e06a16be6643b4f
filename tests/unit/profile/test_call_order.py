# SPDX-License-Identifier: GPL-2.0-only
"""Is a call cut out of the order of blocks whole, and is each block in the function that it is in?"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import EvidenceError
from orchestrator.profile.counted.call_order import middle_call, spans
from orchestrator.profile.counted.counts import Code, ExecutedBlock, Region
from orchestrator.profile.counted.generated_code import SLOT as MADE_SLOT
from orchestrator.profile.counted.generated_code import MadeCode
from orchestrator.profile.counted.places import Function, Places
from orchestrator.profile.counted.timed_samples import Timed
from orchestrator.profile.stored.timeline import TimelineSpan

KERNEL, END = 0xC1000000, 0xC1001000
NAMES = ("entry", "call", "handler", "__x86_indirect_thunk_eax", "after")
"""Functions of 256 bytes each."""
ENTRY, CALL_OF, HANDLER, THUNK, AFTER = (KERNEL + 256 * place for place in range(5))
SLOT = 0xD0000000
PROGRAM = 0x8048000
NOP, CALLS, RETURNS, INT3, IRET, SYSENTER, SYSEXIT = "90", "e800000000", "c3", "cc", "cf", "0f34", "0f35"


def places() -> Places:
    functions = [Function(KERNEL + 256 * place, name) for place, name in enumerate(NAMES)]

    def function_at(address: int) -> Function | None:
        return next((function for function in reversed(functions) if function.address <= address), None)

    return Places(function_at, [range(KERNEL, END)], 0xC0000000, "callbench", lambda _: MadeCode(MADE_SLOT))


def block(address: int, size: int, depth: int, last: str = NOP) -> ExecutedBlock:
    """A block of instructions of one byte, all but the last."""
    return ExecutedBlock(address, size, depth, Code(address + size - 1, last))


def executed(blocks: list[ExecutedBlock]) -> list[Code]:
    return [Code(passed.address + at, NOP) for passed in blocks for at in range(passed.instructions)]


def shown(*blocks: ExecutedBlock) -> list[tuple[int, str, int, int]]:
    return [
        (span.depth, span.name, span.instructions, span.own) for span in spans(blocks, executed([*blocks]), places())
    ]


def test_calls_nest_and_their_instructions_are_their_callers_too() -> None:
    found = shown(
        block(PROGRAM, 2, 1, SYSENTER),
        block(ENTRY, 4, 2, CALLS),
        block(CALL_OF, 3, 3, RETURNS),
        block(ENTRY + 9, 1, 2, SYSEXIT),
        block(PROGRAM + 9, 5, 1),
    )
    assert found == [(0, "callbench", 15, 7), (1, "entry", 8, 5), (2, "call", 3, 3)]


def test_what_led_in_and_out_is_marked() -> None:
    blocks = [
        block(PROGRAM, 2, 1, SYSENTER),
        block(ENTRY, 4, 2, CALLS),
        block(CALL_OF, 1, 3, INT3),
        block(HANDLER, 3, 4, IRET),
        block(CALL_OF + 1, 1, 3, NOP),
        block(AFTER, 1, 4, IRET),
        block(CALL_OF + 2, 2, 3, RETURNS),
        block(ENTRY + 9, 1, 2, SYSEXIT),
        block(PROGRAM + 9, 5, 1),
    ]
    marks = [(span.name, span.entered, span.left) for span in spans(blocks, executed(blocks), places())]
    assert marks == [
        ("callbench", "", ""),
        ("entry", "sysenter", "sysexit"),
        ("call", "", ""),
        ("handler", "int3", "iretd"),
        ("after", "exception", "iretd"),
    ]


def test_a_kprobes_slot_is_in_the_function_that_it_was_taken_from() -> None:
    """Also where that function was jumped to, as system calls are on x86_64."""
    found = shown(
        block(ENTRY, 2, 1),
        block(CALL_OF, 1, 1, INT3),
        block(HANDLER, 3, 2, IRET),
        block(SLOT, 2, 1, INT3),
        block(HANDLER, 3, 2, IRET),
        block(CALL_OF + 1, 4, 1),
    )
    assert found == [
        *[(0, "entry", 15, 2), (1, "call", 13, 5)],
        *[(2, "handler", 3, 3), (2, "kprobe's slot", 5, 2), (3, "handler", 3, 3)],
    ]


def test_a_retpoline_is_beside_the_function_that_it_jumps_to() -> None:
    found = shown(
        block(ENTRY, 2, 1, CALLS),
        block(THUNK, 1, 2, CALLS),
        block(THUNK + 9, 2, 3, RETURNS),
        block(CALL_OF, 3, 3, RETURNS),
        block(ENTRY + 9, 1, 1),
    )
    assert found == [(0, "entry", 9, 3), (1, "__x86_indirect_thunk_eax", 3, 3), (1, "call", 3, 3)]


def test_a_block_is_divided_where_a_function_goes_over_into_the_next() -> None:
    assert shown(block(CALL_OF, 1, 1), block(HANDLER - 2, 5, 1)) == [(0, "call", 6, 3), (1, "handler", 3, 3)]


def test_code_that_was_patched_meanwhile_is_not_divided() -> None:
    passed = block(HANDLER - 2, 5, 1)
    assert [span.own for span in spans([passed], executed([passed])[:-1], places())] == [5]


def test_a_call_that_leaves_its_loop_is_no_call() -> None:
    with pytest.raises(EvidenceError, match="leaves the function that makes it"):
        shown(block(ENTRY, 1, 2), block(CALL_OF, 1, 1))


ADDRESSES = st.one_of(st.integers(KERNEL, END - 16), st.integers(PROGRAM, PROGRAM + 64), st.integers(SLOT, SLOT + 64))
LASTS = st.sampled_from([NOP, CALLS, RETURNS, INT3, IRET, SYSENTER, SYSEXIT])


@st.composite
def any_blocks(draw: st.DrawFn) -> list[ExecutedBlock]:
    """Blocks of calls that the plugin may write: it goes one deeper, stays, or returns through several."""
    depth, blocks = 1, [block(PROGRAM, 1, 1)]
    for address, size, last in draw(st.lists(st.tuples(ADDRESSES, st.integers(1, 15), LASTS), max_size=40)):
        depth = draw(st.integers(1, depth + 1))
        blocks.append(block(address, size, depth, last))
    return blocks


@given(any_blocks())
def test_spans_are_balanced_and_add_up(blocks: list[ExecutedBlock]) -> None:
    timeline_spans = list(spans(blocks, executed(blocks), places()))
    total = sum(passed.instructions for passed in blocks)
    assert (timeline_spans[0].depth, timeline_spans[0].start, timeline_spans[0].instructions) == (0, 0, total)
    assert sum(timeline_span.own for timeline_span in timeline_spans) == total
    around: list[TimelineSpan] = []
    for span in timeline_spans:
        del around[span.depth :]
        assert len(around) == span.depth
        assert span.own >= 0
        if around:
            assert around[-1].start <= span.start
            assert span.end <= around[-1].end
        around.append(span)
    for before, after in pairwise(timeline_spans):
        assert after.depth <= before.depth + 1
        assert after.start >= (before.end if after.depth <= before.depth else before.start)


def region(*blocks: ExecutedBlock) -> Region:
    return Region(1 + sum(passed.instructions for passed in blocks), {}, order=list(blocks))


BEFORE, ROUND, BEHIND = block(PROGRAM, 3, 1), block(PROGRAM + 16, 2, 1), block(PROGRAM + 32, 4, 1)


def a_call(size: int) -> list[ExecutedBlock]:
    return [ROUND, block(ENTRY, size, 2), block(PROGRAM + 18, 2, 1)]


@pytest.mark.parametrize("sizes", [(5,), (5, 6), (5, 6, 7)])
def test_the_call_is_one_in_the_middle_of_a_batch(sizes: tuple[int, ...]) -> None:
    calls = [passed for size in sizes for passed in a_call(size)]
    regions = [region(BEFORE, BEHIND), region(BEFORE, BEHIND), region(BEFORE, *calls, BEHIND)]
    total = sum(passed.instructions for passed in regions[-1].order)
    assert middle_call(regions, Timed(7, [(1, total)])) == a_call(sizes[len(sizes) // 2])


@pytest.mark.parametrize("order", [[BEFORE, BEHIND], [BEFORE, *a_call(5)], [], [BEHIND]])
def test_a_batch_without_rounds_between_what_is_in_an_empty_one_is_refused(order: list[ExecutedBlock]) -> None:
    with pytest.raises(EvidenceError, match="does not show where its calls begin"):
        middle_call([region(BEFORE, BEHIND)] * 2 + [region(*order)], Timed(7, [(1, 20)]))
