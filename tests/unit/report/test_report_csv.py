# SPDX-License-Identifier: GPL-2.0-only
"""CSV as other programs read it: nothing lost, and nothing that a spreadsheet would execute."""

from __future__ import annotations

import csv
import io
import json

from hypothesis import given
from hypothesis import strategies as st
from record_builders import cell, cells, failed, many_probes, marker_loops, recorded_build, run
from report_examples import RUNS
from report_text import GOLDEN

from orchestrator.report.exports import render_csv
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


def test_every_run_has_the_same_columns() -> None:
    runs = [*RUNS.values(), run(*recorded_build()), run(*many_probes()), run(*marker_loops(empty=2.0, varargs=9.0))]
    headers = {render_csv(one).partition("\r\n")[0] for one in runs}
    assert len(headers) == 1
    (header,) = headers
    assert all(list(row) == header.split(",") for one in runs for row in rows(one))


def test_what_differs_from_run_to_run_is_json_in_one_column() -> None:
    facts = {"at": "do_fork", "rounds": 1000, "share": 0.25, "is_warm": True, "command": '"a, b"'}
    (row,) = rows(run(cell("kprobe", parameters=facts, purposes={"trap": 600.0, "dispatch": 27.0})))
    assert json.loads(row["parameters"]) == facts
    assert json.loads(row["purposes"]) == {"trap": 600.0, "dispatch": 27.0}
    assert row["parameters"].isascii()


def test_what_a_cell_lacks_is_empty() -> None:
    (row,) = rows(run(cell("kprobe")))
    assert [row["parameters"], row["purposes"], row["work.runs"]] == ["", "", ""]


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
