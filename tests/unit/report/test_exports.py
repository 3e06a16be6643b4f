# SPDX-License-Identifier: GPL-2.0-only
"""CSV as other programs read it: nothing lost, and nothing that a spreadsheet would execute."""

from __future__ import annotations

import csv
import io
import json
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from drawn_records import cells
from hypothesis import given
from hypothesis import strategies as st
from junitparser import Failure, Skipped, TestCase, TestSuite
from record_builders import cell, failed, many_probes, marker_loops, recorded_build, run
from report_examples import RUNS
from report_text import check_golden

from orchestrator.errors import UsageError
from orchestrator.report.bencher_export import render_bencher
from orchestrator.report.csv_export import render_csv
from orchestrator.report.junit_export import render_junit
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.recorded_provenance import RecordedProvenance


def rows(record: RunRecord) -> list[dict[str, str]]:
    """Read the rows as any CSV reader does."""
    return list(csv.DictReader(io.StringIO(render_csv(record), newline=""), strict=True))


def test_csv_is_as_in_the_golden_file() -> None:
    record = run(*RUNS["with_failures"].cells, *RUNS["wall"].cells)
    check_golden("report.csv", render_csv(record))


def test_without_cells_there_is_a_header() -> None:
    text = render_csv(run())
    assert text.count("\r\n") == 1
    assert text.startswith("run,experiment,id,table,cpu,smp,")


def test_every_run_has_the_same_columns() -> None:
    runs = [*RUNS.values(), run(*recorded_build()), run(*many_probes()), run(*marker_loops(empty=2.0, varargs=9.0))]
    headers = {render_csv(record).partition("\r\n")[0] for record in runs}
    assert len(headers) == 1
    (header,) = headers
    assert all(list(row) == header.split(",") for record in runs for row in rows(record))


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


# JUnit XML as Jenkins and GitLab read it: a case for each cell, and nothing that their schema does not have.

# The content model of junit-10.xsd, of Jenkins' xUnit plugin: children and attributes by element, required ones with !.
CHILDREN = {
    "testsuite": {"properties", "testcase", "system-out", "system-err"},
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
    "properties": {"property"},
}


ATTRIBUTES = {
    "testsuite": {"!name", "!tests", "!failures", "!errors", "skipped", "timestamp", "hostname", "id", "package"},
    "testcase": {"!name", "time", "classname", "group"},
    "property": {"!name", "!value"},
    "failure": {"type", "message"},
    "skipped": {"type", "message"},
}


PROVENANCE = RecordedProvenance.model_validate(
    {
        "sessions": [{"qemu": "QEMU 7.2.22", "compiler": "gcc 12.2.0", "host": {"cpus": 2}}],
        "boots": [
            {
                "name": "boot1/guest1",
                "kernel": {"name": "debian-686", "release": "6.1.0-50-686", "packages": {"linux-image": "6.1.176-1"}},
            }
        ],
    }
)


def violations(element: ElementTree.Element) -> list[str]:
    attributes = ATTRIBUTES.get(element.tag, set())
    required = {name[1:] for name in attributes if name.startswith("!")}
    found = [f"{element.tag} has {name}" for name in set(element.keys()) - required - attributes]
    found += [f"{element.tag} lacks {name}" for name in required - set(element.keys())]
    for child in element:
        if child.tag not in CHILDREN.get(element.tag, set()):
            found.append(f"{child.tag} in {element.tag}")
        found += violations(child)
    return found


def cases(record: RunRecord) -> list[TestCase]:
    suite = TestSuite.fromstring(render_junit(record, PROVENANCE, {}))
    return list(suite)


def figures(case: TestCase) -> dict[str, str]:
    lines = (case.system_out or "").splitlines()
    assert all(line.startswith("[[PROPERTY|") and line.endswith("]]") for line in lines)
    return dict(line[len("[[PROPERTY|") : -2].partition("=")[::2] for line in lines)


def test_the_suite_has_the_runs_numbers_and_what_it_was_made_with() -> None:
    suite = TestSuite.fromstring(render_junit(RUNS["with_failures"], PROVENANCE, {}))
    assert (suite.name, suite.tests, suite.failures, suite.errors, suite.skipped) == ("quickstart", 4, 1, 0, 1)
    assert suite.timestamp == "2026-11-21T01:45:02"
    properties = {one.name: one.value for one in suite.properties()}
    assert properties["qemu"] == "QEMU 7.2.22"
    assert properties["kernel.debian-686.linux-image"] == "6.1.176-1"
    assert "time=" not in render_junit(RUNS["with_failures"], PROVENANCE, {})


def test_a_number_comes_with_its_evidence() -> None:
    (case,) = cases(run(cell("djprobe")))
    assert (case.name, case.classname) == ("pentium4/debian-686/djprobe/noop", "quickstart.gtodbench")
    shown = figures(case)
    assert (shown["value"], shown["overhead"], shown["unit"]) == ("462.0", "53.0", "instructions")
    assert json.loads(shown["evidence"])["hits"] == 5000
    assert not case.result


def test_a_cell_without_a_number_has_its_reason() -> None:
    reason = "the guest's kernel panicked <here>\n[  1.2] Kernel panic & more ]]>"
    first, second = cases(run(failed("kprobe", reason), failed("jprobe", "no such probe", status="unsupported")))
    (failure,), (skip,) = first.result, second.result
    assert isinstance(failure, Failure)
    assert (failure.message, failure.text) == ("the guest's kernel panicked <here>", reason)
    assert isinstance(skip, Skipped)
    assert (skip.message, skip.type) == ("no such probe", "unsupported")


def test_a_failure_has_what_its_guest_printed_last() -> None:
    record = run(cell("none"), failed("kprobe", "the proof is not complete"))
    text = render_junit(record, PROVENANCE, {record.cells[1].id: "[  1.2] a line\n[  1.3] <last>"})
    assert violations(ElementTree.fromstring(text)) == []
    first, second = TestSuite.fromstring(text)
    assert (first.system_err, second.system_err) == (None, "[  1.2] a line\n[  1.3] <last>")


@pytest.mark.parametrize("name", sorted(set(RUNS) - {"empty"}))
def test_it_is_as_the_schema_of_jenkins_wants_it(name: str) -> None:
    assert violations(ElementTree.fromstring(render_junit(RUNS[name], RecordedProvenance(), {}))) == []


@given(st.lists(cells(), min_size=1, max_size=4, unique_by=lambda drawn: drawn.id))
def test_any_run_gives_a_document_with_every_cell(drawn: list[CellRecord]) -> None:
    text = render_junit(run(*drawn), PROVENANCE, {})
    assert violations(ElementTree.fromstring(text)) == []
    assert [case.name for case in cases(run(*drawn))] == [one.id for one in drawn]


def test_a_run_without_cells_is_refused() -> None:
    with pytest.raises(UsageError, match="has an outcome yet"):
        render_junit(run(), PROVENANCE, {})


# Bencher Metric Format: https://bencher.dev/docs/reference/bencher-metric-format

BENCHER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"maxLength": 1024},
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"maxLength": 64},
        "additionalProperties": {
            "type": "object",
            "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
            "required": ["value"],
            "additionalProperties": False,
        },
    },
}
"""Stricter than https://bencher.dev/bmf.json in that nothing else may be there; the lengths are of the page."""


def bencher(record: RunRecord) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render_bencher(record))
    jsonschema.validate(found, BENCHER)
    return found


def test_bencher_has_each_number_with_its_interval() -> None:
    exact = cell("kprobe", samples=[1036.0] * 2, value=1036.0, overhead=627.0, interval=[627.0, 627.0])
    found = bencher(run(cell("none"), exact, failed("jprobe", "the guest hangs")))
    assert list(found) == ["pentium4/debian-686/none/noop", exact.id]
    overhead = {"value": 627.0, "lower_value": 627.0, "upper_value": 627.0}
    assert found[exact.id] == {"instructions": {"value": 1036.0}, "overhead": overhead}
    for times in bencher(RUNS["wall"]).values():
        value = times["nanoseconds"]
        assert value["lower_value"] <= value["value"] <= value["upper_value"]


@given(st.lists(cells(), max_size=5, unique_by=lambda drawn: drawn.id))
def test_bencher_takes_any_run_with_a_number(drawn: list[CellRecord]) -> None:
    if any(one.value is not None for one in drawn):
        assert list(bencher(run(*drawn))) == [one.id for one in drawn if one.value is not None]
    else:
        with pytest.raises(UsageError, match="has a number"):
            render_bencher(run(*drawn))
