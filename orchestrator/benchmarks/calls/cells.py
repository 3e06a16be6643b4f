# SPDX-License-Identifier: GPL-2.0-only
"""The cells of a table of calls, in their order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.outcome import phrase
from orchestrator.benchmarks.calls.probe_kinds import call_probe
from orchestrator.benchmarks.calls.table import CallsTable, FoundPoint
from orchestrator.benchmarks.calls.task import CallCell, CallTask
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.one_liner import shortened
from orchestrator.catalog.probes import BASELINE, Handler, ProbeKind
from orchestrator.catalog.reference import reference_table
from orchestrator.catalog.user_library import find_library
from orchestrator.catalog.user_probe import shown_name
from orchestrator.experiment.cell import Cell, cell_id, machine_id, module_parameters, rows_on
from orchestrator.experiment.file.fields import EXECUTED
from orchestrator.experiment.machine import Machine
from orchestrator.results.contract import PER_CALL, PER_RUN, ReferenceValue


def call_cells(name: str | None, table: CallsTable) -> Iterator[CallCell]:
    """Each machine's and kernel's cells by point and handler, the baseline first."""
    for machine, (kernel, probes) in product(
        table.machines, rows_on(table.kernels, table.probes, table.kernel_for).items()
    ):
        for point, handler in product(table.points_on(machine, kernel), table.handlers):
            place = _Place(name, table, machine, kernel, point, handler)
            yield from (_cell(place, probe) for probe in probes if _has_cell(place, probe))


def profiled_cell(table: CallsTable, machine: Machine, kernel: str) -> CallCell:
    """A cell that makes the table's calls without a probe, in a guest that counts."""
    return replace(_cell(_Place(None, table, machine, kernel, None, "noop"), BASELINE), profile=("symbols",))


@dataclass(frozen=True)
class _Place:
    """What cells that are compared with one baseline have in common."""

    name: str | None
    table: CallsTable
    machine: Machine
    kernel: str
    point: FoundPoint | None
    handler: Handler

    def id(self, probe: str) -> str:
        parts = [machine_id(self.machine), kernel_spec(self.kernel).name, probe, self.handler]
        # An id has no colon: it is part of file names and of addresses in pages.
        return cell_id(self.name, *parts, *([] if self.point is None else [self.point.name.replace(":", "=")]))


def _cell(place: _Place, probe: str) -> CallCell:
    table, machine, benchmark = place.table, place.machine, place.table.benchmark
    kind = call_probe(probe)
    call = benchmarks()[benchmark.name].call or benchmark.call
    return Cell(
        id=place.id(kind.name),
        table=place.name,
        cpu=machine.cpu,
        smp=machine.smp,
        memory_mib=machine.memory_mib,
        kernel=place.kernel,
        row=kind.name,
        handler=place.handler,
        benchmark=benchmark.name,
        metric=PER_RUN if benchmark.is_program else PER_CALL,
        repeats=table.repeats,
        clock=table.clock,
        image=table.image,
        channel=table.channel,
        time_limit=table.time_limit,
        task=CallTask(
            probe=probe,
            point=None if place.point is None else place.point.name,
            calls=benchmark.calls,
            entry=benchmark.entry,
            call=call,
            arguments=benchmark.arguments,
            file=benchmark.file,
            hits=benchmark.hits if place.point is None or place.point.hits is None else place.point.hits,
            expected=benchmark.expect,
            is_found=table.points == EXECUTED or (place.point is not None and place.point.among is not None),
            refusal=None if place.point is None else place.point.refusal_of(kind),
            libraries=benchmark.libraries or (),
        ),
        parameters={**_parameters(table, call, place.point), **module_parameters(kind), **_line_of(kind)},
        published=_published(table.reference, kind.column),
        profile=table.profile or (),
        compared_with=() if probe == BASELINE or _is_refused(place) else (place.id(BASELINE),),
        kernel_modules=table.kernel_modules or (),
    )


def _has_cell(place: _Place, probe: str) -> bool:
    """Whether a probe has a cell there: a baseline where something is probed, nothing else where no point is known."""
    if probe == BASELINE:
        return not _is_refused(place)
    return place.point is not None or place.table.points != EXECUTED


def _is_refused(place: _Place) -> bool:
    return place.point is not None and place.point.refusal is not None


def _parameters(table: CallsTable, call: str | None, point: FoundPoint | None) -> dict[str, str | int]:
    parameters: dict[str, str | int] = {}
    arguments = table.benchmark.arguments or benchmarks()[table.benchmark.name].arguments
    if call is not None:
        parameters["call"] = call
    if call is not None or table.benchmark.is_program:
        parameters["arguments"] = phrase(json.dumps(arguments, default=dict))
    if table.benchmark.expect is not None:
        parameters["expect"] = table.benchmark.expect
    if table.benchmark.file is not None:
        parameters["workload"] = shown_name(Path(table.benchmark.file))
    if table.benchmark.libraries:
        parameters["libraries"] = phrase(", ".join(find_library(one).name for one in table.benchmark.libraries))
    if point is not None:
        parameters["at"] = point.name
        found_by = EXECUTED if table.points == EXECUTED else point.among
        if found_by is not None:
            parameters["points"] = found_by
    return {**parameters, **_guest_parameters(table)}


def _line_of(kind: ProbeKind) -> dict[str, str]:
    """A one-liner as it heads its column; its name in results ends with a digest."""
    return {} if kind.one_liner is None else {"one_liner": shortened(kind.one_liner)}


def _guest_parameters(table: CallsTable) -> dict[str, str]:
    """What its guests have that others have not."""
    parameters: dict[str, str] = {}
    if table.image is not None:
        parameters["image"] = shown_name(Path(table.image))
    if table.channel != "framed":
        parameters["channel"] = table.channel
    if table.kernel_modules:
        parameters["kernel_modules"] = phrase(", ".join(table.kernel_modules))
    return parameters


def _published(reference: str | None, column: str | None) -> ReferenceValue | None:
    if reference is None or column is None:
        return None
    table = reference_table(reference)
    if column not in table.columns:
        return None
    return ReferenceValue(table=table.id, value=table.average(column), overhead=table.overhead(column), unit=table.unit)
