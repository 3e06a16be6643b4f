# SPDX-License-Identifier: GPL-2.0-only
"""Does a worker begin no boot that was ended before its thread came to it?"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra fleet is not installed")

from orchestrator.fleet.boots import Boots


def test_a_boot_that_was_ended_before_it_began_does_not_begin(tmp_path: Path) -> None:
    boots = Boots(tmp_path)
    told: list[object] = []
    boots.abort("boot1-1")
    assert boots.do("boot1-1", b"", told.append)["end"] == "unwanted"
    assert told == []
    assert boots.do("boot1-2", b"no parcel", told.append)["end"] == "error"  # others do
    assert len(told) == 1
