# SPDX-License-Identifier: GPL-2.0-only
"""Does a guest whose functions have odd names cost no more than its cell?"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.errors import EvidenceError
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.counted.counter import Counter

ROUNDS = [(2, 5)]
"""Of two runs of a loop: the first has one round, the second two."""
WRITTEN = "region 3 1\nc1000000 55 3 0 0 0\nregion 6 1\nc1000000 55 6 0 0 0\n"


def counter(folder: Path, function: str) -> Counter:
    guest: Any = SimpleNamespace(
        counts_file=folder / "guest.counts",
        machine=SimpleNamespace(counter=SimpleNamespace(landmarks=None, is_detailed=False, caches=None)),
        known_slots=frozenset(),
        get=lambda path, largest: b"",
    )
    guest.counts_file.write_text(WRITTEN)
    return Counter(guest, Symbols(f"c1000000 T _stext\nc1000000 T {function}\nc1000400 T _etext\n".encode()))


def test_a_function_may_have_the_longest_name_that_a_kernel_lists(tmp_path: Path) -> None:
    name = "f" * 511
    profile = counter(tmp_path, name).profile_rounds(0, ROUNDS, cell="cell", rounds=1)
    assert [(symbol.name, symbol.executed) for symbol in profile.symbols] == [(name, 3)]


@pytest.mark.parametrize("name", ["f" * 512, "f\x07"])
def test_a_name_that_no_kernel_has_fails_the_cell(tmp_path: Path, name: str) -> None:
    with pytest.raises(EvidenceError, match="is not a valid result"):
        counter(tmp_path, name).profile_rounds(0, ROUNDS, cell="cell", rounds=1)
