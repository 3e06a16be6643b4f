# SPDX-License-Identifier: GPL-2.0-only
"""Which cells of a run make the same calls on the same kernel, so that without their probes these cost the same."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.results.contract import CellRecord
from orchestrator.results.parameters import ARGUMENTS, CALL, ENTRY, WORKLOAD

_FIELDS = ("table", "cpu", "smp", "benchmark", "kernel", "clock")
_PARAMETERS = (CALL, ARGUMENTS, WORKLOAD, ENTRY)

PATHS = (*_FIELDS, *(f"parameters.{name}" for name in _PARAMETERS))
"""What their records have in common, as paths in a stored record."""


def calls_of(record: CellRecord) -> Sequence[object]:
    """The values of ``PATHS`` in a record."""
    fields = (getattr(record, name) for name in _FIELDS)
    return *fields, *(record.parameters.get(name) for name in _PARAMETERS)
