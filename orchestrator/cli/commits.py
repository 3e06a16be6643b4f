# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator bisect`` and ``series``, and experiments measured at several commits or kernels for a comparison."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer

from orchestrator import __version__
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, ends_of, is_revision, revisions, series
from orchestrator.artifacts.kernels import UnusableTreeError
from orchestrator.artifacts.own_kernel_build import TreeBuild, is_kernel_source
from orchestrator.artifacts.sources import included, read_c_source
from orchestrator.catalog.kernel_variants import joined, split
from orchestrator.catalog.kernels import IMAGE
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
from orchestrator.experiment.plan import Plan, plan, select
from orchestrator.experiment.source import read_source
from orchestrator.files import sha256_of, write_whole
from orchestrator.guest.machine import qemu_version
from orchestrator.lab.stored import RunCell, compared_kernels, compared_runs, difference_of, shown_ids
from orchestrator.paths import cache_dir, lab_dir
from orchestrator.profile.difference import with_code
from orchestrator.report.history_sheets import bisection_json, bisection_sheet
from orchestrator.report.profile_sheets import difference_sheet
from orchestrator.results.budgets import BudgetError, Budgets
from orchestrator.results.contract import CellRecord, all_ok
from orchestrator.results.origin import Commit, Measured, OriginDifference, SeriesCommit
from orchestrator.results.runs import Run, find_run
from orchestrator.results.statistics import median_interval
from orchestrator.run.bisection import Bisection, NotMeasured

_MEASURED = Path(".git") / "lab-measured.json"
_BROKEN = "broken: "
"""Begins what is noted of a commit that does not build."""


@dataclass
class CommitRuns:
    """The runs of the experiment ``config`` with ``overrides`` at commits of ``tree``.

    The experiment's paths in the tree lead to the files of the commit. If it names none and the tree is a kernel's, all
    cells are measured on that kernel. ``suffix`` is appended to the experiment's name, which keeps other commits out of
    the experiment's history.
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
    """Whether all cells are measured on the tree's kernel, and the experiment names nothing in the tree."""

    def planned(self, commit: Commit) -> tuple[Experiment, Plan]:
        """Build the checked-out kernel tree, and plan the experiment with profiles by symbol where possible.

        Raises UsageError for a wrong experiment, LabError for a kernel that does not build.
        """
        for sentence in self.tree.lacking:
            options.say(sentence)
        if is_kernel_source(self.tree.folder):
            self.build.check()
            self.build.build(self.tree.folder, options.say)
        experiment = with_symbols(self._experiment())
        heading = {"name": f"{experiment.name}{self.suffix}", "description": f"{commit.short} {commit.subject}"}
        named = replace(experiment, heading=experiment.heading.model_copy(update=heading))
        found = self.measurer.resolved(named)
        return found, plan(found)

    def run(self, commit: Commit, experiment: Experiment, planned: Plan) -> Run:
        """The stored run of the commit, or a new one."""
        key = self._key(experiment, planned)
        stored = self.noted(key, commit.hash)
        if stored is not None:
            return stored
        run = self.measurer.measured(experiment, planned)
        if all_ok(run.record):
            self.note({key: {commit.hash: run.record.run}})
        return run

    def known(self, commit: Commit, asked: str) -> Run | str | None:
        """What ``remember`` noted of a commit, without building it; None if files outside the tree have changed."""
        measured = self._measured()
        stamps = _digest(stamp for path in measured.get(f"{asked} outside", {}) for stamp in _stamps(Path(path)))
        noted = measured.get(f"{asked} {stamps}", {}).get(commit.hash, "")
        is_broken = noted.startswith(_BROKEN)
        return noted.removeprefix(_BROKEN) if is_broken else self.noted(f"{asked} {stamps}", commit.hash)

    def remember(self, commit: Commit, asked: str, outcome: Run | str) -> None:
        """Note the run of a commit, or why it does not build, for the request ``asked``."""
        outside = dict.fromkeys(sorted(self.outside), "")
        stamps = _digest(stamp for path in outside for stamp in _stamps(Path(path)))
        noted = outcome.record.run if isinstance(outcome, Run) else f"{_BROKEN}{outcome}"
        self.note({f"{asked} outside": outside, f"{asked} {stamps}": {commit.hash: noted}})

    def same_code(self, commit: Commit, asked: str) -> str:
        """A key of the code that is measured: of the kernel's image, and of the headers that modules include."""
        if not self.is_on_tree:
            return f"{asked} commit {commit.hash}"
        headers = self.tree.succeed("rev-parse", *(f"{commit.hash}:{folder}" for folder in ("include", "arch/x86")))
        return _digest([asked, sha256_of(self.tree.folder / IMAGE), headers])

    def noted(self, key: str, name: str) -> Run | None:
        """The stored run that was noted by these words."""
        run = self._measured().get(key, {}).get(name)
        try:
            return None if run is None else find_run(run, lab_dir())
        except LabError:  # it was removed
            return None

    def asked(self, only: Sequence[str]) -> str:
        """A key of everything that a measurement of a commit is asked for by."""
        texts = [self.config.read_text(), *self.overrides, "only", *only, "make", *self.build.variables]
        config = self.build.config.read_bytes().hex() if self.build.config.is_file() else ""
        return _digest([*texts, config, __version__, qemu_version()])

    def note(self, new: Mapping[str, Mapping[str, str]]) -> None:
        """Note runs' ids by keys and names, unless the checked-out commit lacks something that may be there later."""
        if self.tree.lacking:
            return
        measured = self._measured()
        for key, values in new.items():
            measured[key] = {**measured.get(key, {}), **values}
        write_whole(self.tree.folder / _MEASURED, json.dumps(measured))

    def _experiment(self) -> Experiment:
        moved: list[str] = []

        def place(path: str) -> str:
            found = self.tree.moved(path)
            if found != path:
                moved.append(found)
            else:
                self.outside.add(split_member(path)[0])
            return found

        try:
            experiment = self.measurer.load(self.config, self.overrides, place)
        except ConfigError as error:
            raise self._with_user_paths(error) from None
        if moved:
            return experiment
        if is_kernel_source(self.tree.folder):
            self.is_on_tree = True
            words = {split(kernel)[1]: None for one in experiment.tables for kernel in one.table.all_kernels}
            return on_kernels(experiment, [joined(str(self.tree.folder), one) for one in words])
        what = f"the experiment names nothing in {self.tree.top}, so all commits would cost the same"
        hint = "name a kernel, a module or a workload by its path in the tree"
        raise UsageError(what, where=str(self.config), hint=hint)

    def _with_user_paths(self, error: ConfigError) -> ConfigError:
        """The error with the user's paths in place of those in the checked-out tree."""
        ours, own = str(self.tree.folder), str(self.tree.top)
        text = "\n".join((error.what, *error.detail))
        if ours not in text:
            return error
        detail = [line.replace(ours, own) for line in error.detail]
        hint = "the lab reads the tree's files at the measured commit; name only files that both commits have"
        return ConfigError(error.what.replace(ours, own), where=error.where, detail=detail, hint=hint)

    def _key(self, experiment: Experiment, planned: Plan) -> str:
        plain = replace(experiment, heading=experiment.heading.model_copy(update={"description": None}))
        config = self.build.config.read_bytes() if self.build.config.is_file() else b""
        cells = [cell.id for cell in planned.cells]
        files = [stamp for path in sorted(self.outside) for stamp in _stamps(Path(path))]
        parts = [plain.digest(), *cells, config.hex(), *self.build.variables, *files, __version__, qemu_version()]
        return _digest(parts)

    def _measured(self) -> dict[str, dict[str, str]]:
        """Run ids by experiment key and commit."""
        try:
            measured = json.loads((self.tree.folder / _MEASURED).read_text())
        except (OSError, ValueError):
            return {}
        return measured if isinstance(measured, dict) else {}


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _stamps(path: Path) -> Iterator[str]:
    """Sizes and times of a user's file, module's folder or build tree, and of the files that a module may include."""
    is_tree = path.is_dir() and (path / ".config").is_file()
    beside = path.iterdir() if is_tree else path.rglob("*") if path.is_dir() else path.parent.glob("*.[chS]*")
    elsewhere: list[Path] = []
    if path.suffix in (".c", ".j2"):
        try:
            elsewhere = included(read_c_source(path), [path.parent])
        except ConfigError:  # the build reports it; with unknown includes no earlier run may be reused
            yield uuid4().hex
    for file in sorted({path, *beside, *elsewhere}):
        if file.is_file():
            status = file.stat()
            yield f"{file} {status.st_size} {status.st_mtime_ns}"


@dataclass(frozen=True)
class ExperimentRequest:
    """An experiment to measure: ``overrides`` replace its values, ``only`` selects its cells."""

    config: Path
    measurer: Measurer
    overrides: Sequence[str] = ()
    only: Sequence[str] = ()

    def on_kernels(self, kernels: Sequence[str], adapted: Callable[[Experiment], Experiment]) -> Run:
        """Run the ``adapted`` experiment on kernels, given by names or paths."""
        experiment = adapted(self.measurer.load(self.config, self.overrides))
        wanted = self.measurer.resolved(on_kernels(experiment, kernels))
        run = self.measurer.measured(wanted, select(plan(wanted), self.only))
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
        build, found = TreeBuild.of(ends[0].top, kconfig, make), []
        with GitTree.open(Cache(cache_dir()), ends[0].top, offline=self.measurer.offline) as tree:
            tree.check_out(*(end.commit for end in ends))
            runs = CommitRuns(tree, self.config, tuple(self.overrides), build, self.measurer, "-commits")
            commits = [tree.commit(end.commit) for end in ends]
            for commit in commits:
                print(f"measuring {commit.short} {commit.subject}", file=sys.stderr, flush=True)
                tree.check_out(commit.hash)
                experiment, planned = runs.planned(commit)
                found.append(runs.run(commit, experiment, select(planned, self.only)))
                print(f"run {found[-1].record.run}: {found[-1].directory}", file=sys.stderr, flush=True)
        compared = compared_runs(*found)
        again = given(self.overrides, self.only, kconfig, make)
        one, other = (f"{commit.short} {commit.subject}" for commit in commits)
        return replace(
            compared,
            origin=[OriginDifference("commit", one, other), *compared.origin],
            again=["compare", "--config", str(self.config), *names, *again],
        )


def given(
    overrides: Sequence[str] | None, only: Sequence[str] | None, kconfig: Path | None, make: Sequence[str] | None
) -> Sequence[str]:
    """The options of a command that measures the same again."""
    values = {"--set": overrides, "--only": only, "--kconfig": [kconfig] if kconfig else [], "--make": make}
    return [str(word) for option, words in values.items() for one in words or () for word in (option, one)]


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
    pairs = [(one.before, one.after) for one in pairs_by_kernel(run.record.cells, *_kernel_names(kernels))]
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    numbers = [(RunCell(run, one), RunCell(run, other)) for one, other in both if one.status == other.status == "ok"]
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

    def measure(self, commit: Commit) -> Measured:
        """The cost at the checked-out commit. Raises NotMeasured; UsageError for a wrong experiment."""
        self.measured[commit.hash] = self._run(commit)
        cell = self.measured[commit.hash].cell
        if cell.value is None:
            raise NotMeasured((cell.reason or "no number").splitlines()[0], detail=(cell.reason or "").splitlines()[1:])
        low, high = median_interval(cell.samples)
        return Measured(cell.value, (high - low) / 2)

    def _run(self, commit: Commit) -> RunCell:
        try:
            experiment, whole = self.runs.planned(commit)
            wanted = self._cell(whole.cells).id
        except UsageError as error:
            if self.measured:  # the experiment was right before: this commit lacks something that it names
                raise skipping(error) from None
            raise
        except LabError as error:
            raise skipping(error) from None
        try:
            run = self.runs.run(commit, experiment, select(whole, [f"id={wanted}"]))
        except LabError as error:
            raise skipping(error) from None
        return RunCell(run, next(cell for cell in run.record.cells if cell.id == wanted))

    def _cell(self, cells: Sequence[Cell[Any]]) -> Cell[Any]:
        """The cell that ``name`` selects."""
        if self.name is None:
            found = [cell for cell in cells if cell.compared_with] or list(cells)
        else:
            parts = set(self.name.split("/"))
            found = [cell for cell in cells if cell.id == self.name]
            found = found or [cell for cell in cells if parts <= set(cell.id.split("/"))]
        if len(found) == 1:
            return found[0]
        shown = shown_ids([cell.id for cell in found or cells])
        what = f"--cell: {len(found) or 'no'} cells match" + ("" if self.name is None else f" '{self.name}'")
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
        bisected = BisectedCell(runs, cell)
        found = Bisection(tree, bisected.measure, options.say).between(*ends)
        last_good, newest = tree.parent(found.candidates[-1].hash), found.candidates[0].hash
        cells = [bisected.measured.get(one) for one in (last_good, newest)]
    profiled = [one for one in cells if one is not None and one.cell.profile]
    by_symbol = [with_code(difference_of(*profiled))] if len(profiled) == 2 else []
    if form is options.Form.JSON:
        differences = [one.as_json() for one in by_symbol]
        typer.echo(json.dumps({**bisection_json(found), "differences": differences}, indent=2))
    else:
        sheets = [bisection_sheet(found), *(difference_sheet(one, limit or None) for one in by_symbol)]
        options.print_profiles("Bisection", form, sheets)
    raise typer.Exit(0 if len(found.candidates) == 1 else 1)


SeriesForm = StrEnum("SeriesForm", "TABLE MARKDOWN COVER MAIL JSON")


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
        except LabError as error:
            is_skipped = self.first if isinstance(error, UsageError) else isinstance(skipping(error), NotMeasured)
            if not is_skipped:
                raise
            return MeasuredCommit(one, None, _reason_of(error))
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
                self.runs.remember(commit, asked, _reason_of(error))
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


def _reason_of(error: LabError) -> str:
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
        SeriesForm,
        typer.Option(
            "--format",
            help="table, markdown; cover: for a cover letter; mail: to the author of what became dearer; json.",
        ),
    ] = SeriesForm.TABLE,
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
    _print_series(measured, form, limit)
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


def _print_series(measured: MeasuredSeries, form: SeriesForm, limit: int) -> None:
    match form:
        case SeriesForm.JSON:
            typer.echo(series_json(measured))
        case SeriesForm.COVER:
            typer.echo(cover_letter(measured))
        case SeriesForm.MAIL:
            text = mail(measured)
            if text is None:
                print("no commit of the series made a cell dearer: there is nothing to write", file=sys.stderr)
            else:
                typer.echo(text)
        case _:
            shown = options.Form.MARKDOWN if form is SeriesForm.MARKDOWN else options.Form.TABLE
            options.print_profiles("Series", shown, series_sheets(measured, limit or None))
