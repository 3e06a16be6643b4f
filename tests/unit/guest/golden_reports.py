# SPDX-License-Identifier: GPL-2.0-only
"""What does each log of ``golden/reports`` say, by ``golden/reports.yaml``?"""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

from orchestrator.guest.kernel_reports import Trouble

FOLDER = Path(__file__).parent / "golden" / "reports"


class _Fact(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ExpectedReport(_Fact):
    """A report's kind, the function it is about, and what its first and its last line contain."""

    kind: Trouble
    guilty: str | None
    first: str
    last: str


class ExpectedPanic(_Fact):
    """What the kernel says of its panic, the function to blame, and what the first and last quoted line contain."""

    sentence: str
    guilty: str | None
    first: str
    last: str


class ExpectedLog(_Fact):
    """Where a log comes from, and the reports in it."""

    source: str
    reports: list[ExpectedReport]
    panic: ExpectedPanic | None = None


def expected_logs() -> dict[str, ExpectedLog]:
    """By the names of the logs."""
    logs = yaml.safe_load(FOLDER.with_suffix(".yaml").read_text())
    return {name: ExpectedLog.model_validate(log) for name, log in logs.items()}
