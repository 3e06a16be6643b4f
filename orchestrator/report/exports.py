# SPDX-License-Identifier: GPL-2.0-only
"""A run for other programs: CSV, JUnit XML and KCIDB."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from junitparser import Error, Failure, Skipped, TestCase, TestSuite
from pydantic import BaseModel

from orchestrator.catalog.kernels import kernels
from orchestrator.errors import UsageError
from orchestrator.program import PROGRAM
from orchestrator.report.kind import processors
from orchestrator.report.sheet import csv_text
from orchestrator.results.contract import CellRecord, Evidence, ReferenceValue, RunRecord, Status, WorkEvidence
from orchestrator.results.origin import Origin

# What the forms for other systems share.

_BEGINNING = "%Y%m%d-%H%M%S"
"""Of a run's id: when it began, UTC."""
_LENGTH = len("20261122-142920")


def check_exportable(run: RunRecord) -> None:
    """Raise UsageError for a run without an outcome: other systems take it for a good one, or refuse it."""
    if not run.cells:
        raise UsageError(
            f"no cell of run {run.run} has an outcome yet", hint=f"go on with it: {PROGRAM} run CONFIG --resume"
        )


def started(run: RunRecord) -> datetime | None:
    """When the run began, by its id: a directory from another machine says it nowhere else."""
    try:
        return datetime.strptime(run.run[:_LENGTH], _BEGINNING).replace(tzinfo=UTC)
    except ValueError:
        return None


# A run for spreadsheets and statistics programs: one row per cell, in columns that are the same for every run.

_NESTED: dict[str, type[BaseModel]] = {"evidence": Evidence, "work": WorkEvidence, "reference": ReferenceValue}
"""Fields with a column for each of theirs."""
_OPEN = ("parameters", "purposes")
"""Fields whose names differ from run to run: each is one column, of JSON."""
_LEFT_OUT = ("text", "profile")
"""Fields with lists, or with a file of their own, which a row has no columns for; the JSON report has them."""
_LATER = ("worker",)
"""Fields that came later: their columns are behind all others."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")

_Scalar = str | int | float | bool | None


def render_csv(run: RunRecord) -> str:
    """Return ``run`` as RFC 4180 text with a header line, which depends on this program's version alone.

    Samples are joined by blanks, notes by lines. A text that a spreadsheet would take for a formula is led by an
    apostrophe; figures are left as they are.
    """
    names = {"run": run.run, "experiment": run.experiment}
    return csv_text(_columns(), ({**names, **_row(cell)} for cell in run.cells))


def _columns() -> list[str]:
    columns = ["run", "experiment"]
    for name in CellRecord.model_fields:
        if name == "interval":
            columns += ["low", "high"]
        elif name not in (*_NESTED, *_OPEN, *_LEFT_OUT, *_LATER):
            columns.append(name)
    columns += _OPEN
    columns += [f"{group}.{name}" for group, model in _NESTED.items() for name in model.model_fields]
    return [*columns, *_LATER]


def _row(cell: CellRecord) -> dict[str, str]:
    plain = cell.model_dump(mode="json")
    low, high = plain.pop("interval") or (None, None)
    row: dict[str, _Scalar] = {
        **{name: value for name, value in plain.items() if name not in (*_NESTED, *_OPEN, *_LEFT_OUT, "samples")},
        **{name: json.dumps(plain[name]) for name in _OPEN if plain.get(name)},
        "notes": "\n".join(cell.notes),
        "low": low,
        "high": high,
    }
    for group in _NESTED:
        row |= {f"{group}.{name}": value for name, value in (plain.get(group) or {}).items()}
    fields = {name: _field(value) for name, value in row.items() if value is not None}
    return {**fields, "samples": " ".join(map(repr, cell.samples))}


def _field(value: _Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    return repr(value)


# A run for CI systems, as JUnit XML: a test case for each cell.
#
# Jenkins' schema (xUnit plugin, ``junit-10.xsd``) has properties of a suite, and none of a test case: a cell's figures
# are lines ``[[PROPERTY|name=value]]`` of its output, which test management systems read as such.


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
    error = Error(reason.splitlines()[0] if reason else "", "not measured")
    suite.append(_ended(TestCase("measurement", classname=experiment), error, reason))
    suite.tests, suite.failures, suite.errors, suite.skipped = 1, 0, 1, 0
    return f"{suite.tostring().decode()}\n"


def _properties(run: RunRecord, origin: Origin) -> Iterator[tuple[str, str]]:
    yield "run", run.run
    for name in ("orchestrator", "qemu", "compiler", "guests"):
        if text := getattr(origin.session, name):
            yield name, text
    yield from ((f"host.{name}", text) for name, text in origin.session.host.items())
    for kernel in {boot.kernel.name: boot.kernel for boot in origin.boots}.values():
        yield f"kernel.{kernel.name}", kernel.release
        yield from ((f"kernel.{kernel.name}.{package}", version) for package, version in kernel.packages.items())


def _case(run: RunRecord, cell: CellRecord, console: str | None, beyond: Sequence[str]) -> TestCase:
    case = TestCase(cell.id, classname=".".join(filter(None, (run.experiment, cell.table, cell.benchmark))))
    if cell.status == "failed":
        _ended(case, Failure(cell.first_line, "failed"), cell.reason)
    elif beyond:
        _dear(case, [*beyond, *([cell.reason] if cell.reason else [])])
    elif cell.status != "ok":
        _ended(case, Skipped(cell.first_line, cell.status), cell.reason)
    case.system_out = "\n".join(f"[[PROPERTY|{name}={value}]]" for name, value in _figures(cell))
    if console is not None:
        case.system_err = console
    return case


def _dear(case: TestCase, why: Sequence[str]) -> TestCase:
    """A case that is beyond its budget, which sentences say."""
    return _ended(case, Failure(why[0], "beyond budget"), "\n".join(why))


def _ended(case: TestCase, result: Failure | Skipped | Error, text: str | None) -> TestCase:
    result.text = text or ""
    case.result = [result]
    return case


def _figures(cell: CellRecord) -> Iterator[tuple[str, str]]:
    yield from {"status": cell.status, "metric": cell.metric, "clock": cell.clock, "unit": cell.unit}.items()
    for name, one in (("value", cell.value), ("overhead", cell.overhead)):
        if one is not None:
            yield name, repr(one)
    if cell.interval is not None:
        yield "interval", " ".join(map(repr, cell.interval))
    if cell.verdict is not None:
        yield "verdict", cell.verdict
    proof = cell.evidence or cell.work
    if proof is not None:
        yield "evidence", json.dumps(proof.model_dump(mode="json", exclude_none=True))


# A run for KCIDB, the database of the kernel's CI systems: its I/O schema 5.3, as JSON.
#
# Each kernel is a checkout and a build, each cell a test run whose ``number`` is the cell's value. Ids have the run's
# id, so that a run that is submitted again replaces itself.

ORIGIN = "probe_lab"
"""The name of the CI system, unless the user gives his own."""
_ORIGIN_NAME = re.compile(r"[a-z0-9_]+")
_NOT_OF_A_PATH = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_EXCERPT = 16384
"""Characters, by the schema; a reason has at most 4000."""

_STATUS: Mapping[Status, str] = {"ok": "DONE", "failed": "ERROR", "skipped": "SKIP", "unsupported": "SKIP"}
"""DONE: a measurement, which says nothing on whether the kernel is right. ERROR: it did not come to a proved number."""


def render_kcidb(run: RunRecord, origin: Origin, consoles: Mapping[str, str], system: str = ORIGIN) -> str:
    """Return ``run``, made with ``origin``, as it is submitted by the CI system named ``system``.

    ``consoles`` has the last lines of failed cells' consoles, by the cells' ids. Raises UsageError for a run
    without cells and for a name that KCIDB refuses.
    """
    check_exportable(run)
    if not _ORIGIN_NAME.fullmatch(system):
        raise UsageError(f"found '{system}'; KCIDB's origins are of a-z, 0-9 and _", where="--origin")
    names = dict.fromkeys(cell.kernel for cell in run.cells)
    report = {
        "version": {"major": 5, "minor": 3},
        "checkouts": [_checkout(run, origin, system, name) for name in names],
        "builds": [_build(run, origin, system, name) for name in names],
        "tests": [_test(run, origin, system, cell, consoles.get(cell.id)) for cell in run.cells],
    }
    return json.dumps(_known(report), indent=2) + "\n"


def _checkout(run: RunRecord, origin: Origin, system: str, kernel: str) -> dict[str, Any]:
    packages = next((boot.kernel.packages for boot in origin.boots if boot.kernel.name == kernel), {})
    return {
        "id": _id(run, system, kernel),
        "origin": system,
        "comment": f"kernel {kernel}",
        "start_time": _start_time(run),
        "valid": True,
        "misc": {"packages": packages},
    }


def _build(run: RunRecord, origin: Origin, system: str, kernel: str) -> dict[str, Any]:
    known = kernels().get(kernel.partition("@")[0])
    booted = next((boot.kernel for boot in origin.boots if boot.kernel.name == kernel), None)
    return {
        "id": _id(run, system, kernel),
        "checkout_id": _id(run, system, kernel),
        "origin": system,
        "architecture": known.arch if known else None,
        "config_name": kernel,
        "comment": booted.release if booted else None,
        "status": "PASS" if booted else None,
        "misc": {"image_sha256": booted.image_sha256, "release": booted.release} if booted else None,
    }


def _test(run: RunRecord, origin: Origin, system: str, cell: CellRecord, console: str | None) -> dict[str, Any]:
    session = origin.sessions[-1] if origin.sessions else None
    proof = cell.evidence or cell.work
    tree = (run.experiment, cell.table, cell.benchmark, cell.probe, cell.handler)
    machine = {"cpu": cell.cpu, "smp": cell.smp, "accelerator": cell.parameters.get("accelerator")}
    return {
        "id": _id(run, system, cell.id),
        "build_id": _id(run, system, cell.kernel),
        "origin": system,
        "path": ".".join(_NOT_OF_A_PATH.sub("_", name) for name in tree if name),
        "comment": f"{cell.metric}, clock {cell.clock}" if cell.reason is None else cell.first_line,
        "status": _STATUS[cell.status],
        "number": None if cell.value is None else {"value": cell.value, "unit": cell.unit},
        "start_time": _start_time(run),
        "environment": {
            "comment": f"QEMU guest: {cell.cpu}, {processors(cell)}",
            "misc": {**machine, "qemu": session.qemu, "host": session.host} if session else machine,
        },
        "misc": {
            "run": run.run,
            "cell": cell.id,
            "overhead": cell.overhead,
            "interval": cell.interval,
            "samples": cell.samples,
            "verdict": cell.verdict,
            "parameters": cell.parameters,
            "evidence": None if proof is None else proof.model_dump(mode="json"),
        },
        "log_excerpt": "\n\n".join(filter(None, (cell.reason, console)))[:_LONGEST_EXCERPT] or None,
    }


def _start_time(run: RunRecord) -> str | None:
    begun = started(run)
    return None if begun is None else begun.isoformat()


def _id(run: RunRecord, system: str, name: str) -> str:
    return f"{system}:{run.run}:{name}"


def _known(value: Any) -> Any:
    """Without what is None: KCIDB has no null, and what is left out means that it is not known."""
    if isinstance(value, dict):
        return {name: _known(one) for name, one in value.items() if one is not None and one != {}}
    if isinstance(value, list | tuple):
        return [_known(one) for one in value]
    return value
