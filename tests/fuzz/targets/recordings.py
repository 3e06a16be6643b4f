# SPDX-License-Identifier: GPL-2.0-only
"""What modules record in a guest, and what QEMU's counting plugin writes."""

from __future__ import annotations

from fuzz.scratch import file, folder
from orchestrator.probes.events import Events, check_order, parse_ring, write_csv
from orchestrator.probes.recorder import parse_report
from orchestrator.profile.counted.counts import read_regions, together
from orchestrator.profile.counted.timed_samples import Timed, sample_of

_TIMED = Timed(1, ((1, 5), (1, 5)))


def read_ring(data: bytes) -> None:
    """One CPU's ring of recorded events."""
    ring = parse_ring(data, 0)
    events = Events((ring,))
    write_csv(events, folder() / "events.csv")
    check_order(ring)


def read_recorder_report(data: bytes) -> None:
    """What a recorder says of itself."""
    parse_report(data)


def read_plugin_counts(data: bytes) -> None:
    """The plugin's file, and the sample that its regions make."""
    regions = read_regions(file("counts", data), 0)
    together(regions)
    sample_of(regions, _TIMED)
