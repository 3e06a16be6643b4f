# SPDX-License-Identifier: GPL-2.0-only
"""A run for KCIDB, the database of the kernel's CI systems: its I/O schema 5.3, as JSON.

Each kernel is a checkout and a build, each cell a test run whose ``number`` is the cell's value. Ids have the run's id,
so that a run that is submitted again replaces itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from orchestrator.catalog.kernels import kernels
from orchestrator.errors import UsageError
from orchestrator.report.export import check_exportable, first_line, started
from orchestrator.report.wording import processors
from orchestrator.results.contract import CellRecord, RunRecord, Status
from orchestrator.results.origin import Origin

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
        "tests": [{**_test(run, origin, system, cell), "log_excerpt": _excerpt(cell, consoles)} for cell in run.cells],
    }
    return json.dumps(_known(report), indent=2) + "\n"


def _checkout(run: RunRecord, origin: Origin, system: str, kernel: str) -> dict[str, Any]:
    begun = started(run)
    packages = next((boot.kernel.packages for boot in origin.boots if boot.kernel.name == kernel), {})
    return {
        "id": _id(run, system, kernel),
        "origin": system,
        "comment": f"kernel {kernel}",
        "start_time": None if begun is None else begun.isoformat(),
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


def _test(run: RunRecord, origin: Origin, system: str, cell: CellRecord) -> dict[str, Any]:
    session = origin.sessions[-1] if origin.sessions else None
    proof = cell.evidence or cell.work
    machine = {"cpu": cell.cpu, "smp": cell.smp, "accelerator": cell.parameters.get("accelerator")}
    begun = started(run)
    return {
        "id": _id(run, system, cell.id),
        "build_id": _id(run, system, cell.kernel),
        "origin": system,
        "path": _path(run, cell),
        "comment": f"{cell.metric}, clock {cell.clock}" if cell.reason is None else first_line(cell),
        "status": _STATUS[cell.status],
        "number": None if cell.value is None else {"value": cell.value, "unit": cell.unit},
        "start_time": None if begun is None else begun.isoformat(),
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
    }


def _excerpt(cell: CellRecord, consoles: Mapping[str, str]) -> str | None:
    """Why a cell has no number, and what its guest printed last."""
    parts = [part for part in (cell.reason, consoles.get(cell.id)) if part]
    return "\n\n".join(parts)[:_LONGEST_EXCERPT] or None


def _id(run: RunRecord, system: str, name: str) -> str:
    return f"{system}:{run.run}:{name}"


def _path(run: RunRecord, cell: CellRecord) -> str:
    """Experiment, table, benchmark, probe and handler, as the names of a tree."""
    names = (run.experiment, cell.table, cell.benchmark, cell.probe, cell.handler)
    return ".".join(_NOT_OF_A_PATH.sub("_", name) for name in names if name)


def _known(value: Any) -> Any:
    """Without what is None: KCIDB has no null, and what is left out means that it is not known."""
    if isinstance(value, dict):
        return {name: _known(one) for name, one in value.items() if one is not None and one != {}}
    if isinstance(value, list | tuple):
        return [_known(one) for one in value]
    return value
