# SPDX-License-Identifier: GPL-2.0-only
"""Do the kinds of benchmark name different things? A name is looked up in one kind after the other."""

from __future__ import annotations

from collections import Counter

from orchestrator.benchmarks.registry import kinds


def shared(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_no_two_kinds_share_a_name() -> None:
    assert shared([kind.name for kind in kinds()]) == []


def test_no_two_kinds_share_a_benchmark() -> None:
    assert shared([name for kind in kinds() for name in kind.benchmarks()]) == []


def test_no_two_kinds_share_a_row() -> None:
    assert shared([row for kind in kinds() for row in kind.rows()]) == []
