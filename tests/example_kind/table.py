# SPDX-License-Identifier: GPL-2.0-only
"""A table of readings: which files are read, how often, and on what; and what one of its cells does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator

from orchestrator.catalog.probes import BASELINE
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.fields import Entries, one_of, whole
from orchestrator.experiment.problems import mismatch
from orchestrator.experiment.table import FEWEST_WALL_REPEATS, BenchmarkChoice, RowsTable

_FILE = re.compile(r"/(proc|sys)(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}){1,8}")


def _file(value: object) -> object:
    if not isinstance(value, str) or not _FILE.fullmatch(value):
        raise mismatch(value, "expected a file below /proc or /sys, such as /proc/version")
    return value


class ReadingBenchmark(BenchmarkChoice):
    """Each of the ``files`` is read in ``repeats`` runs.

    Runs of a program scatter on the exact clock too: fewer would have no 95 % interval.
    """

    files: Entries[Annotated[str, BeforeValidator(_file)]]
    """Files below ``/proc`` and ``/sys``, by their absolute paths."""
    repeats: Annotated[int, whole(FEWEST_WALL_REPEATS, 50)] = 12
    """Runs that count, after one that does not."""


class ReadingTable(RowsTable):
    """Machines, kernels and files, of which every combination is a cell. There is nothing to probe."""

    benchmark: ReadingBenchmark
    probes: Entries[Annotated[str, one_of(lambda: [BASELINE])]] = (BASELINE,)


@dataclass(frozen=True)
class ReadingTask:
    """The guest's ``file``, by its absolute path, is read once a run."""

    file: str


ReadingCell = Cell[ReadingTask]
