# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator bisect`` and ``series``, and experiments measured at several commits or kernels for a comparison."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.diagnostics import is_of_code
from orchestrator.artifacts.git_tree import GitTree, ends_of, is_revision, revisions, series
from orchestrator.artifacts.kernels import UnusableTreeError
from orchestrator.artifacts.own_kernel_build import TreeBuild, is_kernel_source
from orchestrator.artifacts.unbuilt_tree import unbuilt_tree
from orchestrator.catalog.kernel_variants import joined, split
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.probes import split_member
from orchestrator.cli import options
from orchestrator.cli.measuring import Measurer
from orchestrator.comparison.comparison import ComparedRuns, pairs_by_kernel
from orchestrator.comparison.series import (
    MeasuredCommit,
    MeasuredSeries,
    cover_letter,
    mail,
    series_json,
    series_sheets,
)
from orchestrator.errors import BuildError, ConfigError, HostError, LabError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.experiment import (
    Experiment,
    kernel_name,
    on_kernels,
    only_profiled,
    with_profile,
    with_symbols,
)
from orchestrator.experiment.plan import Plan, select
from orchestrator.experiment.source import kernels_override, names_kernels, read_source
from orchestrator.library.measured_commits import MeasuredCommits, is_lasting, request_of, series_of
from orchestrator.library.stored import RunCell, compared_kernels, compared_runs, difference_of, shown_ids
from orchestrator.paths import cache_dir
from orchestrator.profile.code.compared_code import with_code
from orchestrator.profile.printed.profile_sheets import difference_sheet
from orchestrator.report.history_sheets import bisection_json, bisection_sheet
from orchestrator.results.budgets import BudgetError, Budgets
from orchestrator.results.contract import CellRecord
from orchestrator.results.origin import Commit, Measured, OriginDifference, SeriesCommit
from orchestrator.results.runs import Run
from orchestrator.results.statistics import median_interval
from orchestrator.run.bisection import Bisection, NotMeasured
from orchestrator.run.runner import PreparedPlan

Filters = Sequence[str] | Callable[[Plan], Sequence[str]]
"""Filters of cells, or what chooses them once the plan is known."""


@dataclass
class CommitRuns:
    """The runs of the experiment ``config`` with ``overrides`` at commits of ``tree``.

    The experiment's paths in the tree lead to the files of the commit. If it names no kernel, or nothing in the tree,
    and the tree is a kernel's, all cells are measured on that kernel. ``suffix`` is appended to the experiment's name,
    which keeps other commits out of the experiment's history.
    """

    tree: GitTree
    config: Path
    overrides: tuple[str, ...]
    build: TreeBuild
    measurer: Measurer
    suffix: str
    outside: set[str] = field(default_factory=set)
    """Paths of the experiment outside the tree."""
    is_on_tree: bool = False
    """Whether all cells are measured on the tree's kernel."""
    digest: str = ""
    """The digest of the checked experiment."""
    budgets: Budgets = field(default_factory=Budgets)
    """The budgets of the checked experiment: an earlier run may have been measured with different ones."""

    def check(self, commit: str, only: Sequence[str] = ()) -> Plan | None:
        """Check all that can be known at a commit before its kernel is built, and check it out.

        Returns the plan, or None if a guest has to find its points first. Raises UsageError for a wrong experiment or
        filter, and for a configuration that no guest could boot; HostError for what this host lacks.
        """
        folder = self.tree.folder
        self.tree.check_out(commit)
        is_kernel = is_kernel_source(folder)
        if is_kernel:
            self._prepare()
        with unbuilt_tree(folder) if is_kernel else nullcontext():
            experiment = self._experiment()
            self.digest, self.budgets = experiment.digest(), experiment.budgets
            return self.measurer.check_cells(experiment, only)

    def measured(self, commit: Commit, filters: Filters = ()) -> Run:
        """The run of a commit's cells, stored or new; after ``check``.

        Of a kernel's tree, a commit that was measured before is not built again, nor is one that does not compile.
        Raises UsageError for an experiment that is wrong at this commit, LabError for a kernel that does not build.
        """
        request = self._request(filters)
        known = None if request is None else self.memory.outcome(request, commit.hash)
        if isinstance(known, Run):
            return known
        if known is not None:
            what, *detail = known.split("\n")
            raise BuildError(what, detail=detail)
        options.say(f"measuring {commit.short} {commit.subject}")
        self.tree.check_out(commit.hash)
        try:
            experiment, planned = self.planned(commit)
        except BuildError as error:
            if request is not None and is_of_code(reason_of(error)) and not self.tree.lacking:
                self.memory.remember(request, commit.hash, reason_of(error))
            raise
        chosen = filters(planned) if callable(filters) else filters
        run, is_final = self.run(experiment, select(planned, chosen))
        options.say(f"run {run.record.run}: {run.directory}")
        if request is not None and is_final:
            self.memory.remember(request, commit.hash, run)
        return run

    def planned(self, commit: Commit) -> tuple[Experiment, Plan]:
        """Build the checked-out kernel tree, and plan the experiment with profiles by symbol where possible.

        Raises UsageError for a wrong experiment, LabError for a kernel that does not build.
        """
        for sentence in self.tree.lacking:
            options.say(sentence)
        if is_kernel_source(self.tree.folder):
            self._prepare()
            self.build.compile(self.tree.folder, options.say)
        experiment = with_symbols(self._experiment())
        heading = {"name": f"{experiment.name}{self.suffix}", "description": f"{commit.short} {commit.subject}"}
        named = replace(experiment, heading=experiment.heading.model_copy(update=heading))
        resolved = self.measurer.resolved(named)
        return resolved, self.measurer.planned(resolved)

    def run(self, experiment: Experiment, planned: Plan) -> tuple[Run, bool]:
        """A stored run of the same content or a new one, and whether it is that of its commit for good."""
        prepared: list[PreparedPlan] = []

        def known(plan: PreparedPlan) -> str | None:
            prepared.append(plan)
            stored = self.memory.of_content(plan.content)
            return None if stored is None else stored.record.run

        run = self.measurer.measured_unless(experiment, planned, known)
        is_final = is_lasting(run.record, prepared[0]) and not self.tree.lacking
        if is_final:  # a guest may fail because the host was too busy; what a commit lacks may be there later
            self.memory.note_content(prepared[0].content, run)
        return run, is_final

    @property
    def memory(self) -> MeasuredCommits:
        return MeasuredCommits(self.tree.folder)

    def _prepare(self) -> None:
        self.build.check()
        self.build.prepare(self.tree.folder)
        self.build.check_bootable(self.tree.folder, self.tree.top)

    def _request(self, filters: Filters) -> str | None:
        """The key of what is asked of each commit; None where the commit has to be built to know its cells or parts."""
        if callable(filters) or not self.is_on_tree:
            return None
        return request_of(self.measurer.context(), self.digest, filters, self.build, self.outside)

    def _experiment(self) -> Experiment:
        moved: list[str] = []
        is_kernel = is_kernel_source(self.tree.folder)

        def place(path: str) -> str:
            at_commit = self.tree.moved(path)
            if at_commit != path:
                moved.append(at_commit)
            else:
                self.outside.add(split_member(path)[0])
            return at_commit

        overrides = self.overrides
        if is_kernel and not names_kernels(self.config, overrides):
            overrides = (kernels_override(str(self.tree.top)), *overrides)
        try:
            experiment = self.measurer.load(self.config, overrides, place)
        except ConfigError as error:
            raise self._with_user_paths(error) from None
        kernels = {kernel: None for table in experiment.tables for kernel in table.table.all_kernels}
        if not moved and is_kernel:
            words = {split(kernel)[1]: None for kernel in kernels}
            experiment = on_kernels(experiment, [joined(str(self.tree.folder), word) for word in words])
        elif not moved:
            what = f"the experiment names nothing in {self.tree.top}, so all commits would cost the same"
            hint = "name a kernel, a module or a workload by its path in the tree"
            raise UsageError(what, where=str(self.config), hint=hint)
        self.is_on_tree = is_kernel and all(
            kernel_spec(kernel).tree == self.tree.folder
            for table in experiment.tables
            for kernel in table.table.all_kernels
        )
        return experiment

    def _with_user_paths(self, error: ConfigError) -> ConfigError:
        """The error with the user's paths in place of those in the checked-out tree."""
        clone, top = str(self.tree.folder), str(self.tree.top)
        text = "\n".join((error.what, *error.detail))
        if clone not in text:
            return error
        detail = [line.replace(clone, top) for line in error.detail]
        hint = "the lab reads the tree's files at the measured commit; name only files that both commits have"
        return ConfigError(error.what.replace(clone, top), where=error.where, detail=detail, hint=hint)


def reason_of(error: LabError) -> str:
    """What happened, in lines."""
    return "\n".join([error.what, *error.detail])


@dataclass(frozen=True)
class ExperimentRequest:
    """An experiment to measure: ``overrides`` replace its values, ``only`` selects its cells."""

    config: Path
    measurer: Measurer
    overrides: Sequence[str] = ()
    only: Sequence[str] = ()

    def on_kernels(self, kernels: Sequence[str], adapted: Callable[[Experiment], Experiment]) -> Run:
        """Run the ``adapted`` experiment on kernels, given by names or paths."""
        overrides = self.overrides
        if not names_kernels(self.config, overrides):
            overrides = [kernels_override(kernel_name(kernels[0])), *overrides]
        experiment = on_kernels(adapted(self.measurer.load(self.config, overrides)), kernels)
        self.measurer.check_cells(experiment, self.only)
        wanted_experiment = self.measurer.resolved(experiment)
        run = self.measurer.measured(wanted_experiment, self.measurer.planned(wanted_experiment, self.only))
        print(f"run {run.record.run}: {run.directory}", file=sys.stderr)
        return run

    def at_commits(self, names: tuple[str, str], kconfig: Path | None, make: Sequence[str]) -> ComparedRuns:
        """Compare two commits, and measure each unless a run of it is stored; ``TreeBuild`` builds a kernel's tree.

        Raises UsageError for an unknown commit, two equal ones or a wrong experiment, BuildError for a kernel that does
        not build.
        """
        read_source(self.config)
        ends = revisions(*names)
        if ends[0].commit == ends[1].commit:
            raise UsageError(f"{' and '.join(names)} are the same commit", hint="name two different ones")
        build = TreeBuild.of(ends[0].top, kconfig, make)
        with GitTree.open(Cache(cache_dir()), ends[0].top, offline=self.measurer.offline) as tree:
            tree.check_out(*(end.commit for end in ends))
            runs = CommitRuns(tree, self.config, tuple(self.overrides), build, self.measurer, "-commits")
            runs.check(ends[0].commit, self.only)
            commits = [tree.commit(end.commit) for end in ends]
            before, after = (runs.measured(commit, self.only) for commit in commits)
        compared = compared_runs(before, after, runs.budgets)
        again = given(self.overrides, self.only, kconfig, make)
        first, second = (f"{commit.short} {commit.subject}" for commit in commits)
        return replace(
            compared,
            origin=[OriginDifference("commit", first, second), *compared.origin],
            again=["compare", "--config", str(self.config), *names, *again],
        )


def given(
    overrides: Sequence[str] | None, only: Sequence[str] | None, kconfig: Path | None, make: Sequence[str] | None
) -> Sequence[str]:
    """The options of a command that measures the same again."""
    values = {"--set": overrides, "--only": only, "--kconfig": [kconfig] if kconfig else [], "--make": make}
    return [str(word) for option, words in values.items() for value in words or () for word in (option, value)]


def measure_and_compare(
    request: ExperimentRequest, names: tuple[str, str], kconfig: Path | None, make: Sequence[str]
) -> ComparedRuns:
    """Measure an experiment at two commits or on two kernels. Raises UsageError for one of each."""
    request.measurer.check()
    are_commits = [is_revision(name) for name in names]
    if all(are_commits):
        return request.at_commits(names, kconfig, make)
    if any(are_commits):
        raise UsageError("one is a kernel, the other a commit", hint="name two kernels, or two commits of one tree")
    if kconfig or make:
        raise UsageError("--kconfig and --make are for two commits of a kernel's tree", hint="leave them out")
    return compared_kernels(request.on_kernels(names, with_symbols), _kernel_names(names), [])


def profiled_on_kernels(
    request: ExperimentRequest, kernels: tuple[str, str]
) -> tuple[Sequence[tuple[RunCell, RunCell]], Sequence[CellRecord]]:
    """Profile the experiment's cells by symbol on both kernels.

    Returns the pairs of cells with a number on both, and the cells without a number.
    """
    run = request.on_kernels(kernels, lambda whole: only_profiled(with_profile(whole, ["symbols"])))
    pairs = [(pair.before, pair.after) for pair in pairs_by_kernel(run.record.cells, *_kernel_names(kernels))]
    both = [(cell, other_cell) for cell, other_cell in pairs if cell is not None and other_cell is not None]
    numbers = [
        (RunCell(run, cell), RunCell(run, other_cell))
        for cell, other_cell in both
        if cell.status == other_cell.status == "ok"
    ]
    return numbers, [cell for cell in run.record.cells if cell.status != "ok"]


def _kernel_names(kernels: tuple[str, str]) -> tuple[str, str]:
    before, after = (kernel_spec(kernel_name(name)).name for name in kernels)
    return before, after


@dataclass
class BisectedCell:
    """A cell measured at several commits. ``name`` is its id or parts of it, None for the only cell with a baseline."""

    runs: CommitRuns
    name: str | None
    measured: dict[str, RunCell] = field(default_factory=dict)
    """The measured cell by commit."""
    cell_id: str | None = None
    """The id of the cell, once it is known."""

    def measure(self, commit: Commit) -> Measured:
        """The cost at a commit. Raises NotMeasured; UsageError for a wrong experiment, at first before a build."""
        if not self.measured:
            self._check(commit.hash)
        self.measured[commit.hash] = self._run(commit)
        cell = self.measured[commit.hash].cell
        if cell.value is None:
            raise NotMeasured((cell.reason or "no number").splitlines()[0], detail=(cell.reason or "").splitlines()[1:])
        low, high = median_interval(cell.samples)
        return Measured(cell.value, (high - low) / 2, cell.unit)

    def _check(self, commit: str) -> None:
        planned = self.runs.check(commit)
        if planned is not None:
            self.cell_id = self._cell(planned.cells).id

    def _run(self, commit: Commit) -> RunCell:
        def filters(whole: Plan) -> Sequence[str]:
            self.cell_id = self._cell(whole.cells).id
            return [f"id={self.cell_id}"]

        try:
            run = self.runs.measured(commit, filters if self.cell_id is None else [f"id={self.cell_id}"])
        except UsageError as error:
            if self.cell_id is None:  # there is no such cell
                raise
            raise skipping(error) from None
        except LabError as error:
            raise skipping(error) from None
        return RunCell(run, next(cell for cell in run.record.cells if cell.id == self.cell_id))

    def _cell(self, cells: Sequence[Cell[Any]]) -> Cell[Any]:
        """The cell that ``name`` selects."""
        if self.name is None:
            matching = [cell for cell in cells if cell.compared_with] or list(cells)
        else:
            parts = set(self.name.split("/"))
            matching = [cell for cell in cells if cell.id == self.name]
            matching = matching or [cell for cell in cells if parts <= set(cell.id.split("/"))]
        if len(matching) == 1:
            return matching[0]
        shown = shown_ids([cell.id for cell in matching or cells])
        what = f"--cell: {len(matching) or 'no'} cells match" + ("" if self.name is None else f" '{self.name}'")
        hint = f"name one of them: --cell {shown[0]}" if shown else "the experiment has no cell"
        raise UsageError(what, where=str(self.runs.config), detail=shown, hint=hint)


def skipping(error: LabError) -> LabError:
    """NotMeasured, which skips the commit; an error of the host, such as a full disk, is returned unchanged."""
    if isinstance(error, HostError) and not isinstance(error, UnusableTreeError):
        return error
    return NotMeasured(error.what, where=error.where, detail=error.detail)


def bisect(
    config: Annotated[
        Path, typer.Argument(readable=False, metavar="CONFIG", help="Experiment file that names something in the tree.")
    ],
    good: Annotated[str, typer.Option(metavar="TREE@REV", help="A commit of the tree before the change.")],
    bad: Annotated[str, typer.Option(metavar="TREE@REV", help="A commit after it.")],
    cell: Annotated[
        str | None, typer.Option(metavar="ID", help="The cell to measure: its id, or parts such as kprobe.")
    ] = None,
    overrides: options.Overrides = None,
    kconfig: options.KernelConfig = None,
    make: options.MakeVariables = None,
    form: options.FormOption = options.Form.TABLE,
    limit: options.Limit = 20,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Find the first commit at which a cell costs as much as at --bad.

    Also prints what it executes differently. Commits that do not build or boot are skipped. Exits with 1 if skipped
    commits leave several candidates.
    """
    read_source(config)  # report an unreadable file before cloning and building
    ends = revisions(good, bad)
    build = TreeBuild.of(ends[0].top, kconfig, make or ())
    measurer = Measurer(offline=offline, verbose=verbose)
    with GitTree.open(Cache(cache_dir()), ends[0].top, offline=offline) as tree:
        runs = CommitRuns(tree, config, tuple(overrides or ()), build, measurer, "-bisect")
        bisected_cell = BisectedCell(runs, cell)
        bisected = Bisection(tree, bisected_cell.measure, options.say).between(*ends)
        last_good, newest = tree.parent(bisected.candidates[-1].hash), bisected.candidates[0].hash
        cells = [bisected_cell.measured.get(commit) for commit in (last_good, newest)]
    profiled = [run_cell for run_cell in cells if run_cell is not None and run_cell.cell.profile]
    by_symbol = [with_code(difference_of(*profiled))] if len(profiled) == 2 else []
    if form is options.Form.JSON:
        differences = [difference.as_json() for difference in by_symbol]
        typer.echo(json.dumps({**bisection_json(bisected), "differences": differences}, indent=2))
    else:
        sheets = [bisection_sheet(bisected), *(difference_sheet(difference, limit or None) for difference in by_symbol)]
        options.print_profiles("Bisection", form, sheets)
    raise typer.Exit(0 if len(bisected.candidates) == 1 else 1)


SeriesForm = StrEnum("SeriesForm", "TABLE MARKDOWN COVER MAIL JSON")


@dataclass
class _Measuring:
    """Measures the commits one after the other; ``first`` has the commit of each run."""

    runs: CommitRuns
    only: Sequence[str]
    first: dict[str, str] = field(default_factory=dict)

    def measure(self, commit: SeriesCommit) -> MeasuredCommit:
        """Measure a commit, and note the run, or why there is none.

        Raises UsageError for a wrong experiment, HostError.
        """
        outcome: Run | str
        try:
            outcome = self.runs.measured(commit.commit, self.only)
        except LabError as error:
            is_skipped = self.first if isinstance(error, UsageError) else isinstance(skipping(error), NotMeasured)
            if not is_skipped:
                raise
            outcome = reason_of(error)
        self.runs.memory.remember(self._series, commit.commit.hash, outcome)
        return self._measured(commit, outcome)

    def stored(self, commit: SeriesCommit) -> MeasuredCommit:
        """What was noted of a commit when the same series was measured."""
        return self._measured(
            commit, self.runs.memory.outcome(self._series, commit.commit.hash) or "it is not measured yet"
        )

    @cached_property
    def _series(self) -> str:
        return series_of(self.runs.config, self.runs.overrides, self.only, self.runs.build)

    def _measured(self, commit: SeriesCommit, run: Run | str) -> MeasuredCommit:
        if isinstance(run, str):
            return MeasuredCommit(commit, None, run)
        first = self.first.setdefault(run.record.run, commit.commit.short)
        return MeasuredCommit(commit, run, same_as="" if first == commit.commit.short else first)


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
        SeriesForm,
        typer.Option(
            "--format",
            help="table, markdown; cover: for a cover letter; mail: to the author of what regressed; json.",
        ),
    ] = SeriesForm.TABLE,
    stored: Annotated[
        bool, typer.Option("--stored", help="Print what the same command has measured; build and measure nothing.")
    ] = False,
    limit: options.Limit = 20,
    fleet: options.Fleet = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure each commit of a patch series.

    Changes are explained by symbol. Commits that do not build or boot are rows with their reason. An interrupted
    series goes on where it was. Exits with 1 if a commit exceeds --at-most, does not build, or a cell of it fails.
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
        runs = CommitRuns(clone, experiment, tuple(overrides or ()), build, measurer, "-series")
        measuring = _Measuring(runs, only or ())
        if stored:
            measured_commits = [measuring.stored(commit) for commit in commits]
        else:
            clone.check_out(commits[0].commit.hash, commits[-1].commit.hash)
            runs.check(commits[0].commit.hash, only or ())
            measured_commits = [measuring.measure(commit) for commit in commits]
    if measured_commits[0].run is None:
        raise _no_base(
            measured_commits[0], "leave out --stored to measure it" if stored else "choose a base that builds and boots"
        )
    again = ["--experiment", str(experiment), "--tree", str(base.top), *given(overrides, only, kconfig, make)]
    measured = MeasuredSeries(measured_commits, budgets, experiment, clone.folder, again)
    if not measured.cells:
        raise _no_base(measured_commits[0], "choose a base that builds and boots")
    _print_series(measured, form, limit)
    if form is SeriesForm.TABLE:
        forms = ", ".join(series_form for series_form in SeriesForm if series_form is not SeriesForm.TABLE)
        print(f"\nother forms, from what is measured now: add --stored --format FORM, of {forms}", file=sys.stderr)
    raise typer.Exit(1 if measured.is_wrong else 0)


def _no_base(base: MeasuredCommit, hint: str) -> LabError:
    what = f"the base, {base.commit.short} {base.commit.subject}, has no numbers to compare with"
    failed = () if base.run is None else base.run.record.cells
    detail = base.reason.splitlines() or [f"{cell.id}: {cell.first_line}" for cell in failed]
    return LabError(what, detail=detail[:20], hint=hint)


def _budgets(at_most: str | None) -> Budgets | None:
    if at_most is None:
        return None
    try:
        return Budgets.of({"*": f"+{at_most.removeprefix('+')}"})
    except BudgetError:
        what = f"--at-most: found {at_most!r}; expected an increase in the cell's unit, or in percent"
        raise UsageError(what, hint="such as --at-most 5, or --at-most 1%") from None


def _print_series(measured: MeasuredSeries, form: SeriesForm, limit: int) -> None:
    match form:
        case SeriesForm.JSON:
            typer.echo(series_json(measured))
        case SeriesForm.COVER:
            typer.echo(cover_letter(measured))
        case SeriesForm.MAIL:
            text = mail(measured)
            if text is None:
                print("no cell regressed with a commit of the series: there is nothing to write", file=sys.stderr)
            else:
                typer.echo(text)
        case _:
            shown = options.Form.MARKDOWN if form is SeriesForm.MARKDOWN else options.Form.TABLE
            options.print_profiles("Series", shown, series_sheets(measured, limit or None))
