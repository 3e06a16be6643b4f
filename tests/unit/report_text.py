# SPDX-License-Identifier: GPL-2.0-only
"""A run's tables as a pipe receives them, and the files that hold what they must be."""

from __future__ import annotations

import difflib
import io
import os
from itertools import islice
from pathlib import Path

from neutral_environment import WRITE_GOLDEN
from rich.console import Console

from orchestrator.benchmarks.registry import reports
from orchestrator.report.claims import ClaimsLayout, decided_claims
from orchestrator.report.table_report import ReportRegistry
from orchestrator.report.text import print_table
from orchestrator.results.contract import RunRecord

_GOLDEN = Path(__file__).with_name("golden")
_SHOWN = 60
"""Lines of a difference; pytest cuts two long texts in the middle."""


def printed(
    record: RunRecord,
    width: int = 80,
    encoding: str = "utf-8",
    registry: ReportRegistry | None = None,
    claims: ClaimsLayout = decided_claims,
) -> str:
    """Return what ``orchestrator report`` prints into a pipe."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_table(record, Console(file=file, width=width), registry or reports(), claims)
    file.flush()
    return raw.getvalue().decode(encoding)


def check_golden(file: str, text: str) -> None:
    """Fail unless the golden file has this text; ``--write-golden`` writes it."""
    path = _GOLDEN / file
    if WRITE_GOLDEN in os.environ:
        path.write_bytes(text.encode())
    golden = path.read_bytes().decode()
    lines = difflib.unified_diff(golden.splitlines(), text.splitlines(), file, "now", n=1, lineterm="")
    assert text == golden, "\n".join(islice(lines, _SHOWN))


def check_golden_table(name: str, record: RunRecord) -> None:
    """Fail unless the run's table is the golden file ``table_NAME.txt``, within 80 columns."""
    text = printed(record)
    check_golden(f"table_{name}.txt", text)
    assert max(map(len, text.splitlines())) <= 80
