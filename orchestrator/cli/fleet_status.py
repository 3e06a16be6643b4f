# SPDX-License-Identifier: GPL-2.0-only
"""What ``fleet status`` prints of a fleet, and what ``doctor --fleet`` finds wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from orchestrator.counted import counted
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from orchestrator.fleet.facts import Versions
    from orchestrator.fleet.survey import Surveyed
    from orchestrator.fleet.target import Target
    from orchestrator.host.findings import Finding

_HEADER = ("worker", "guests", "running", "MiB", "host", "version", "python", "qemu", "problem")
_VERSION = re.compile(r"version (\S{1,40})")
_LITTLE_MB = 2000


def print_status(fleet: Target, *, as_json: bool) -> bool:
    """Print a fleet's scheduler and workers; whether all are there that it was to have."""
    from orchestrator.cli.columns import print_columns
    from orchestrator.fleet.survey import survey

    workers = survey(fleet)
    missing = _missing(fleet, workers)
    if as_json:
        typer.echo(json.dumps(_as_data(fleet, workers, missing), indent=2))
    else:
        name = "" if fleet.state is None else f" ({fleet.state.name}, kept by process {fleet.state.keeper})"
        typer.echo(f"scheduler {fleet.address}{name}")
        print_columns(
            _HEADER, [*map(_row, workers), *([one, *[""] * (len(_HEADER) - 2), "missing"] for one in missing)]
        )
    return not missing and bool(workers) and all(one.answer.offer is not None for one in workers)


def examine_fleet(fleet: Target) -> list[Finding]:
    """What a run would find wrong with the workers of a fleet, and what can be done about it."""
    from orchestrator.fleet.facts import Versions
    from orchestrator.fleet.state import log_file
    from orchestrator.fleet.survey import survey
    from orchestrator.host.findings import Finding, Status

    workers = survey(fleet)
    here = Versions.here()
    findings = [Finding("scheduler", Status.OK, fleet.address)]
    for one in workers:
        findings += _examined(one, here)
    for name in _missing(fleet, workers):
        assert fleet.state is not None
        remedy = (
            f"{log_file(fleet.state.name)} says why; start the fleet again: {PROGRAM} fleet down, {PROGRAM} fleet up"
        )
        findings.append(Finding(name, Status.MISSING, "has not joined, or has left", remedy))
    if not workers:
        findings.append(Finding("workers", Status.MISSING, "there is none", f"{PROGRAM} fleet worker {fleet.address}"))
    return findings


def _examined(worker: Surveyed, here: Versions) -> Iterator[Finding]:
    from orchestrator.host.findings import Finding, Status

    answer, name = worker.answer, worker.name
    if answer.offer is None:
        yield Finding(name, Status.MISSING, answer.problem, f"on {answer.host or 'its host'}: {PROGRAM} doctor")
        return
    other = here.difference(answer.offer.versions)
    if other is not None:
        remedy = "check out the same commit there, and install the same QEMU and Python; then start the worker again"
        yield Finding(name, Status.MISSING, f"{other}: a run refuses it", remedy)
    if not answer.is_writable:
        yield Finding(name, Status.MISSING, f"{answer.cache} cannot be written to", "name another: ORCHESTRATOR_CACHE")
        return
    offer = answer.offer
    text = f"{counted(offer.guests, 'guest')}, {offer.memory_mib} MiB, QEMU {_qemu(offer.versions.qemu)}"
    room = f"{answer.free_mb} MB free in {answer.cache}"
    if answer.free_mb < _LITTLE_MB:
        yield Finding(name, Status.WARNING, f"{room}; better {_LITTLE_MB}", f"there: {PROGRAM} cache prune")
    elif other is None:
        yield Finding(name, Status.OK, f"{text}, {room}")


def _missing(fleet: Target, workers: Sequence[Surveyed]) -> list[str]:
    there = {one.name for one in workers}
    return [] if fleet.state is None else [name for name in fleet.state.workers if name not in there]


def _row(worker: Surveyed) -> Sequence[str]:
    answer = worker.answer
    if answer.offer is None:
        return (worker.name, "", str(worker.running), "", answer.host, "", "", "", answer.problem)
    versions = answer.offer.versions
    return (
        worker.name,
        str(answer.offer.guests),
        str(worker.running),
        str(answer.offer.memory_mib),
        answer.host,
        versions.project,
        versions.python,
        _qemu(versions.qemu),
        "",
    )


def _qemu(text: str) -> str:
    """QEMU's version, of all that it says of itself."""
    found = _VERSION.search(text)
    return found[1] if found else text


def _as_data(fleet: Target, workers: Sequence[Surveyed], missing: Sequence[str]) -> dict[str, object]:
    return {
        "name": None if fleet.state is None else fleet.state.name,
        "scheduler": fleet.address,
        "keeper": None if fleet.state is None else fleet.state.keeper,
        "missing": list(missing),
        "workers": [
            {
                "name": one.name,
                "address": one.address,
                "host": one.answer.host,
                "running": one.running,
                "guests": one.answer.offer.guests if one.answer.offer else None,
                "memory_mib": one.answer.offer.memory_mib if one.answer.offer else None,
                "versions": one.answer.offer.versions.model_dump() if one.answer.offer else None,
                "problem": one.answer.problem,
            }
            for one in workers
        ],
    }
