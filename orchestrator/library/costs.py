# SPDX-License-Identifier: GPL-2.0-only
"""What a hit of a program costs: the experiment that measures it, and its figures beside budgets and partners."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from orchestrator.artifacts.boot_files import GuestDisks
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import ready_kernel
from orchestrator.catalog.probes import is_one_liner, one_liner, one_liner_name, split_path
from orchestrator.comparison.comparison import CellPair, compare
from orchestrator.cost.costs import Cost, cost_sheet, costs_in, problem, with_own_functions
from orchestrator.cost.reference import Reference
from orchestrator.cost.request import (
    DEFAULT_CPU,
    DEFAULT_KERNEL,
    CallFinder,
    CostRequest,
    NamedCalls,
    allowed,
    budget_of_hit,
    check_names,
    cost_kernel,
    experiment_text,
    on_all,
)
from orchestrator.cost.subjects import Subject, subjects
from orchestrator.cost.unreached import UnreachedSubject
from orchestrator.errors import UsageError
from orchestrator.experiment.source import stored_budgets
from orchestrator.library.lab import Lab
from orchestrator.library.needed_packages import check_cost_packages
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run
from orchestrator.run.machines import check_possible, known_cpu

_LONGEST_NAME = 40
"""Characters of a file's name in that of its experiment, which has at most 64."""


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
    def passes(self) -> bool:
        """Whether each cost is measured, compared with the reference if that has it, and within what is allowed."""
        return not problem(self.costs, self.missing)

    @property
    def missing(self) -> Sequence[str]:
        return [f"Not measured: {error.where}: {error.what}." for error in self.missed]

    def sheet(self) -> Sheet:
        """The table of ``orchestrator cost``."""
        return cost_sheet(self.run.record.experiment, self.costs, self.missing, self.gone)


def measured_costs(
    lab: Lab,
    names: Sequence[str],
    kernels: Sequence[str] = (DEFAULT_KERNEL,),
    calls: NamedCalls | None = None,
    at_most: float | str | None = None,
    cpu: str = DEFAULT_CPU,
) -> MeasuredCosts:
    """Measure what a hit of each subject costs: programs, one-liners, modules, mechanisms (docs/cost.md).

    With a budget of a hit, ``at_most``, those above it are ``exceeded``. Raises UsageError if no call reaches any.
    """
    on = cost_kernels(kernels, cpu)
    lines, missed = cost_lines(lab.context(), names, on, cpu, calls or NamedCalls())
    budgets = {} if at_most is None else allowed(lines, budget_of_hit(at_most))
    text = cost_experiment(names, lines, on, cpu, budgets)
    run = lab.run(lab.build(yaml.safe_load(text)))
    return MeasuredCosts(judged(lines, run), missed, run)


def cost_kernels(names: Iterable[str], cpu: str) -> list[str]:
    """The kernels of names and versions. Raises UsageError for none, or a CPU that the first does not boot on."""
    kernels = list(dict.fromkeys(cost_kernel(name.strip()).argument for name in names if name.strip()))
    if not kernels:
        raise UsageError("names no kernel", where="--kernels", hint="for example --kernels 6.1,7.3")
    check_possible(cost_kernel(kernels[0]), known_cpu(cpu), GuestDisks())
    return kernels


def cost_lines(
    context: BuildContext, names: Sequence[str], kernels: Sequence[str], cpu: str, given: NamedCalls
) -> tuple[list[CostRequest], Sequence[UnreachedSubject]]:
    """The lines, and why others are missing: no call reaches the subject on a kernel. Raises UsageError without any.

    Raises ConfigError for a workload that is no file, before a kernel is there.
    """
    given.check()
    check_cost_packages(context, names, kernels)
    lines: list[CostRequest] = []
    missed: list[UnreachedSubject] = []
    known: Sequence[Subject] = ()
    for name in kernels:
        finder = CallFinder(context, ready_kernel(context, cost_kernel(name)), cpu, given)
        if not known:  # a source is compiled for the first kernel, to see where its programs are
            named = (subject for text in names for subject in subjects(context, finder.kernel, text))
            known = list({subject.row: subject for subject in named}.values())
        for subject in known:
            try:
                lines.append(finder.line(subject))
            except UsageError as error:
                missed.append(UnreachedSubject(subject, finder.kernel.spec, error))
    if not lines:
        raise missed[0]
    return on_all(lines), missed


def cost_experiment(
    names: Sequence[str], lines: Sequence[CostRequest], kernels: Sequence[str], cpu: str, budgets: Mapping[str, object]
) -> str:
    """The experiment that measures the lines of these subjects, as YAML. Raises UsageError as ``check_names`` does."""
    check_names(lines)
    return experiment_text(f"cost-{_name(names[0])}", lines, kernels, cpu, budgets)


def _name(subject: str) -> str:
    """What an experiment is called after: a file's name, or a one-liner's words.

    Its digest makes it unique where letters or signs are lost.
    """
    if is_one_liner(subject):
        return _in_lower_case(one_liner_name(one_liner(subject)))
    name = Path(split_path(subject)[0]).name.split(".")[0]
    words = _in_lower_case(name)[:_LONGEST_NAME].strip("-")
    if re.fullmatch(r"[A-Za-z0-9_+-]+", name) and words and len(name) <= _LONGEST_NAME:
        return words
    return f"{words or 'hit'}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:6]}"


def _in_lower_case(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def judged(lines: Sequence[CostRequest], after: Run, reference: Reference | None = None) -> Sequence[Cost]:
    """The costs beside their budgets, and each beside that of the reference."""
    partners: Mapping[str, CellRecord] = {} if reference is None else reference.before
    cells = after.record.cells
    before = cells if reference is None or reference.run is None else reference.run.record.cells
    pairs = [CellPair(partners.get(cell.id), cell) for line in lines for cell in cells if line.has(cell)]
    budgets = stored_budgets(after.directory)
    measured = costs_in(lines, after.record, compare(pairs, budgets, before, cells), reference)
    return with_own_functions(measured, after, is_judged=reference is not None or bool(budgets.plain()))
