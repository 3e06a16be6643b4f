# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator bisect``, and an experiment that is measured at several commits or on several kernels to compare."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer

from orchestrator import __version__
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, is_revision, revisions
from orchestrator.artifacts.kernel_build import TreeBuild, is_kernel_source
from orchestrator.artifacts.kernels import UnusableTreeError
from orchestrator.artifacts.sources import included, read_c_source
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.cli import options
from orchestrator.cli.compared import RunCell, compared_kernels, compared_runs, difference_of, shown_ids
from orchestrator.cli.measuring import Measuring
from orchestrator.comparison.comparison import ComparedRuns, pairs_by_kernel
from orchestrator.errors import ConfigError, HostError, LabError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.experiment import (
    Experiment,
    kernel_name,
    on_kernels,
    only_profiled,
    with_profile,
    with_symbols,
)
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import Plan, plan, select
from orchestrator.experiment.source import read_source
from orchestrator.files import write_whole
from orchestrator.guest.machine import qemu_cpu_names, qemu_version
from orchestrator.paths import cache_dir, lab_dir
from orchestrator.profile.difference import with_code
from orchestrator.report.history_sheets import bisection_json, bisection_sheet
from orchestrator.report.profile_sheets import difference_sheet
from orchestrator.results.contract import CellRecord, all_ok
from orchestrator.results.origin import Commit, Found, Measured, OriginDifference
from orchestrator.results.runs import Run, find_run
from orchestrator.results.statistics import median_interval
from orchestrator.results.stored_profile import ProfileDifference
from orchestrator.run.bisection import Bisection, NotMeasured

_KNOWN = Path(".git") / "lab-measured.json"


@dataclass(frozen=True)
class CommitRuns:
    """The experiment ``config`` with ``overrides`` at the commits of ``tree``.

    What it names by a path in the tree is that of the commit. Where it names nothing there, and the tree is a kernel's,
    all cells are measured on that kernel. ``suffix`` ends the name of the runs' experiment: a history of the experiment
    itself has nothing of other commits in it.
    """

    tree: GitTree
    config: Path
    overrides: tuple[str, ...]
    build: TreeBuild
    measuring: Measuring
    suffix: str
    outside: set[str] = field(default_factory=set)
    """Paths that the experiment names, and that are not in the tree."""

    def planned(self, commit: Commit) -> tuple[Experiment, Plan]:
        """The experiment at a commit whose files are checked out, with symbols where it can have them, and its cells.

        A kernel's tree is built. Raises UsageError for a wrong experiment, LabError where the kernel does not build.
        """
        if is_kernel_source(self.tree.folder):
            self.build.check()
            self.build.build(self.tree.folder, options.say)
        experiment = with_symbols(self._experiment())
        heading = {"name": f"{experiment.name}{self.suffix}", "description": f"{commit.short} {commit.subject}"}
        found = self.measuring.found(replace(experiment, heading=experiment.heading.model_copy(update=heading)))
        return found, plan(found)

    def run(self, commit: Commit, experiment: Experiment, planned: Plan) -> Run:
        key = self._key(experiment, planned)
        stored = self._known().get(key, {}).get(commit.hash)
        if stored is not None:
            try:
                return find_run(stored, lab_dir())
            except LabError:  # it was removed
                pass
        entry, record = self.measuring.done(lambda runner: runner.run(experiment, planned, None))
        if all_ok(record):
            known = self._known()
            known.setdefault(key, {})[commit.hash] = entry.id
            write_whole(self.tree.folder / _KNOWN, json.dumps(known))
        return Run(record, entry.directory)

    def _experiment(self) -> Experiment:
        moved: list[str] = []

        def place(path: str) -> str:
            found = self.tree.moved(path)
            if found != path:
                moved.append(found)
            else:
                self.outside.add(path)
            return found

        try:
            experiment = load_experiment(self.config, kinds(), self.overrides, qemu_cpu_names, place)
        except ConfigError as error:
            raise self._of_a_commit(error) from None
        if moved:
            return experiment
        if is_kernel_source(self.tree.folder):
            return on_kernels(experiment, [str(self.tree.folder)])
        what = f"it names nothing in {self.tree.top}: all commits would cost the same"
        hint = "name a kernel, a module or a workload by its path in the tree"
        raise UsageError(what, where=str(self.config), hint=hint)

    def _of_a_commit(self, error: ConfigError) -> ConfigError:
        """The error with the user's own paths; what is in the tree was looked for in the commit."""
        ours, own = str(self.tree.folder), str(self.tree.top)
        text = "\n".join((error.what, *error.detail))
        if ours not in text:
            return error
        detail = [line.replace(ours, own) for line in error.detail]
        hint = "the tree's files are those of the commit that is measured; name what both commits have"
        return ConfigError(error.what.replace(ours, own), where=error.where, detail=detail, hint=hint)

    def _key(self, experiment: Experiment, planned: Plan) -> str:
        plain = replace(experiment, heading=experiment.heading.model_copy(update={"description": None}))
        config = self.build.config.read_bytes() if self.build.config.is_file() else b""
        cells = [cell.id for cell in planned.cells]
        files = [stamp for path in sorted(self.outside) for stamp in _stamps(Path(path))]
        parts = [plain.digest(), *cells, config.hex(), *self.build.variables, *files, __version__, qemu_version()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _known(self) -> dict[str, dict[str, str]]:
        try:
            known = json.loads((self.tree.folder / _KNOWN).read_text())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def _stamps(path: Path) -> Iterator[str]:
    """What changes with a user's file or build tree: sizes and times, also of what a module may include."""
    beside = path.iterdir() if path.is_dir() else path.parent.glob("*.[chS]*")
    elsewhere: list[Path] = []
    if path.suffix in (".c", ".j2"):
        try:
            elsewhere = included(read_c_source(path), [path.parent])
        except ConfigError:  # to build it tells; what it includes is unknown, and no earlier run is known to have that
            yield uuid4().hex
    for file in sorted({path, *beside, *elsewhere}):
        if file.is_file():
            status = file.stat()
            yield f"{file} {status.st_size} {status.st_mtime_ns}"


@dataclass(frozen=True)
class Wanted:
    """An experiment to measure: ``overrides`` replace its values, ``only`` selects its cells."""

    config: Path
    measuring: Measuring
    overrides: Sequence[str] = ()
    only: Sequence[str] = ()

    def on_kernels(self, kernels: Sequence[str], adapted: Callable[[Experiment], Experiment]) -> Run:
        """The run of the ``adapted`` experiment on kernels: names of the catalogue, or paths of a user's."""
        experiment = adapted(load_experiment(self.config, kinds(), self.overrides, qemu_cpu_names))
        wanted = self.measuring.found(on_kernels(experiment, kernels))
        planned = select(plan(wanted), self.only)
        entry, record = self.measuring.done(lambda runner: runner.run(wanted, planned, None))
        print(f"run {entry.id}: {entry.directory}", file=sys.stderr)
        return Run(record, entry.directory)

    def at_commits(self, names: tuple[str, str], kconfig: Path | None, make: Sequence[str]) -> ComparedRuns:
        """Both commits compared, measured where that was not done before; see ``TreeBuild`` for a kernel's tree.

        Raises UsageError where there is no such commit, both are one, or the experiment is wrong; BuildError where a
        kernel does not build.
        """
        read_source(self.config)
        ends = revisions(*names)
        if ends[0].commit == ends[1].commit:
            raise UsageError(f"{' and '.join(names)} are the same commit", hint="name two different ones")
        build, found = TreeBuild.of(ends[0].top, kconfig, make), []
        with GitTree.open(Cache(cache_dir()), ends[0].top, offline=self.measuring.offline) as tree:
            tree.check_out(*(end.commit for end in ends))
            runs = CommitRuns(tree, self.config, tuple(self.overrides), build, self.measuring, "-commits")
            commits = [tree.commit(end.commit) for end in ends]
            for commit in commits:
                print(f"measuring {commit.short} {commit.subject}", file=sys.stderr, flush=True)
                tree.check_out(commit.hash)
                experiment, planned = runs.planned(commit)
                found.append(runs.run(commit, experiment, select(planned, self.only)))
                print(f"run {found[-1].record.run}: {found[-1].directory}", file=sys.stderr, flush=True)
        compared = compared_runs(*found)
        given = {
            "--set": self.overrides,
            "--only": self.only,
            "--kconfig": [kconfig] if kconfig else [],
            "--make": make,
        }
        again = [str(word) for option, values in given.items() for value in values for word in (option, value)]
        one, other = (f"{commit.short} {commit.subject}" for commit in commits)
        return replace(
            compared,
            origin=[OriginDifference("commit", one, other), *compared.origin],
            again=["compare", "--config", str(self.config), *names, *again],
        )


def compared_anew(wanted: Wanted, names: tuple[str, str], kconfig: Path | None, make: Sequence[str]) -> ComparedRuns:
    """The experiment at two commits, or on two kernels, as they are named. Raises UsageError for one of each."""
    wanted.measuring.check()
    are_commits = [is_revision(name) for name in names]
    if all(are_commits):
        return wanted.at_commits(names, kconfig, make)
    if any(are_commits):
        raise UsageError("one is a kernel, the other a commit", hint="name two kernels, or two commits of one tree")
    if kconfig or make:
        raise UsageError("--kconfig and --make are for two commits of a kernel's tree", hint="leave them out")
    # With the instructions by symbol wherever they can be proved.
    return compared_kernels(wanted.on_kernels(names, with_symbols), _kernel_names(names), [])


def profiled_on_kernels(
    wanted: Wanted, kernels: tuple[str, str]
) -> tuple[Sequence[tuple[RunCell, RunCell]], Sequence[CellRecord]]:
    """Measure each cell that can have a profile on both kernels, by symbol.

    Pairs of cells that have a number on both kernels, and the cells that have none.
    """
    run = wanted.on_kernels(kernels, lambda whole: only_profiled(with_profile(whole, ["symbols"])))
    pairs = [(one.before, one.after) for one in pairs_by_kernel(run.record.cells, *_kernel_names(kernels))]
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    numbers = [(RunCell(run, one), RunCell(run, other)) for one, other in both if one.status == other.status == "ok"]
    return numbers, [cell for cell in run.record.cells if cell.status != "ok"]


def _kernel_names(kernels: tuple[str, str]) -> tuple[str, str]:
    before, after = (kernel_spec(kernel_name(name)).name for name in kernels)
    return before, after


@dataclass
class MeasuredCommits:
    """A cell of the experiment of ``runs``: ``name`` is its id, or parts of it.

    Without a name the experiment has only one cell beside its baselines.
    """

    runs: CommitRuns
    name: str | None
    sides: dict[str, RunCell] = field(default_factory=dict)
    """What was measured, by commit."""

    def measure(self, commit: Commit) -> Measured:
        """The cost at a commit whose files are checked out. Raises NotMeasured; UsageError for a wrong experiment."""
        side = self._side(commit)
        self.sides[commit.hash] = side
        cell = side.cell
        if cell.value is None:
            raise NotMeasured((cell.reason or "no number").splitlines()[0], detail=(cell.reason or "").splitlines()[1:])
        low, high = median_interval(cell.samples)
        return Measured(cell.value, (high - low) / 2)

    def _side(self, commit: Commit) -> RunCell:
        try:
            experiment, whole = self.runs.planned(commit)
            wanted = self._cell(whole.cells).id
        except UsageError as error:
            if self.sides:  # the experiment is right: what it names is not there at this commit
                raise _skipping(error) from None
            raise
        except LabError as error:
            raise _skipping(error) from None
        try:
            run = self.runs.run(commit, experiment, select(whole, [f"id={wanted}"]))
        except LabError as error:
            raise _skipping(error) from None
        return RunCell(run, next(cell for cell in run.record.cells if cell.id == wanted))

    def _cell(self, cells: Sequence[Cell[Any]]) -> Cell[Any]:
        """The cell that is meant; what it is compared with is measured too."""
        if self.name is None:
            found = [cell for cell in cells if cell.compared_with] or list(cells)
        else:
            parts = set(self.name.split("/"))
            found = [cell for cell in cells if cell.id == self.name]
            found = found or [cell for cell in cells if parts <= set(cell.id.split("/"))]
        if len(found) == 1:
            return found[0]
        shown = shown_ids([cell.id for cell in found or cells])
        what = f"--cell: {len(found) or 'no'} cells are named" + ("" if self.name is None else f" '{self.name}'")
        hint = f"name one of them: --cell {shown[0]}" if shown else "the experiment has no cell"
        raise UsageError(what, where=str(self.runs.config), detail=shown, hint=hint)


def _skipping(error: LabError) -> LabError:
    """What to raise so that a commit that fails is skipped.

    Not where the host lacks something, such as room: all commits that follow would be skipped as well.
    """
    if isinstance(error, HostError) and not isinstance(error, UnusableTreeError):
        return error
    return NotMeasured(error.what, where=error.where, detail=error.detail)


@options.expected_failures
def bisect(
    config: Annotated[
        Path, typer.Argument(readable=False, metavar="CONFIG", help="Experiment file that names something in the tree.")
    ],
    good: Annotated[str, typer.Option(metavar="TREE@REV", help="A commit of the tree before the change.")],
    bad: Annotated[str, typer.Option(metavar="TREE@REV", help="A commit behind it.")],
    cell: Annotated[
        str | None, typer.Option(metavar="ID", help="The cell that is looked at: its id, or parts such as kprobe.")
    ] = None,
    overrides: options.Overrides = None,
    kconfig: options.KernelConfig = None,
    make: options.MakeVariables = None,
    form: options.FormOption = options.Form.TABLE,
    limit: options.Limit = 20,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Find the commit from which on a cell costs as much as at --bad.

    What that executes differently is printed too. A commit that does not build or boot is skipped. Exits with 1 where
    skipped commits hide the one that is looked for.
    """
    read_source(config)  # a file that cannot be read is found before a tree is cloned and built
    ends = revisions(good, bad)
    build = TreeBuild.of(ends[0].top, kconfig, make or ())
    measuring = Measuring(offline=offline, verbose=verbose)
    with GitTree.open(Cache(cache_dir()), ends[0].top, offline=offline) as tree:
        runs = CommitRuns(tree, config, tuple(overrides or ()), build, measuring, "-bisect")
        measured = MeasuredCommits(runs, cell)
        found = Bisection(tree, measured.measure, options.say).between(*ends)
        sides = [measured.sides.get(one) for one in (tree.parent(found.candidates[-1].hash), found.candidates[0].hash)]
    # What the newest candidate executes differently than the last good commit, where both have a profile.
    profiled = [side for side in sides if side is not None and side.cell.profile]
    by_symbol = [with_code(difference_of(*profiled))] if len(profiled) == 2 else []
    _print_bisection(found, by_symbol, form, limit or None)
    raise typer.Exit(0 if len(found.candidates) == 1 else 1)


def _print_bisection(
    found: Found, by_symbol: Sequence[ProfileDifference], form: options.Form, limit: int | None
) -> None:
    if form is options.Form.JSON:
        differences = [one.as_json() for one in by_symbol]
        typer.echo(json.dumps({**bisection_json(found), "differences": differences}, indent=2))
        return
    sheets = [bisection_sheet(found), *(difference_sheet(one, limit) for one in by_symbol)]
    options.print_profiles("Bisection", form, sheets, lambda sheet: [sheet], str)
