# SPDX-License-Identifier: GPL-2.0-only
"""Does a count of hits tell how often each call hits a tracepoint, or that no call tells what a hit costs?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.artifacts.cache import Cache
from orchestrator.cost.event_hits import EventHits, is_event, kept_or_counted, repeated
from orchestrator.errors import UsageError


@pytest.mark.parametrize(("hits", "each"), [(200, 1), (195, 1), (180, 1), (220, 1), (793, 4), (800, 4), (807, 4)])
def test_each_call_hits_it_equally_often(hits: int, each: int) -> None:
    assert EventHits(calls=200, passes=(hits, 200 * each)).per_call("net:netif_receive_skb", "tcp") == each
    assert EventHits(calls=200, passes=(0, 200 * each, hits)).per_call("net:netif_receive_skb", "tcp") == each


def test_where_nothing_counts_them_the_measurement_says_why() -> None:
    assert EventHits(calls=200, passes=()).per_call("net:netif_receive_skb", "tcp") == 1


@pytest.mark.parametrize(
    ("passes", "why"),
    [
        ((0, 0), "the call udp does not hit it"),
        ((20, 3), "the call udp does not hit it"),
        ((99, 99), "200 calls of udp hit it 99 times: not equally often, so that"),
        ((179, 179), "200 calls of udp hit it 179 times: not equally often, so that"),
        ((200, 263, 263), "200 calls of udp hit it 263 times: not equally often, so that"),
        ((0, 200), "200 calls of udp hit it 0, then 200 times: not equally often, so that"),
        ((200, 0), "200 calls of udp hit it 200, then 0 times: not equally often, so that"),
        ((200, 400, 200), "200 calls of udp hit it 200, then 400, then 200 times: not equally often, so that"),
        ((270, 330), "200 calls of udp hit it 270, then 330 times: not equally often, so that"),
        ((200,), "200 calls of udp hit it 200 times: not equally often, so that"),
    ],
)
def test_calls_that_do_not_tell_what_a_hit_costs_are_refused(passes: tuple[int, ...], why: str) -> None:
    with pytest.raises(UsageError) as raised:
        EventHits(calls=200, passes=passes).per_call("net:netif_receive_skb", "udp")
    assert str(raised.value).startswith(f"net:netif_receive_skb: {why}")


@pytest.mark.parametrize(
    ("counts", "passes"),
    [
        ([200, 200], (200, 200)),
        ([207, 195, 400], (207, 195)),
        ([0, 200, 200], (0, 200, 200)),
        ([0, 0], (0, 0)),
        ([99, 120, 99, 99], (99, 120, 99, 99)),
        ([0, 200, 0, 200, 0, 200], (0, 200, 0, 200, 0)),
    ],
)
def test_passes_are_made_until_two_in_a_row_agree(counts: list[int], passes: tuple[int, ...]) -> None:
    left = iter(counts)
    assert repeated(lambda: next(left)).passes == passes


@pytest.mark.parametrize(("passes", "is_kept"), [((200, 200), True), ((0, 3), True), ((0, 200), False), ((), False)])
def test_only_an_answer_that_two_passes_give_is_kept(tmp_path: Path, passes: tuple[int, ...], is_kept: bool) -> None:
    counted = EventHits(calls=200, passes=passes)
    counts = iter([counted, EventHits(calls=200, passes=(400, 400))])
    first, second = (kept_or_counted(Cache(tmp_path), {"event": "x"}, "hits", lambda: next(counts)) for _ in "12")
    assert first == counted
    assert (second == counted) is is_kept


@pytest.mark.parametrize(
    ("name", "expected"),
    [("sched:sched_switch", True), ("sys_enter", True), ("syscalls:sys_enter_*", False), ("", False)],
)
def test_a_pattern_is_no_event(name: str, expected: bool) -> None:
    assert is_event(name) is expected
