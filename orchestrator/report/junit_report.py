# SPDX-License-Identifier: GPL-2.0-only
"""A run for CI systems, as JUnit XML: a test case for each cell.

Jenkins' schema (xUnit plugin, ``junit-10.xsd``) has properties of a suite, and none of a test case: a cell's figures
are lines ``[[PROPERTY|name=value]]`` of its output, which test management systems read as such.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from junitparser import Error, Failure, Skipped, TestCase, TestSuite

from orchestrator.report.export import check_exportable, first_line, started
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.origin import Origin


def render_junit(
    run: RunRecord, origin: Origin, consoles: Mapping[str, str], beyond: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return ``run``, made with ``origin``, as one suite. Raises UsageError for a run without cells.

    ``consoles`` has the last lines of failed cells' consoles, by the cells' ids; ``beyond``, in the same way, why cells
    that were compared are beyond their budget: they fail, also those that have no number any more, or no cell.
    """
    check_exportable(run)
    wrong = beyond or {}
    suite = TestSuite(run.experiment)
    begun = started(run)
    if begun is not None:
        suite.timestamp = begun.replace(tzinfo=None).isoformat()
    for name, value in _properties(run, origin):
        suite.add_property(name, value)
    for cell in run.cells:
        suite.append(_case(run, cell, consoles.get(cell.id), wrong.get(cell.id, ())))
    gone = [id_ for id_ in wrong if id_ not in {cell.id for cell in run.cells}]
    for id_ in gone:
        suite.append(_dear(TestCase(id_, classname=run.experiment), wrong[id_]))
    # Not update_statistics(): it sets a time of 0, where the cells' times are not known.
    states = Counter(cell.status for cell in run.cells if cell.id not in wrong)
    suite.tests, suite.errors = len(run.cells) + len(gone), 0
    suite.failures = states["failed"] + len(wrong)
    suite.skipped = states["skipped"] + states["unsupported"]
    return f"{suite.tostring().decode()}\n"


def unmeasured_junit(experiment: str, reason: str) -> str:
    """A suite with one case, which says why nothing was measured: an earlier file would be taken for a good one."""
    suite = TestSuite(experiment)
    case = TestCase("measurement", classname=experiment)
    error = Error(reason.splitlines()[0] if reason else "", "not measured")
    error.text = reason
    case.result = [error]
    suite.append(case)
    suite.tests, suite.failures, suite.errors, suite.skipped = 1, 0, 1, 0
    return f"{suite.tostring().decode()}\n"


def _properties(run: RunRecord, origin: Origin) -> Iterator[tuple[str, str]]:
    yield "run", run.run
    if origin.sessions:
        session = origin.sessions[-1]
        tools = {"orchestrator": session.orchestrator, "qemu": session.qemu, "compiler": session.compiler}
        yield from ((name, text) for name, text in {**tools, "guests": session.guests}.items() if text)
        yield from ((f"host.{name}", text) for name, text in session.host.items())
    for kernel in {boot.kernel.name: boot.kernel for boot in origin.boots}.values():
        yield f"kernel.{kernel.name}", kernel.release
        yield from ((f"kernel.{kernel.name}.{package}", version) for package, version in kernel.packages.items())


def _case(run: RunRecord, cell: CellRecord, console: str | None, beyond: Sequence[str]) -> TestCase:
    case = TestCase(cell.id, classname=".".join(filter(None, (run.experiment, cell.table, cell.benchmark))))
    if cell.status == "failed":
        failure = Failure(first_line(cell), "failed")
        failure.text = cell.reason or ""
        case.result = [failure]
    elif beyond:
        _dear(case, [*beyond, *([cell.reason] if cell.reason else [])])
    elif cell.status != "ok":
        skipped = Skipped(first_line(cell), cell.status)
        skipped.text = cell.reason or ""
        case.result = [skipped]
    case.system_out = "\n".join(f"[[PROPERTY|{name}={value}]]" for name, value in _figures(cell))
    if console is not None:
        case.system_err = console
    return case


def _dear(case: TestCase, why: Sequence[str]) -> TestCase:
    """A case that is beyond its budget, which sentences say."""
    failure = Failure(why[0], "beyond budget")
    failure.text = "\n".join(why)
    case.result = [failure]
    return case


def _figures(cell: CellRecord) -> Iterator[tuple[str, str]]:
    yield "status", cell.status
    yield "metric", cell.metric
    yield "clock", cell.clock
    yield "unit", cell.unit
    if cell.value is not None:
        yield "value", repr(cell.value)
    if cell.overhead is not None:
        yield "overhead", repr(cell.overhead)
    if cell.interval is not None:
        yield "interval", " ".join(map(repr, cell.interval))
    if cell.verdict is not None:
        yield "verdict", cell.verdict
    proof = cell.evidence or cell.work
    if proof is not None:
        yield "evidence", json.dumps(proof.model_dump(mode="json", exclude_none=True))
