# SPDX-License-Identifier: GPL-2.0-only
"""One file read in a running guest: found, read several times, and proved to have had the same content each time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from example_kind.table import ReadingCell
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.results.contract import CellRecord, WorkEvidence, valid_result
from orchestrator.results.statistics import median
from orchestrator.run.cell_deadline import CellDeadline
from orchestrator.run.cell_records import identity
from orchestrator.run.guest_checks import CLOCKSOURCE, check_clocksource, permitted_taint
from orchestrator.run.ready_guest import ReadyGuest

_OUTPUT = "/reading"
_REAL = re.compile(r"run real=([0-9]{1,16}) ")
"""Of the line that ``images/guest/macrobench.c`` prints: nanoseconds, which are instructions on the exact clock."""


def measure_reading(ready: ReadyGuest, cell: ReadingCell, notes: Sequence[str]) -> CellRecord:
    """Measure a file and prove it. Its overhead follows from the empty file's record.

    Raises UnsupportedError where the guest lacks the file, EvidenceError where its content changes or a proof fails,
    GuestError when the guest is in trouble or the cell's time is over.
    """
    guest, file, deadline = ready.guest, cell.task.file, CellDeadline(cell.time_limit)
    mark = guest.console.length()
    if guest.run(["test", "-r", file]).status != 0:
        raise UnsupportedError(f"the guest has no file {file}")
    samples, contents = [], []
    for _ in range(1 + cell.repeats):
        run = guest.succeed(["macrobench", "-o", _OUTPUT, "/", "cat", file], time_limit=deadline.left())
        samples.append(_real(run.text))
        contents.append(guest.get(_OUTPUT))
    if len(set(contents)) != 1:
        raise EvidenceError(f"{file} had another content from one run to the next: they did not do the same work")
    guest.check_console(mark)
    check_clocksource(guest)
    warm = samples[1:]  # the first run found nothing in the page cache
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters={
                **cell.parameters,
                "kernel_release": ready.artifacts.kernel.release,
                "bytes": len(contents[0]),
            },
            status="ok",
            notes=tuple(notes),
            samples=tuple(warm),
            value=median(warm),
            work=WorkEvidence(
                mechanism="none",
                runs=len(samples),
                done=1,
                digest=hashlib.sha256(contents[0]).hexdigest(),
                restored=None,
                clocksource=CLOCKSOURCE,
                taint=permitted_taint(guest),
            ),
        )


def _real(text: str) -> float:
    match = _REAL.match(text)
    if match is None:
        raise EvidenceError("macrobench does not report a run", detail=text.splitlines()[:5])
    return float(match[1])
