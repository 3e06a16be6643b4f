# SPDX-License-Identifier: GPL-2.0-only
"""Builds of a part of a kernel (``images/unattended/kernel_build.sh``), all with the same objects."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.benchmarks.system.figures import SystemFigures, check_alike, read_runs

_BUILT = re.compile(r"built objects=([1-9][0-9]{0,5}) digest=([0-9a-f]{64})")


def read_build(text: str, warm: int) -> SystemFigures:
    """The figures; ``done`` is the number of objects, ``digest`` of their names and contents. Raises EvidenceError."""
    runs, built = read_runs(text, warm, 1, _built)
    check_alike(text, "the number of objects", [objects for objects, _ in built])
    check_alike(text, "the objects' content", [digest for _, digest in built])
    return SystemFigures(runs[0], tuple(runs[1:]), *built[0])


def _built(lines: Sequence[str]) -> tuple[int, str]:
    match = _BUILT.fullmatch(lines[0])
    if match is None:
        raise ValueError(f"nothing was built: {lines[0][:200]!r}")
    return int(match[1]), match[2]
