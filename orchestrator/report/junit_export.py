# SPDX-License-Identifier: GPL-2.0-only
"""Runs as JUnit XML, a test case for each cell.

Jenkins' schema (xUnit plugin, ``junit-10.xsd``) has properties of a suite, but not of a test case: a cell's figures are
lines ``[[PROPERTY|name=value]]`` of its output, which test management systems read as properties.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from junitparser import Error, Failure, Skipped, TestCase, TestSuite

from orchestrator.errors import UsageError
from orchestrator.program import PROGRAM
from orchestrator.report.output import Output
from orchestrator.report.run_view import RunView
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.recorded_provenance import RecordedProvenance, provenance_of
from orchestrator.results.run_files import last_lines


def render_junit(
    run: RunRecord,
    provenance: RecordedProvenance,
    consoles: Mapping[str, str],
    exceeded: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """``run`` with its provenance as one suite. Raises UsageError for a run without cells.

    ``consoles`` has the last console lines of failed cells, ``exceeded`` the sentences on exceeded budgets, both by
    cell id. Cells that exceed their budgets fail, even missing ones.
    """
    if not run.cells:  # CI systems would accept an empty suite
        hint = f"resume it: {PROGRAM} run CONFIG --resume"
        raise UsageError(f"no cell of run {run.run} has an outcome yet", hint=hint)
    wrong = exceeded or {}
    suite = TestSuite(run.experiment)
    with suppress(ValueError):  # a directory from another machine has the time in the id only
        suite.timestamp = datetime.strptime(run.run[: len("20261122-142920")], "%Y%m%d-%H%M%S").isoformat()
    for name, value in _properties(run, provenance):
        suite.add_property(name, value)
    for cell in run.cells:
        suite.append(_case(run, cell, consoles.get(cell.id), wrong.get(cell.id, ())))
    missing = [id_ for id_ in wrong if id_ not in {cell.id for cell in run.cells}]
    for id_ in missing:
        suite.append(_over_budget(TestCase(id_, classname=run.experiment), wrong[id_]))
    # Not update_statistics(), which would set unknown times to 0.
    states = Counter(cell.status for cell in run.cells if cell.id not in wrong)
    suite.tests, suite.errors = len(run.cells) + len(missing), 0
    suite.failures = states["failed"] + len(wrong)
    suite.skipped = states["skipped"] + states["unsupported"]
    return f"{suite.tostring().decode()}\n"


def unmeasured_junit(experiment: str, reason: str) -> str:
    """A suite with one error that says why nothing was measured, so that an earlier file is not taken for this run."""
    suite = TestSuite(experiment)
    error = Error(reason.splitlines()[0] if reason else "", "not measured")
    suite.append(_with_result(TestCase("measurement", classname=experiment), error, reason))
    suite.tests, suite.failures, suite.errors, suite.skipped = 1, 0, 1, 0
    return f"{suite.tostring().decode()}\n"


def _properties(run: RunRecord, provenance: RecordedProvenance) -> Iterator[tuple[str, str]]:
    yield "run", run.run
    for name in ("orchestrator", "qemu", "compiler", "guests"):
        if text := getattr(provenance.session, name):
            yield name, text
    yield from ((f"host.{name}", text) for name, text in provenance.session.host.items())
    for kernel in {boot.kernel.name: boot.kernel for boot in provenance.boots}.values():
        yield f"kernel.{kernel.name}", kernel.release
        yield from ((f"kernel.{kernel.name}.{package}", version) for package, version in kernel.packages.items())


def _case(run: RunRecord, cell: CellRecord, console: str | None, exceeded: Sequence[str]) -> TestCase:
    case = TestCase(cell.id, classname=".".join(filter(None, (run.experiment, cell.table, cell.benchmark))))
    if cell.status == "failed":
        _with_result(case, Failure(cell.first_line, "failed"), cell.reason)
    elif exceeded:
        _over_budget(case, [*exceeded, *([cell.reason] if cell.reason else [])])
    elif cell.status != "ok":
        _with_result(case, Skipped(cell.first_line, cell.status), cell.reason)
    case.system_out = "\n".join(f"[[PROPERTY|{name}={value}]]" for name, value in _figures(cell))
    if console is not None:
        case.system_err = console
    return case


def _over_budget(case: TestCase, why: Sequence[str]) -> TestCase:
    return _with_result(case, Failure(why[0], "budget exceeded"), "\n".join(why))


def _with_result(case: TestCase, result: Failure | Skipped | Error, text: str | None) -> TestCase:
    result.text = text or ""
    case.result = [result]
    return case


def _figures(cell: CellRecord) -> Iterator[tuple[str, str]]:
    yield from {"status": cell.status, "metric": cell.metric, "clock": cell.clock, "unit": cell.unit}.items()
    for name, amount in (("value", cell.value), ("overhead", cell.overhead)):
        if amount is not None:
            yield name, repr(amount)
    if cell.interval is not None:
        yield "interval", " ".join(map(repr, cell.interval))
    if cell.verdict is not None:
        yield "verdict", cell.verdict
    proof = cell.evidence or cell.work
    if proof is not None:
        yield "evidence", json.dumps(proof.model_dump(mode="json", exclude_none=True))


def write(printed: RunView, output: Output) -> None:
    """Write JUnit XML, with the last console lines of failed cells."""
    run = printed.run
    consoles = last_lines(run.directory, [cell.id for cell in run.record.cells if cell.status == "failed"])
    output.text(render_junit(run.record, provenance_of(run.directory), consoles))
