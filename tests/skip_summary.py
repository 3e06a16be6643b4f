# SPDX-License-Identifier: GPL-2.0-only
"""Why tests were skipped: a line for each reason, before pytest's own lines on what failed.

`-rs` has one for each line of a file instead, over three hundred of them on a host with few kernels, and a failure
among them is not seen.
"""

from __future__ import annotations

from collections import Counter

import pytest

_PREFIX = "Skipped: "


def write_skip_summary(reporter: pytest.TerminalReporter) -> None:
    """Write how many tests were skipped for each reason, the most frequent first."""
    reasons = Counter(_reason(report) for report in reporter.stats.get("skipped", []))
    if not reasons:
        return
    reporter.section("skipped tests, and why")
    for reason, number in reasons.most_common():
        reporter.write_line(f"{number:5} {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    skipped = report.longrepr
    return skipped[2].removeprefix(_PREFIX) if isinstance(skipped, tuple) else str(skipped)
