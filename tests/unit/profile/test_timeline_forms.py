# SPDX-License-Identifier: GPL-2.0-only
"""Are time lines printed as the golden files are, and traces whole and balanced?"""

from __future__ import annotations

import json
from typing import Any

from html_checks import check_page
from hypothesis import given
from hypothesis import strategies as st
from report_text import check_golden

from orchestrator.profile.printed.timeline_forms import difference_text, page, text, trace
from orchestrator.profile.stored.timeline import Timeline, TimelineSpan

PLAIN = Timeline(
    cell="pentium4/debian-686/none/noop",
    spans=(
        TimelineSpan("callbench", "user", 0x8049085, 0, 0, 422, 13),
        TimelineSpan("entry_SYSENTER_32", "kernel", 0xC191A010, 1, 7, 409, 62, "sysenter", "sysexit"),
        TimelineSpan("__ia32_sys_gettimeofday", "kernel", 0xC1114640, 2, 45, 148, 47),
        TimelineSpan("ktime_get_real_ts64", "kernel", 0xC1116000, 3, 158, 35, 35),
    ),
)
PROBED = Timeline(
    cell="pentium4/debian-686/kprobe/noop",
    spans=(
        TimelineSpan("callbench", "user", 0x8049085, 0, 0, 538, 13),
        TimelineSpan("entry_SYSENTER_32", "kernel", 0xC191A010, 1, 7, 525, 62, "sysenter", "sysexit"),
        TimelineSpan("__ia32_sys_gettimeofday", "kernel", 0xC1114640, 2, 45, 264, 47),
        TimelineSpan("asm_exc_int3", "kernel", 0xC191B000, 3, 47, 20, 14, "int3", "iretd"),
        TimelineSpan("kprobe_func [lab_kprobe]", "module", 0xF0821000, 4, 52, 6, 6),
        TimelineSpan("kprobe's slot", "generated", 0xF0000000, 3, 67, 96, 2),
        TimelineSpan("asm_exc_int3", "kernel", 0xC191B000, 4, 69, 94, 94, "int3", "iretd"),
        TimelineSpan("ktime_get_real_ts64", "kernel", 0xC1116000, 3, 274, 35, 33),
    ),
)


def test_a_call_is_printed_like_the_function_graph_tracers() -> None:
    check_golden("timeline.txt", text(PROBED))


def test_two_calls_are_printed_side_by_side_from_the_first_difference_on() -> None:
    check_golden("timeline_difference.txt", difference_text(PLAIN, PROBED))


def test_equal_calls_have_no_difference() -> None:
    assert difference_text(PLAIN, PLAIN).endswith("Both calls are in the same functions, for as many instructions.\n")


def test_another_way_through_the_same_functions_is_a_difference() -> None:
    other_timeline = PLAIN.model_copy(
        update={"spans": (*PLAIN.spans[:-1], PLAIN.spans[-1]._replace(own=34, instructions=34))}
    )
    assert "The first 3 lines are equal: until instruction 158." in difference_text(PLAIN, other_timeline)


def test_a_trace_has_a_thread_for_each_call_in_microseconds() -> None:
    found: dict[str, Any] = json.loads(trace([PLAIN, PROBED]))
    assert found["displayTimeUnit"] == "ns"
    names = {one["tid"]: one["args"]["name"] for one in found["traceEvents"] if one["name"] == "thread_name"}
    assert names == {1: PLAIN.cell, 2: PROBED.cell}
    (trap,) = (one for one in found["traceEvents"] if one["name"] == "asm_exc_int3" and one["ts"] == 0.047)
    assert trap == {
        "name": "asm_exc_int3",
        "cat": "kernel",
        "ph": "X",
        "ts": 0.047,
        "dur": 0.02,
        "pid": 1,
        "tid": 2,
        "args": {"address": "0xc191b000", "own instructions": 14, "entered by": "int3", "left by": "iretd"},
    }


def test_a_page_needs_nothing_else() -> None:
    found = page([PLAIN, PROBED], difference_text(PLAIN, PROBED))
    check_page(found)
    assert "kprobe_func [lab_kprobe]: instructions 52 to 58, 6 of 6 its own" in found
    assert "asm_exc_int3: instructions 47 to 67, 14 of 20 its own; entered by int3, left by iretd" in found


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=40))
def test_whatever_a_guest_calls_its_functions_the_page_is_one(name: str) -> None:
    odd = Timeline(cell="a/b", spans=(TimelineSpan(name, "module", 0, 0, 0, 5, 5),))
    check_page(page([odd], text(odd)))
