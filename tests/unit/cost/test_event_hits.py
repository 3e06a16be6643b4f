# SPDX-License-Identifier: GPL-2.0-only
"""Does a count of hits tell how often each call hits a tracepoint, or that no call tells what a hit costs?"""

from __future__ import annotations

import pytest

from orchestrator.cost.event_hits import EventHits, is_event
from orchestrator.errors import UsageError


@pytest.mark.parametrize(
    ("hits", "each"), [(200, 1), (195, 1), (180, 1), (220, 1), (793, 4), (800, 4), (807, 4), (None, 1)]
)
def test_each_call_hits_it_equally_often(hits: int | None, each: int) -> None:
    assert EventHits(calls=200, hits=hits).per_call("net:netif_receive_skb", "tcp") == each


@pytest.mark.parametrize(
    ("hits", "why"),
    [
        (0, "net:netif_receive_skb: the call udp does not hit it"),
        (3, "net:netif_receive_skb: the call udp does not hit it"),
        (20, "net:netif_receive_skb: the call udp does not hit it"),
        (99, "net:netif_receive_skb: 200 calls of udp hit it 99 times: not equally often, so that"),
        (179, "net:netif_receive_skb: 200 calls of udp hit it 179 times: not equally often, so that"),
        (263, "net:netif_receive_skb: 200 calls of udp hit it 263 times: not equally often, so that"),
    ],
)
def test_calls_that_do_not_tell_what_a_hit_costs_are_refused(hits: int, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        EventHits(calls=200, hits=hits).per_call("net:netif_receive_skb", "udp")
    assert str(raised.value).startswith(why)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("sched:sched_switch", True), ("sys_enter", True), ("syscalls:sys_enter_*", False), ("", False)],
)
def test_a_pattern_is_no_event(name: str, expected: bool) -> None:
    assert is_event(name) is expected
