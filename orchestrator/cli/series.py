# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator series``: every commit of a patch series, built and measured."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree
from orchestrator.artifacts.own_kernel_build import TreeBuild
from orchestrator.cli import options
from orchestrator.cli.commits import CommitRuns, given, skipping
from orchestrator.cli.measuring import Measurer
from orchestrator.comparison.series import (
    MeasuredCommit,
    MeasuredSeries,
    cover_letter,
    mail,
    series_json,
    series_sheets,
)
from orchestrator.errors import BuildError, LabError, UsageError
from orchestrator.experiment.plan import select
from orchestrator.experiment.source import read_source
from orchestrator.paths import cache_dir
from orchestrator.results.budgets import BudgetError, Budgets
from orchestrator.results.contract import all_ok
from orchestrator.results.origin import Commit, SeriesCommit
from orchestrator.results.runs import Run
from orchestrator.run.bisection import NotMeasured
from orchestrator.run.series import ends_of, series


class Form(StrEnum):
    """How a series is printed."""

    TABLE = "table"
    MARKDOWN = "markdown"
    COVER = "cover"
    MAIL = "mail"
    JSON = "json"


@dataclass
class _Measuring:
    """Measures the commits one after the other; ``first`` has the commit of each run."""

    runs: CommitRuns
    only: Sequence[str]
    first: dict[str, str] = field(default_factory=dict)

    def measure(self, one: SeriesCommit) -> MeasuredCommit:
        """The run of a commit, or why it has none. Raises UsageError for a wrong experiment, HostError."""
        try:
            run = self._run(one.commit)
        except UsageError as error:
            if not self.first:
                raise
            return MeasuredCommit(one, None, _reason(error))
        except LabError as error:
            if not isinstance(skipping(error), NotMeasured):
                raise
            return MeasuredCommit(one, None, _reason(error))
        if isinstance(run, str):
            return MeasuredCommit(one, None, run)
        first = self.first.setdefault(run.record.run, one.commit.short)
        return MeasuredCommit(one, run, same_as="" if first == one.commit.short else first)

    def _run(self, commit: Commit) -> Run | str:
        asked = self.runs.asked(self.only)
        known = self.runs.known(commit, asked)
        if known is not None:
            return known
        options.say(f"measuring {commit.short} {commit.subject}")
        self.runs.tree.check_out(commit.hash)
        try:
            experiment, planned = self.runs.planned(commit)
        except BuildError as error:
            if any(_COMPILERS_ERROR.search(line) for line in error.detail):
                self.runs.remember(commit, asked, _reason(error))
            raise
        code = self.runs.same_code(commit, asked)
        run = self.runs.noted("code", code)
        if run is None:
            run = self.runs.run(commit, experiment, select(planned, self.only))
            options.say(f"run {run.record.run}: {run.directory}")
        if all_ok(run.record):  # a guest may fail because the host was too busy
            self.runs.note({"code": {code: run.record.run}})
            self.runs.remember(commit, asked, run)
        return run


_COMPILERS_ERROR = re.compile(r":\d+: error: ")
"""Of the code, unlike a missing header of the host's (``fatal error``), a full disk or a killed compiler."""


def _reason(error: LabError) -> str:
    return "\n".join([error.what, *error.detail])


def series_command(
    span: Annotated[str, typer.Argument(metavar="[TREE@]BASE..TOPIC", help="The commits of TOPIC that BASE lacks.")],
    experiment: Annotated[Path, typer.Option("--experiment", readable=False, metavar="FILE", help="What to measure.")],
    tree: Annotated[
        str, typer.Option("--tree", metavar="DIR", help="The repository, if none stands before BASE.")
    ] = "./",
    overrides: options.Overrides = None,
    only: options.Only = None,
    kconfig: options.KernelConfig = None,
    make: options.MakeVariables = None,
    at_most: Annotated[
        str | None,
        typer.Option(
            "--at-most", metavar="N|N%", help="Exit with 1 if a commit adds more than this to a cell of BASE."
        ),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            help="table, markdown; cover: for a cover letter; mail: to the author of what became dearer; json.",
        ),
    ] = Form.TABLE,
    limit: options.Limit = 20,
    fleet: options.Fleet = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure each commit of a patch series.

    Changes are explained by symbol. Commits that do not build or boot are rows with their reason. An interrupted
    series goes on where it was. Exits with 1 if a commit is beyond --at-most, does not build, or a cell of it fails.
    """
    budgets = _budgets(at_most)
    read_source(experiment)  # report an unreadable file before cloning and building
    base, topic = ends_of(span, tree)
    build, measurer = (
        TreeBuild.of(base.top, kconfig, make or ()),
        Measurer(offline=offline, verbose=verbose, fleet=fleet),
    )
    measurer.check()
    with GitTree.open(Cache(cache_dir()), base.top, offline=offline) as clone:
        commits = series(clone, base, topic)
        clone.check_out(commits[0].commit.hash, commits[-1].commit.hash)
        runs = CommitRuns(clone, experiment, tuple(overrides or ()), build, measurer, "-series")
        measuring = _Measuring(runs, only or ())
        found = [measuring.measure(one) for one in commits]
    if found[0].run is None:
        raise _no_base(found[0])
    again = ["--experiment", str(experiment), "--tree", str(base.top), *given(overrides, only, kconfig, make)]
    measured = MeasuredSeries(found, budgets, experiment, clone.folder, again)
    if not measured.cells:
        raise _no_base(found[0])
    _print(measured, form, limit)
    raise typer.Exit(1 if measured.is_wrong else 0)


def _no_base(base: MeasuredCommit) -> LabError:
    what = f"the base, {base.one.commit.short} {base.one.commit.subject}, has no numbers to compare with"
    failed = () if base.run is None else base.run.record.cells
    detail = base.reason.splitlines() or [f"{cell.id}: {cell.first_line}" for cell in failed]
    return LabError(what, detail=detail[:20], hint="choose a base that builds and boots")


def _budgets(at_most: str | None) -> Budgets | None:
    if at_most is None:
        return None
    try:
        return Budgets.of({"*": f"+{at_most.removeprefix('+')}"})
    except BudgetError:
        what = f"--at-most: found {at_most!r}; expected an increase in the cell's unit, or in percent"
        raise UsageError(what, hint="such as --at-most 5, or --at-most 1%") from None


def _print(measured: MeasuredSeries, form: Form, limit: int) -> None:
    match form:
        case Form.JSON:
            typer.echo(series_json(measured))
        case Form.COVER:
            typer.echo(cover_letter(measured))
        case Form.MAIL:
            text = mail(measured)
            if text is None:
                print("no commit of the series made a cell dearer: there is nothing to write", file=sys.stderr)
            else:
                typer.echo(text)
        case _:
            shown = options.Form.MARKDOWN if form is Form.MARKDOWN else options.Form.TABLE
            options.print_profiles("Series", shown, series_sheets(measured, limit or None))
