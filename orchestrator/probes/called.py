# SPDX-License-Identifier: GPL-2.0-only
"""Calls that were made without timing them, for a probe's hits to be compared with."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.probes.call_results import CallResults


@dataclass(frozen=True)
class Called:
    """How many calls were made, by which processes, and what is known of each.

    Of a system call ``number`` and the six ``arguments`` are known, what the last one returned, and what all did.
    """

    entry: str
    calls: int
    pids: frozenset[int]
    number: int | None = None
    arguments: tuple[int, ...] = ()
    result: int | None = None
    results: CallResults | None = None
