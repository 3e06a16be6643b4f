# SPDX-License-Identifier: GPL-2.0-only
"""Runs of a user's command (``images/unattended/command.sh``), all with the same output."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.benchmarks.system.figures import SystemFigures, check_alike, read_runs

_PRINTED = re.compile(r"printed bytes=(0|[1-9][0-9]{0,11}) digest=([0-9a-f]{64})")


def read_command(text: str, warm: int) -> SystemFigures:
    """The figures; ``digest`` is of the command's standard output, whose size is a fact. Raises EvidenceError."""
    runs, printed = read_runs(text, warm, 1, _printed)
    check_alike(text, "the size of what was printed", [size for size, _ in printed])
    check_alike(text, "what was printed", [digest for _, digest in printed])
    size, digest = printed[0]
    return SystemFigures(runs[0], tuple(runs[1:]), 1, digest, {"output_bytes": size})


def _printed(lines: Sequence[str]) -> tuple[int, str]:
    match = _PRINTED.fullmatch(lines[0])
    if match is None:
        raise ValueError(f"found {lines[0][:200]!r}, not the size and digest of what was printed")
    return int(match[1]), match[2]
