# SPDX-License-Identifier: GPL-2.0-only
"""Ping floods (``images/unattended/ping_flood.sh``), in which every packet is answered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.benchmarks.system.figures import SystemFigures, read_runs

_SENT = re.compile(
    r"([0-9]{1,9}) packets transmitted, ([0-9]{1,9}) received, ([0-9.]{1,12})% packet loss, time [0-9]{1,12}ms"
)
_TIMES = re.compile(
    r"rtt min/avg/max/mdev = " + "/".join([r"([0-9]{1,9}\.[0-9]{1,6})"] * 4) + r" ms(?:, pipe [0-9]{1,9})?"
    r"(?:, ipg/ewma [0-9.]{1,16}/[0-9.]{1,16} ms)?"
)
_NS_PER_MS = 1e6


@dataclass(frozen=True)
class _Flood:
    minimum: float
    average: float
    maximum: float
    deviation: float


def read_flood(text: str, warm: int, packets: int) -> SystemFigures:
    """The figures of ``packets`` packets a run; the facts are the warm runs' round trips, in ns, as ping rounds them.

    Raises EvidenceError where a packet was lost.
    """

    def read(lines: Sequence[str]) -> _Flood:
        return _flood(lines, packets)

    runs, floods = read_runs(text, warm, 2, read)
    answered = floods[1:]
    facts = {
        "rtt_min_ns": min(flood.minimum for flood in answered),
        "rtt_avg_ns": sum(flood.average for flood in answered) / len(answered),
        "rtt_max_ns": max(flood.maximum for flood in answered),
        "rtt_mdev_ns": sum(flood.deviation for flood in answered) / len(answered),
    }
    return SystemFigures(runs[0], tuple(runs[1:]), packets, "", facts)


def _flood(lines: Sequence[str], packets: int) -> _Flood:
    sent, times = _SENT.fullmatch(lines[0]), _TIMES.fullmatch(lines[1])
    if sent is None or times is None:
        raise ValueError("ping does not report how many packets were answered")
    transmitted, received = int(sent[1]), int(sent[2])
    if (transmitted, received, sent[3]) != (packets, packets, "0"):
        raise ValueError(f"of {packets} packets {transmitted} were sent and {received} answered ({sent[3]} % lost)")
    return _Flood(*(round(float(number) * _NS_PER_MS) for number in times.groups()))
