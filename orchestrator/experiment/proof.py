# SPDX-License-Identifier: GPL-2.0-only
"""The counting pass of a cell: every call a hit, every hit by the traps of its mechanism, every event read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.benchmarks import gtodbench
from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import EvidenceError
from orchestrator.experiment.bench import Bench
from orchestrator.experiment.plan import Cell
from orchestrator.guest.interrupts import INT3
from orchestrator.probes.attachment import Attachment
from orchestrator.probes.events import check_events, read_events, write_csv
from orchestrator.probes.evidence import Observation, check_traps
from orchestrator.probes.point import ProbePoint

COUNTED_CALLS = 1000
"""Calls of the counting pass; every one must be a hit."""


@dataclass(frozen=True)
class Proof:
    """What was seen at the probe point while it counted and was timed.

    ``int3`` is None where nobody could count the traps, ``recorded`` where nothing was to be read back.
    """

    point: ProbePoint
    seen: Observation
    calls: int
    hits: int = 0
    int3: int | None = 0
    recorded: int | None = None
    detour: str | None = None
    memory: tuple[int, int] | None = None


def count_hits(
    bench: Bench,
    cell: Cell,
    kind: ProbeKind,
    attachment: Attachment,
    events: Path | None,
    time_limit: float,
) -> tuple[int, int | None]:
    """Make COUNTED_CALLS calls and account for each; returns hits and traps (None where nobody could count these).

    The registration stays the timed one's; where its handler neither counts nor records, a counting one takes its
    place meanwhile. What was recorded is written to the file ``events``, if one is given. Raises EvidenceError.
    """
    recording = cell.handler == "record"
    attachment.handle("record" if recording else "count")
    with _counted_traps(bench) as traps:
        called = gtodbench.call(bench.guest, entry=cell.entry, calls=COUNTED_CALLS, time_limit=time_limit)
    attachment.handle("noop")
    if recording:
        written = read_events(bench.guest, attachment.module_name)
        if events is not None:
            events.parent.mkdir(exist_ok=True)
            write_csv(written, events)
        hits = check_events(written, kind, called, attachment.point, bench.symbols)
    else:
        hits = attachment.hits()
    if hits != COUNTED_CALLS:
        raise EvidenceError(f"{COUNTED_CALLS} calls were made and the probe's handler ran {hits} times")
    attachment.handle(cell.handler)
    int3 = None if traps is None else traps[INT3]
    if int3 is not None:
        check_traps(kind, hits, int3)
    return hits, int3


@contextmanager
def _counted_traps(bench: Bench) -> Iterator[Counter[int] | None]:
    """QEMU's count of traps; nobody's where the host's CPU runs the guest."""
    if bench.supplies.machine.timing == "kvm":
        yield None
        return
    with bench.guest.counted_interrupts() as counts:
        yield counts
