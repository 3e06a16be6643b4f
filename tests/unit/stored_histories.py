# SPDX-License-Identifier: GPL-2.0-only
"""Runs of the quickstart in a store, one a day, each with a kprobe's outcome and what it was made with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from record_builders import cell, failed

from orchestrator.results.contract import CellRecord
from orchestrator.results.store import Store

BEGUN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BASE = 409.0
EXPERIMENT = "quickstart"
KPROBE = "pentium4/debian-686/kprobe/noop"

NEEDS_RUPTURES = pytest.mark.skipif(find_spec("ruptures") is None, reason="ruptures has no wheel for this Python")


def counted(value: float, **changes: Any) -> CellRecord:
    """A kprobe that costs so many instructions."""
    overhead = value - BASE
    figures = {"samples": [value] * 4, "value": value, "overhead": overhead, "interval": [overhead, overhead]}
    return cell("kprobe", **{**figures, **changes})


def timed(value: float, **changes: Any) -> CellRecord:
    """The same in nanoseconds."""
    wall = {"clock": "wall", "unit": "ns", "interval": [value - BASE - 4, value - BASE + 4]}
    return counted(value, **{**wall, **changes})


def broken() -> CellRecord:
    """A kprobe without a number."""
    return failed("kprobe", "the guest hangs")


def store_days(lab: Path, days: Sequence[CellRecord], kernels: Mapping[int, str] | None = None) -> list[str]:
    """Store a run a day from ``BEGUN`` on, each with a baseline, and return their ids.

    ``kernels`` are the versions of the guests' kernel, each from a day on.
    """
    runs = []
    version = "6.1.170-1"
    with patch("orchestrator.results.store.datetime") as clock, Store.open(lab) as store:
        for day, record in enumerate(days):
            clock.now.return_value = BEGUN + timedelta(days=day)
            entry = store.begin_run(EXPERIMENT, [cell("none").id, record.id], digest="1", provenance={"qemu": "7.2"})
            store.record(entry.id, cell("none"))
            store.record(entry.id, record)
            store.finish_run(entry.id, "complete")
            version = (kernels or {}).get(day, version)
            kernel = {"name": "debian-686", "release": "6.1", "packages": {"linux-image-686": version}}
            boots = [{"name": "boot1/guest1", "kernel": kernel}]
            entry.directory.mkdir(parents=True)
            content = {"sessions": [{"qemu": "7.2"}], "boots": boots}
            (entry.directory / "provenance.json").write_text(json.dumps(content))
            runs.append(entry.id)
    return runs
