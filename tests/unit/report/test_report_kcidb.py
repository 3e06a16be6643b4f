# SPDX-License-Identifier: GPL-2.0-only
"""What is submitted to KCIDB satisfies its own schema, and says the same each time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kcidb_io.schema import V5_3
from record_builders import cell, cells, failed, mail_table, many_probes, recorded_build, run
from report_examples import RUNS

from orchestrator.errors import UsageError
from orchestrator.report.exports import render_kcidb
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.origin import Origin

ORIGIN = Origin.model_validate(
    {
        "sessions": [{"qemu": "QEMU 7.2.22", "host": {"cpus": 2}}],
        "boots": [{"kernel": {"name": "debian-686", "release": "6.1.0-50-686", "packages": {"linux-image": "6.1-1"}}}],
    }
)


def submitted(record: RunRecord, origin: Origin = ORIGIN) -> dict[str, Any]:
    """The report, as KCIDB accepts it."""
    report: dict[str, Any] = json.loads(render_kcidb(record, origin, {}))
    assert V5_3.is_compatible_exactly(report)
    V5_3.validate_exactly(report)
    return report


def test_a_cell_is_a_test_with_its_number() -> None:
    report = submitted(run(cell("djprobe", table="list5")))
    (test,), (build,), (checkout,) = report["tests"], report["builds"], report["checkouts"]
    assert test["id"] == "probe_lab:20261121-014502-quickstart-1f3a:pentium4/debian-686/djprobe/noop"
    assert test["number"] == {"value": 462.0, "unit": "instructions"}
    assert (test["status"], test["path"]) == ("DONE", "quickstart.list5.gtodbench.djprobe.noop")
    assert test["misc"]["evidence"]["hits"] == 5000
    assert test["environment"]["misc"]["qemu"] == "QEMU 7.2.22"
    assert test["start_time"] == "2026-11-21T01:45:02+00:00"
    assert test["build_id"] == build["id"]
    assert build["checkout_id"] == checkout["id"]
    assert (build["architecture"], build["config_name"], build["status"]) == ("i386", "debian-686", "PASS")
    assert checkout["misc"]["packages"] == {"linux-image": "6.1-1"}


def test_a_cell_without_a_number_has_an_excerpt_of_its_log() -> None:
    reason = "the guest's kernel panicked\n[  1.2] Kernel panic"
    first, second = submitted(run(failed("kprobe", reason), failed("jprobe", "no", status="unsupported")))["tests"]
    assert (first["status"], first["log_excerpt"], first["comment"]) == ("ERROR", reason, "the guest's kernel panicked")
    assert (second["status"], "number" in second) == ("SKIP", False)


def test_the_excerpt_ends_with_what_the_guest_printed_last() -> None:
    record = run(failed("kprobe", "the proof is not complete"))
    report = json.loads(render_kcidb(record, ORIGIN, {record.cells[0].id: "[  1.2] a line\n" * 2000}))
    V5_3.validate_exactly(report)
    assert report["tests"][0]["log_excerpt"].startswith("the proof is not complete\n\n[  1.2] a line\n")


def test_a_kernel_that_was_not_booted_has_no_status() -> None:
    report = submitted(run(failed("kprobe", "no guest")), Origin())
    assert "status" not in report["builds"][0]


def test_each_kernel_is_one_build() -> None:
    report = submitted(run(*mail_table("x86-32")))
    assert len(report["builds"]) == len(report["checkouts"]) == len({one["build_id"] for one in report["tests"]}) == 2


@pytest.mark.parametrize("record", [*(RUNS[name] for name in RUNS if name != "empty"), run(*recorded_build())])
def test_runs_of_all_kinds_are_accepted(record: RunRecord) -> None:
    assert len(submitted(record)["tests"]) == len(record.cells)


def test_thousands_of_probes_are_accepted() -> None:
    assert submitted(run(*many_probes()))["tests"]


@given(st.lists(cells(), min_size=1, max_size=4, unique_by=lambda drawn: drawn.id))
def test_any_run_is_accepted_and_says_the_same_again(drawn: list[CellRecord]) -> None:
    report = submitted(run(*drawn))
    assert report == submitted(run(*drawn))
    assert len({test["id"] for test in report["tests"]}) == len(drawn)


def test_the_name_of_the_ci_system_is_the_users() -> None:
    assert json.loads(render_kcidb(run(cell("none")), ORIGIN, {}, "my_lab"))["tests"][0]["origin"] == "my_lab"
    with pytest.raises(UsageError, match="found 'My Lab'"):
        render_kcidb(run(cell("none")), ORIGIN, {}, "My Lab")
    with pytest.raises(UsageError, match="has an outcome yet"):
        render_kcidb(run(), ORIGIN, {})
