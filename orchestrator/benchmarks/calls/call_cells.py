# SPDX-License-Identifier: GPL-2.0-only
"""The cells of a table of calls: what each of them does, is compared with, and says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from orchestrator.benchmarks.calls.benchmarks import Entry, benchmarks, call_probe
from orchestrator.benchmarks.calls.call_programs import Argument
from orchestrator.benchmarks.calls.call_results import Expected, phrase
from orchestrator.benchmarks.calls.calls_table import CallsTable, FoundPoint
from orchestrator.catalog.price_list import priced_cpus
from orchestrator.catalog.probes import BASELINE, Handler, ProbeKind, probe_name, published_column, shortened
from orchestrator.catalog.published_tables import reference_table
from orchestrator.catalog.user_files import find_library
from orchestrator.experiment.cell import Cell, module_parameters
from orchestrator.experiment.fields import EXECUTED
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.experiment.table import MatrixRow
from orchestrator.probes.placement import refusal_of
from orchestrator.results.contract import PER_CALL, PER_RUN, ReferenceValue
from orchestrator.results.parameters import (
    ARGUMENTS,
    AT,
    CALL,
    IN_TURNS,
    KERNEL_MODULES,
    ONE_LINER,
    POINTS,
    TOOL,
    WORKLOAD,
)


@dataclass(frozen=True)
class CallTask:
    """``calls`` calls a sample, each entering the probe point ``hits`` times.

    ``refusal`` is why the cell's point cannot be probed. ``call`` names a system call that is made with ``arguments``
    and must return what is ``expected``. ``file`` is a user's workload, linked with shared ``libraries``, which are
    names in an image or absolute paths. ``run`` is a shell's command; with ``is_counted`` a run is counted by system
    call.
    """

    kind: ProbeKind = field(compare=False)
    calls: int
    entry: Entry
    call: str | None
    arguments: tuple[Argument, ...]
    file: str | None
    hits: int
    expected: Expected | None
    refusal: str | None = None
    libraries: tuple[str, ...] = ()
    run: str | None = None
    is_counted: bool = False


CallCell = Cell[CallTask]


def call_cells(name: str | None, table: CallsTable) -> Iterator[CallCell]:
    """The cells of each machine and kernel, by point and handler, baselines first."""
    for place, probes in table.places(name):
        for point, handler in product(table.points_on(place.machine, place.kernel), table.handlers):
            is_known = point.point is not None or table.points != EXECUTED
            # A refused point needs no baseline; where the points are not known yet, only the baseline is measured.
            measured = [probe for probe in probes if (point.refusal is None if probe == BASELINE else is_known)]
            yield from (_cell(table, place, point, handler, probe) for probe in measured)


def profiled_cell(table: CallsTable, machine: MachineSpec, kernel: str) -> CallCell:
    """A cell that makes the table's calls without a probe, in a guest that counts instructions."""
    return replace(
        _cell(table, MatrixRow(None, machine, kernel), FoundPoint(None), "noop", BASELINE), profile=("symbols",)
    )


def _cell(table: CallsTable, place: MatrixRow, point: FoundPoint, handler: Handler, probe: str) -> CallCell:
    kind, benchmark, at = call_probe(probe), table.benchmark, point.point
    spec = benchmarks()[benchmark.name]
    call, arguments = spec.call or benchmark.call, benchmark.arguments or spec.arguments
    workload = None if benchmark.file is None else probe_name(Path(benchmark.file))
    document, column = (
        None if table.reference is None else reference_table(table.reference),
        published_column(kind.name),
    )
    published = None
    if document is not None and column is not None and column in document.columns:
        average, overhead = document.average(column), document.overhead(column)
        published = ReferenceValue(table=document.id, value=average, overhead=overhead, unit=document.unit)
    is_exact = table.clock != "wall" and not benchmark.is_program and not table.takes_turns
    refusal = point.refusal
    if refusal is None and point.place is not None:
        refusal = refusal_of(kind, point.place)
    # A cell's id has no colon, because it is part of file names and of URLs; a slash divides its parts.
    here = (handler, *(() if at is None else (str(at).lstrip("/").replace(":", "=").replace("/", "-"),)))
    parameters: dict[str, str | int | None] = {
        CALL: call,
        ARGUMENTS: phrase(json.dumps(arguments, default=dict))
        if call or (benchmark.is_program and not benchmark.run)
        else None,
        "expect": benchmark.expect,
        WORKLOAD: workload if benchmark.run is None else phrase(benchmark.run),
        "libraries": phrase(", ".join(find_library(library).name for library in benchmark.libraries or ())) or None,
        AT: None if at is None else str(at),
        POINTS: None if at is None else at.found_by,
        **table.guest_parameters,
        KERNEL_MODULES: phrase(", ".join(table.kernel_modules or ())) or None,
        **module_parameters(kind),
        IN_TURNS: 1 if table.takes_turns else None,
        # A one-liner heads its column; its name in results ends with a digest.
        ONE_LINER: None if kind.one_liner is None else shortened(kind.one_liner),
        TOOL: None if kind.tool is None or kind.one_liner is not None else phrase(kind.tool.title),
    }
    return table.cell(
        place,
        (kind.name, *here),
        probe=kind.name,
        handler=handler,
        metric=PER_RUN if benchmark.is_program else PER_CALL,
        repeats=table.repeats,
        task=CallTask(
            kind=kind,
            calls=benchmark.calls,
            entry=benchmark.entry,
            call=call,
            arguments=benchmark.arguments,
            file=benchmark.file,
            hits=benchmark.hits if point.hits is None else point.hits,
            expected=benchmark.expect,
            refusal=refusal,
            libraries=benchmark.libraries or (),
            run=benchmark.run,
            is_counted=benchmark.is_counted,
        ),
        point=at,
        parameters={name: value for name, value in parameters.items() if value is not None},
        published=published,
        compared_with=() if probe == BASELINE or point.refusal is not None else (place.id(BASELINE, *here),),
        counts_classes=is_exact and place.machine.cpu in priced_cpus(),
        takes_turns=table.takes_turns,
        kernel_modules=table.kernel_modules or (),
    )
