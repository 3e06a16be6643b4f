# SPDX-License-Identifier: GPL-2.0-only
"""The JSON report is the result contract, byte by byte."""

from __future__ import annotations

from record_builders import COUNTS, cell, failed, reference, run
from report_text import check_golden

from orchestrator.results.contract import json_text


def test_json_is_as_in_the_golden_file() -> None:
    record = run(
        *(cell(probe, reference=reference(probe)) for probe in COUNTS if probe != "jprobe"),
        failed("jprobe", "the module did not load: \u201cUnknown symbol\u201d\n[    1.0] jprobe: Unknown symbol foo"),
    )
    check_golden("report.json", json_text(record))
