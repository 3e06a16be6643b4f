# SPDX-License-Identifier: GPL-2.0-only
"""What a hit of a program costs: planned, measured, and compared with a file, a stored run or a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.catalog.probes import is_module_folder
from orchestrator.cost.cost_experiment import check_names, experiment_content, planned_lines
from orchestrator.cost.cost_forms import cost_sheet
from orchestrator.cost.cost_machine import cost_kernels
from orchestrator.cost.costs import Cost, judged, problem
from orchestrator.cost.line import CostLine
from orchestrator.cost.reference import Reference, ReferenceLines, by_lines, check_calls, partner
from orchestrator.cost.request import CostRequest
from orchestrator.cost.unreached import UnreachedSubject
from orchestrator.errors import UsageError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.plan import Plan
from orchestrator.library.cost_reference import check_reference, stored_or_measured
from orchestrator.library.measurer import Measurer
from orchestrator.paths import user_path
from orchestrator.report.sheet import Sheet
from orchestrator.results.runs import Run


@dataclass(frozen=True)
class MeasuredCosts:
    """Measured costs with the run that has them, and why others are ``missed``: no call reaches the subject."""

    costs: Sequence[Cost]
    missed: Sequence[UsageError]
    run: Run
    reference: Reference | None = None

    @property
    def gone(self) -> Sequence[str]:
        """Sentences on what the reference alone has."""
        return () if self.reference is None else self.reference.gone

    @property
    def before(self) -> Run:
        """The run that the costs are compared with; their own where there is none."""
        return self.run if self.reference is None or self.reference.run is None else self.reference.run

    @property
    def passes(self) -> bool:
        """Whether each cost is measured, compared with the reference if that has it, and within what is allowed."""
        return not problem(self.costs, self.missing)

    @property
    def missing(self) -> Sequence[str]:
        return [f"Not measured: {error.where}: {error.what}." for error in self.missed]

    def sheet(self) -> Sheet:
        """The table of ``orchestrator cost``."""
        return cost_sheet(self.run.record.experiment, self.costs, self.missing, self.gone)


@dataclass(frozen=True)
class CostPlan:
    """The lines of a request and those ``before`` of the file that they are compared with, and their experiment."""

    request: CostRequest
    kernels: Sequence[str]
    lines: Sequence[CostLine]
    before: Sequence[CostLine]
    missed: Sequence[UnreachedSubject]
    content: Mapping[str, Any]
    experiment: Experiment
    cells: Plan


def cost_plan(measurer: Measurer, request: CostRequest) -> CostPlan:
    """Find the calls that reach each subject, and plan the cells that measure them.

    Raises UsageError if no call reaches any, and for a reference that is nothing before anything is built.
    """
    measurer.check()
    request.check()
    kernels = cost_kernels(request.kernels, request.cpu)
    file = _reference_file(request)
    if request.against is not None and file is None:
        check_reference(request.against, request.subjects)
    with measurer.building() as context:
        every = request if file is None else replace(request, subjects=[*request.subjects, file])
        lines, missed = every.lines(context, kernels)
    for error in missed:
        measurer.say(measurer.spoken(f"not measured: {error}"))
    before = [line for line in lines if line.subject.source == file]
    lines = [line for line in lines if line.subject.source != file]
    if not lines:
        raise UsageError(f"{file} would be compared with itself", where="--against", hint="name another file")
    check_names([*before, *lines])
    content = experiment_content(
        [*before, *lines], request.name, kernels, request.cpu, request.budgets_of([*before, *lines])
    )
    for line in lines:
        check_calls(line, partner(line, lines, before))
    experiment = measurer.build(content)
    cells = measurer.planned(experiment)
    both = planned_lines([*before, *lines], cells)
    of_both = both[len(before) :], both[: len(before)]
    return CostPlan(request, kernels, *of_both, missed, content, experiment, cells)


def measured_costs(measurer: Measurer, plan: CostPlan) -> MeasuredCosts:
    """Measure the plan's cells, after those of a commit that they are compared with. Raises UsageError, HostError."""
    against, file = plan.request.against, _reference_file(plan.request)
    earlier = None
    if against is not None and file is None:
        earlier = stored_or_measured(measurer, plan.request, plan.kernels)
    after = measurer.measured(plan.experiment, plan.cells)
    reference = None if earlier is None else earlier.reference(plan.lines, after)
    if file is not None:
        reference = by_lines(file, after, plan.lines, ReferenceLines.of_file(file, plan.before, plan.missed), after)
    costs = judged(plan.lines, after, reference, plan.request.function)
    of_run = plan.request.of_run
    if of_run is not None:
        costs = [replace(cost, own_budget=of_run) for cost in costs]
    return MeasuredCosts(costs, plan.missed, after, reference)


def _reference_file(request: CostRequest) -> str | None:
    """The file or folder that the costs are compared with; None for a run or a commit."""
    if request.against is None:
        return None
    path = user_path(request.against)
    return request.against if path.is_file() or is_module_folder(path) else None
