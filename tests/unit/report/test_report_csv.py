# SPDX-License-Identifier: GPL-2.0-only
"""CSV as other programs read it: nothing lost, and nothing that a spreadsheet would execute."""

from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st
from record_builders import cell, cells, failed, run
from report_examples import RUNS
from report_text import GOLDEN

from orchestrator.report.csv_report import render_csv
from orchestrator.results.contract import CellRecord, RunRecord


def rows(record: RunRecord) -> list[dict[str, str]]:
    """Read the rows as any CSV reader does."""
    return list(csv.DictReader(io.StringIO(render_csv(record), newline=""), strict=True))


def test_csv_is_as_in_the_golden_file() -> None:
    record = run(*RUNS["with_failures"].cells, *RUNS["wall"].cells)
    assert render_csv(record).encode("utf-8") == (GOLDEN / "report.csv").read_bytes()


def test_without_cells_there_is_a_header() -> None:
    text = render_csv(run())
    assert text.count("\r\n") == 1
    assert text.startswith("run,experiment,id,table,cpu,smp,")


def test_formulas_are_escaped_as_text() -> None:
    (row,) = rows(run(failed("kprobe", '=HYPERLINK("http://x";"y")')))
    assert row["reason"] == '\'=HYPERLINK("http://x";"y")'


@given(st.lists(cells(), max_size=5, unique_by=lambda drawn: drawn.id))
def test_figures_come_back_as_they_were(drawn: list[CellRecord]) -> None:
    read = rows(run(*drawn))
    assert len(read) == len(drawn)
    for row, one in zip(read, drawn, strict=True):
        assert row["id"] == one.id
        assert tuple(map(float, row["samples"].split())) == one.samples
        assert (float(row["value"]) if row["value"] else None) == one.value
        assert (float(row["overhead"]) if row["overhead"] else None) == one.overhead
        bounds = (float(row["low"]), float(row["high"])) if row["low"] else None
        assert bounds == one.interval
        assert row["reason"].removeprefix("'") == (one.reason or "").removeprefix("'")
        assert row["evidence.hits"] == (str(one.evidence.hits) if one.evidence else "")
        assert row["reference.table"] == (one.reference.table if one.reference else "")
        for name, text in row.items():
            if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
                assert [float(figure) for figure in text.split()], name


def test_what_was_left_of_the_kernels_text_is_no_column() -> None:
    text = {"digest": "5e" * 32, "size": 9604224}
    assert render_csv(run(cell("kprobe", text=text))) == render_csv(run(cell("kprobe")))
