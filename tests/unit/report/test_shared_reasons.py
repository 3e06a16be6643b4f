# SPDX-License-Identifier: GPL-2.0-only
"""Is a long reason printed once in a run's tables, and are the names before it a list that one can read?"""

from __future__ import annotations

import pytest
from record_builders import cell, failed, run
from report_text import printed

from orchestrator.report.sheet import listed

LONG = f"the module does not build: {'x ' * 80}ended"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["a", "b", "a"], "a and b"),
        (["a", "b", "c", "d"], "a, b, c and d"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 others"),
        (["a", "b, optimised"], "a and b, optimised"),
        (["a", "b, optimised", "c"], "a; b, optimised and c"),
    ],
)
def test_names_in_a_sentence(names: list[str], text: str) -> None:
    assert listed(names) == text


@pytest.mark.parametrize(("reason", "times"), [(LONG, 1), ("too short", 2)])
def test_a_later_table_names_the_note_of_the_first(reason: str, times: int) -> None:
    cells = [
        one
        for handler in ("noop", "record")
        for one in (
            cell("none", id=f"{handler}/none", handler=handler),
            failed("kprobe", reason, id=f"{handler}/kprobe", handler=handler),
        )
    ]
    text = " ".join(printed(run(*cells)).split())
    assert text.count(f"[1] kprobes failed: {reason}") == times
    assert text.count("[1] kprobes failed: see [1] of table 1") == 2 - times
