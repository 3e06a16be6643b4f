# SPDX-License-Identifier: GPL-2.0-only
"""An experiment at commits of a tree, or on two kernels: measured where that was not done before, and compared."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from orchestrator import __version__
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, revisions
from orchestrator.artifacts.kernel_build import TreeBuild, is_kernel_source
from orchestrator.artifacts.kernels import UnusableTreeError
from orchestrator.artifacts.sources import included, read_c_source
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.cli import options
from orchestrator.cli.compared import Side, compared_runs, first_of
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
from orchestrator.results.contract import CellRecord, all_ok
from orchestrator.results.origin import Commit, Measured, OriginDifference
from orchestrator.results.runs import Run, find_run
from orchestrator.results.statistics import median_interval
from orchestrator.run.bisection import NotMeasured

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
        """The run of these cells of ``experiment`` at a commit: a stored one, or a new one."""
        key = self._key(experiment, planned)
        known = self._known().get(key, {}).get(commit.hash)
        if known is not None:
            try:
                return find_run(known, lab_dir())
            except LabError:  # it was removed
                pass
        entry, record = self.measuring.done(lambda runner: runner.run(experiment, planned, None))
        if all_ok(record):
            self._remember(key, commit, entry.id)
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
        """What numbers depend on beside the commit."""
        plain = replace(experiment, heading=experiment.heading.model_copy(update={"description": None}))
        config = self.build.config.read_bytes() if self.build.config.is_file() else b""
        cells = [cell.id for cell in planned.cells]
        files = [stamp for path in sorted(self.outside) for stamp in _stamps(Path(path))]
        parts = [plain.digest(), *cells, config.hex(), *self.build.variables, *files, __version__, qemu_version()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _known(self) -> dict[str, dict[str, str]]:
        """The runs that were made earlier, by what numbers depend on and by commit."""
        try:
            known = json.loads((self.tree.folder / _KNOWN).read_text())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def _remember(self, key: str, commit: Commit, run: str) -> None:
        known = self._known()
        known.setdefault(key, {})[commit.hash] = run
        write_whole(self.tree.folder / _KNOWN, json.dumps(known))


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


SUFFIX = "-commits"
"""Of the runs' experiment."""


@dataclass(frozen=True)
class TwoCommits:
    """An experiment at two commits, ``TREE@REV`` each; ``overrides`` replace its values, ``only`` selects its cells.

    ``kconfig`` and ``make`` say how a kernel's tree is built: see ``TreeBuild``.
    """

    config: Path
    names: tuple[str, str]
    overrides: Sequence[str] = ()
    only: Sequence[str] = ()
    kconfig: Path | None = None
    make: Sequence[str] = ()

    def compared(self, measuring: Measuring) -> ComparedRuns:
        """Measure at both commits, where that was not done before, and compare.

        Raises UsageError where there is no such commit, both are one, or the experiment is wrong; BuildError where a
        kernel does not build.
        """
        read_source(self.config)
        ends = revisions(*self.names)
        if ends[0].commit == ends[1].commit:
            raise UsageError(f"{' and '.join(self.names)} are the same commit", hint="name two different ones")
        build = TreeBuild.of(ends[0].top, self.kconfig, self.make)
        with GitTree.open(Cache(cache_dir()), ends[0].top, offline=measuring.offline) as tree:
            tree.check_out(*(end.commit for end in ends))
            runs = CommitRuns(tree, self.config, tuple(self.overrides), build, measuring, SUFFIX)
            commits = [tree.commit(end.commit) for end in ends]
            before, after = (self._run(runs, commit) for commit in commits)
        compared = compared_runs(before, after)
        one, other = (f"{commit.short} {commit.subject}" for commit in commits)
        return replace(compared, origin=[OriginDifference("commit", one, other), *compared.origin], again=self._command)

    def _run(self, runs: CommitRuns, commit: Commit) -> Run:
        print(f"measuring {commit.short} {commit.subject}", file=sys.stderr, flush=True)
        runs.tree.check_out(commit.hash)
        experiment, planned = runs.planned(commit)
        run = runs.run(commit, experiment, select(planned, self.only))
        print(f"run {run.record.run}: {run.directory}", file=sys.stderr, flush=True)
        return run

    @property
    def _command(self) -> Sequence[str]:
        options = [
            *(("--set", override) for override in self.overrides),
            *(("--only", wanted) for wanted in self.only),
            *([("--kconfig", str(self.kconfig))] if self.kconfig is not None else []),
            *(("--make", variable) for variable in self.make),
        ]
        words = [word for option in options for word in option]
        return ["compare", "--config", str(self.config), *self.names, *words]


@dataclass
class MeasuredCommits:
    """A cell of the experiment of ``runs``: ``name`` is its id, or parts of it.

    Without a name the experiment has only one cell beside its baselines.
    """

    runs: CommitRuns
    name: str | None
    sides: dict[str, Side] = field(default_factory=dict)
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

    def _side(self, commit: Commit) -> Side:
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
        return Side(run, next(cell for cell in run.record.cells if cell.id == wanted))

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
        shown = first_of([cell.id for cell in found or cells])
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


@dataclass(frozen=True)
class TwoKernels:
    """An experiment on two kernels: names of the catalogue, or paths of a user's.

    ``overrides`` replace its values, ``only`` selects its cells.
    """

    config: Path
    kernels: tuple[str, str]
    overrides: Sequence[str]
    only: Sequence[str]

    @property
    def names(self) -> tuple[str, str]:
        before, after = (kernel_spec(kernel_name(name)).name for name in self.kernels)
        return before, after

    def measured(
        self, parts: Sequence[str], measuring: Measuring
    ) -> tuple[Sequence[tuple[Side, Side]], Sequence[CellRecord]]:
        """Measure each cell that can have a profile on both kernels, with these parts of it.

        Pairs of cells that have a number on both kernels, and the cells that have none.
        """
        run = self._run(lambda whole: only_profiled(with_profile(whole, parts)), measuring)
        pairs = [(one.before, one.after) for one in pairs_by_kernel(run.record.cells, *self.names)]
        both = [(one, other) for one, other in pairs if one is not None and other is not None]
        numbers = [(Side(run, one), Side(run, other)) for one, other in both if one.status == other.status == "ok"]
        return numbers, [cell for cell in run.record.cells if cell.status != "ok"]

    def run(self, measuring: Measuring) -> Run:
        """Measure each cell on both kernels, with its instructions by symbol wherever they can be proved."""
        return self._run(with_symbols, measuring)

    def _run(self, measured: Callable[[Experiment], Experiment], measuring: Measuring) -> Run:
        experiment = measured(load_experiment(self.config, kinds(), self.overrides, qemu_cpu_names))
        wanted = measuring.found(on_kernels(experiment, self.kernels))
        planned = select(plan(wanted), self.only)
        entry, record = measuring.done(lambda runner: runner.run(wanted, planned, None))
        print(f"run {entry.id}: {entry.directory}", file=sys.stderr)
        return Run(record, entry.directory)
