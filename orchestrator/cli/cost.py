# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator cost``: what a hit of a program, a module or a mechanism costs, and whether it may."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.catalog.probes import (
    is_module_folder,
)
from orchestrator.cli import in_the_tree, options
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.cli.cost_reference import AtCommit, check_reference, stored_or_measured
from orchestrator.cost.costs import (
    cost_comment,
    cost_csv,
    cost_json,
    explained,
    veristat_csv,
)
from orchestrator.cost.reference import ReferenceLines, by_lines, check_calls, partner
from orchestrator.cost.request import (
    DEFAULT_CPU,
    DEFAULT_KERNEL,
    CostRequest,
    NamedCalls,
    allowed,
    budget_of_hit,
)
from orchestrator.errors import LabError, UsageError
from orchestrator.experiment.source import read_budgets
from orchestrator.files import ScratchFolder
from orchestrator.library.costs import MeasuredCosts, cost_experiment, cost_kernels, cost_lines, judged
from orchestrator.paths import user_path
from orchestrator.profile.printed.profile_sheets import difference_sheet
from orchestrator.report.text import print_sheets, render_sheets
from orchestrator.results.budgets import Budget
from orchestrator.results.runs import Run

CostForm = StrEnum("CostForm", "TABLE MARKDOWN JSON CSV VERISTAT GITHUB")
_SYMBOLS = 8
_OF_BUDGET = "budgets."
"""How an error of an experiment begins that is about its budgets."""
_GROWTH: Mapping[str, object] = {"*": {"overhead": "+0"}}


def cost(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="SUBJECT...",
            help="A BPF program (.bpf.c, .o), a bpftrace one-liner or script (.bt), a kernel module (a folder, .c, "
            ".ko), or a mechanism; see: list probes.",
        ),
    ],
    on: Annotated[
        str | None,
        typer.Option(
            "--kernels",
            metavar="LIST",
            help=f"Kernels, or versions of Linux: 6.1,6.12,7.3; default: a tree's, else {DEFAULT_KERNEL}.",
        ),
    ] = None,
    tree: options.Tree = None,
    call: Annotated[str | None, typer.Option(metavar="CALL", help="The call to make; see: list calls.")] = None,
    workload: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Calls of your own: a C file with a function workload().")
    ] = None,
    hits: Annotated[int, typer.Option(min=1, metavar="N", help="With --workload: hits of one call.")] = 1,
    point: Annotated[str | None, typer.Option(metavar="POINT", help="The function where the probe is.")] = None,
    cpu: Annotated[str, typer.Option(help="CPU model.", autocompletion=options.cpus)] = DEFAULT_CPU,
    at_most: Annotated[
        str | None,
        typer.Option(metavar="BUDGET", help="Exit with 1 if a hit takes more: 900, with --against also +5 or +2%."),
    ] = None,
    budget: Annotated[
        Path | None, typer.Option(readable=False, metavar="FILE", help="Budgets, as an experiment has them.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="REV|FILE|RUN", help="Exit with 1 if a hit takes more than at this commit, or in this run."
        ),
    ] = None,
    form: Annotated[
        CostForm,
        typer.Option("--format", help="veristat: its columns, as CSV; github: for a comment of a pull request."),
    ] = CostForm.TABLE,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the experiment that measures it, and stop.")
    ] = False,
    jobs: options.Jobs = None,
    fleet: options.Fleet = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure a hit of a BPF program, a bpftrace line or a module.

    Exits with 1 if a cost could not be measured or exceeds what is allowed.
    """
    options.check_one({"--call": call is not None, "--workload": workload is not None})
    options.check_one({"--at-most": at_most is not None, "--budget": budget is not None})
    if hits != 1 and workload is None:
        raise UsageError("is of calls of your own only", where="--hits", hint="name them: --workload FILE.c")
    of_hit = _budget_of_hit(at_most, against)
    measurer = ConsoleLab(jobs=jobs, offline=offline, verbose=verbose, fleet=fleet)
    measurer.check()
    given = NamedCalls(call, None if workload is None else user_path(str(workload)), point, hits)
    of_tree = in_the_tree.tree_kernel(tree, on, "--kernels")
    kernels = cost_kernels([of_tree or DEFAULT_KERNEL] if on is None else on.split(","), cpu)
    given_budgets = {} if budget is None else read_budgets(budget).plain()
    place = None if against is None else user_path(against)
    reference_file = against if place is not None and (place.is_file() or is_module_folder(place)) else None
    if against is not None and reference_file is None:
        check_reference(against, names)  # before anything is built
    with options.building(offline=offline, verbose=verbose) as context:
        lines, missed = cost_lines(
            context, [*names, *([reference_file] if reference_file else [])], kernels, cpu, given
        )
        before: list[CostRequest] = []
    for error in missed:
        options.say(f"not measured: {error}")
    if reference_file is not None:
        before = [line for line in lines if line.subject.source == reference_file]
        lines = [line for line in lines if line.subject.source != reference_file]
        if not lines:
            raise UsageError(
                f"{reference_file} would be compared with itself", where="--against", hint="name another file"
            )
    growth = _GROWTH if against is not None and budget is None else {}
    budgets = {**growth, **given_budgets} if of_hit is None else allowed([*lines, *before], of_hit)
    text = cost_experiment(names, [*before, *lines], kernels, cpu, budgets)
    for line in lines:
        check_calls(line, partner(line, lines, before))
    with _written(text, budget) as file:
        experiment = measurer.load(file)
        if print_only:
            typer.echo(re.sub(rf"(?<![\w./-]){re.escape(str(Path.cwd()))}/", "./", text), nl=False)
            return
        old = None
        if against is not None and reference_file is None:
            request = AtCommit(names, kernels, cpu, given, measurer, file.with_name("reference.yaml"))
            old = stored_or_measured(against, request)
        after = measurer.measured(experiment, measurer.planned(experiment))
    of_file = ReferenceLines.of_file(reference_file, before, missed)
    reference = None if reference_file is None else by_lines(reference_file, after, lines, of_file, after)
    if old is not None:
        reference = old.reference(lines, after)
    measured = MeasuredCosts(judged(lines, after, reference), missed, after, reference)
    _print(form, measured, after if reference is None or reference.run is None else reference.run)
    raise typer.Exit(0 if measured.passes else 1)


def _budget_of_hit(at_most: str | None, against: str | None) -> Budget | None:
    budget = None if at_most is None else budget_of_hit(at_most)
    if budget is not None and budget.most is None and against is None:
        hint = "name what came before: --against REV|FILE|RUN; or write a limit: --at-most 300"
        raise UsageError(f"{budget} adds to what a hit took before", where="--at-most", hint=hint)
    return budget


@contextmanager
def _written(text: str, budget: Path | None) -> Iterator[Path]:
    """The experiment in a file of its own, which errors do not name: the user has written the ``budget`` at most."""
    with ScratchFolder("orchestrator-cost-") as folder:
        file = folder / "cost.yaml"
        file.write_text(text)
        try:
            yield file
        except LabError as error:
            error.rename(str(file), "the experiment of --print")
            if budget is not None and error.what.startswith(_OF_BUDGET):
                error.where, error.what = str(budget), error.what.removeprefix(_OF_BUDGET)
            raise


def _print(form: CostForm, measured: MeasuredCosts, before: Run) -> None:
    costs, after, name = measured.costs, measured.run, measured.run.record.experiment
    match form:
        case CostForm.JSON:
            typer.echo(cost_json(after.record, costs, measured.missing, measured.reference), nl=False)
        case CostForm.CSV:
            typer.echo(cost_csv(costs), nl=False)
        case CostForm.VERISTAT:
            typer.echo(veristat_csv(costs), nl=False)
        case CostForm.GITHUB:
            comment = cost_comment(name, costs, measured.missing, before, after, measured.gone)
            typer.echo(comment, nl=False)
        case _:
            sheets = [measured.sheet()]
            for cost, symbols in explained(costs, before, after):
                title = f"{cost.subject.title} on {cost.cell.kernel}, by symbol"
                sheets.append(replace(difference_sheet(symbols, _SYMBOLS), title=title))
            if form is CostForm.MARKDOWN:
                typer.echo(render_sheets(name, sheets), nl=False)
            else:
                print_sheets(sheets, Console())
