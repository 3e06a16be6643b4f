# SPDX-License-Identifier: GPL-2.0-only
"""Experiments loaded, planned and measured, with the user's cache and store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.kernels import kernel
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import LeftOut, Moved, built_experiment, load_experiment, none_left_out
from orchestrator.experiment.plan import Plan, check_budgets, plan, select
from orchestrator.guest.qemu_facts import qemu_cpu_names
from orchestrator.library.needed_packages import check_packages
from orchestrator.paths import cache_dir, lab_dir
from orchestrator.program import PROGRAM
from orchestrator.results.runs import Run, check_directory
from orchestrator.results.store import RunEntry, Store
from orchestrator.run.plan_check import check_plan
from orchestrator.run.runner import (
    ExecutorMaker,
    PreparedPlan,
    ProgressListener,
    Runner,
    check_resumable,
    check_same_cells,
    local_executor,
    resolve_in_guests,
)

_OPTION = re.compile(
    r"--(against|at-most|bad|budget|call|cell|cpu|good|hits|kconfig|kernels|make|point|workload)\b"
    r"( (?!(?:and|are|or|is|needs?)\b)(?=[\w./<\"']))?"
)
"""An option that is an argument of the library, too, and the blank before its value."""


@dataclass(frozen=True)
class Measurer:
    """Measures experiments in this user's folders (``ORCHESTRATOR_CACHE``, ``ORCHESTRATOR_LAB``).

    ``progress`` is told what a run does. ``jobs`` guests run in parallel; or ``fleet`` names a fleet, whose workers
    decide. ``offline`` uses only what is in the cache. ``fresh`` boots every guest, ``events`` keeps recorded events.
    Every expected failure is a ``LabError``; methods name the branches of it that a caller may want to tell apart.
    """

    progress: ProgressListener = field(default_factory=ProgressListener)
    jobs: int | None = None
    fleet: str | None = None
    offline: bool = False
    fresh: bool = False
    events: bool = False

    _prefix: ClassVar[str] = ""
    """The prefix of arguments' names in errors: ``--`` on the command line."""

    def argument(self, name: str) -> str:
        """An argument's name as the caller writes it: ``at_most``, or ``--at-most`` on the command line."""
        return f"{self._prefix}{name.replace('_', '-')}" if self._prefix else name

    def spoken(self, text: str) -> str:
        """A text whose options are arguments as the caller writes them: ``call=CALL`` in place of ``--call CALL``."""
        return _OPTION.sub(lambda match: match[1].replace("-", "_") + ("=" if match[2] else ""), text)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Errors of the block name arguments as the caller writes them."""
        try:
            yield
        except LabError as error:
            error.reword(self.spoken)
            raise

    def check(self) -> None:
        """Raise UsageError for a wrong number of guests or fleet, HostError for a fleet that does not answer."""
        self._check_jobs()
        if self.fleet is not None:
            from orchestrator.fleet.target import target

            target(self.fleet)

    def _check_jobs(self) -> None:
        if self.jobs is not None and not 1 <= self.jobs <= 64:
            raise UsageError(f"found {self.jobs} parallel guests; expected 1 to 64", where=self.argument("jobs"))
        if self.fleet is not None and self.jobs is not None:
            hint = "leave it out: `fleet up` and `fleet worker` take --guests"
            what = "a fleet's workers decide how many guests they run"
            raise UsageError(what, where=self.argument("jobs"), hint=hint)

    def load(
        self,
        file: str | PathLike[str],
        overrides: Sequence[str] = (),
        moved: Moved = str,
        left_out: LeftOut = none_left_out,
    ) -> Experiment:
        """The experiment of a file, with ``KEY=VALUE`` overrides; ``moved`` maps the paths that it names.

        Probes that are ``left_out`` by their paths are no rows.

        Raises ConfigError, which lists every problem.
        """
        return load_experiment(Path(file), kinds(), overrides, qemu_cpu_names, moved, left_out)

    def build(self, content: Mapping[str, Any], moved: Moved = str) -> Experiment:
        """An experiment of the keys of a file (docs/reference/experiment-file.md). Raises ConfigError."""
        return built_experiment(content, kinds(), qemu_cpu_names, moved)

    def resolved(self, experiment: Experiment) -> Experiment:
        """The experiment with the points that only a guest knows, from the cache if possible."""
        with self.watched() as watching:
            context = self._context(watching)
            check_packages(context, [experiment])
            return resolve_in_guests(context, experiment, kinds())

    def planned(self, experiment: Experiment, only: Sequence[str] = ()) -> Plan:
        """The cells of a resolved experiment that match a filter. Raises ConfigError for filters that match none."""
        whole = plan(experiment)
        check_budgets(experiment, whole)
        return select(whole, only)

    def check_cells(self, experiment: Experiment, only: Sequence[str] = ()) -> Plan | None:
        """Check an experiment as far as that is possible before anything is fetched, built or started.

        Returns the plan, or None if a guest has to find its points first. Raises ConfigError for budgets and filters
        that match no cell, and for points and modules that none of the kernels in the cache has; HostError for CPUs
        that this host cannot provide.
        """
        whole, is_whole = plan(experiment), all(named.table.unknown is None for named in experiment.tables)
        if is_whole:
            check_budgets(experiment, whole)
            select(whole, only)
        check_plan(experiment, whole, self._in_cache)
        return whole if is_whole else None

    def _in_cache(self, name: str) -> Kernel | None:
        """A kernel that is in the cache; None for a user's tree, which may be about to be built."""
        spec = kernel(name)
        try:
            return None if spec.tree is not None else ready_kernel(BuildContext(Cache(cache_dir()), offline=True), spec)
        except HostError:
            return None

    def run(
        self, experiment: Experiment, *, only: Sequence[str] = (), directory: str | PathLike[str] | None = None
    ) -> Run:
        """Measure an experiment; returns when every cell has an outcome, which may be that it failed.

        ``only`` are filters as of ``--only``. Raises UsageError or HostError if nothing can be measured.
        """
        where = None if directory is None else Path(directory)
        if where is not None:
            check_directory(where)
        self.check()  # before guests are asked
        resolved = self.resolved(experiment)
        return self.measured(resolved, self.planned(resolved, only), where)

    def measured(self, experiment: Experiment, planned: Plan, directory: Path | None = None) -> Run:
        """Measure the planned cells of a resolved experiment in a new run."""
        return self.with_runner(lambda runner: runner.run(experiment, planned, directory))

    def measured_unless(
        self, experiment: Experiment, planned: Plan, known: Callable[[PreparedPlan], str | None]
    ) -> Run:
        """The stored run that ``known`` names for what was fetched and built, or a new one if it names none."""

        def work(runner: Runner) -> RunEntry:
            prepared = runner.prepared(experiment, planned)
            name = known(prepared)
            return runner.run(experiment, planned, None, prepared) if name is None else runner.store.entry(name)

        return self.with_runner(work)

    def resumed(self, experiment: Experiment, planned: Plan, directory: Path | None = None) -> Run:
        """Go on with the latest unfinished run, or that in ``directory``. Raises UsageError if there is none."""
        return self.with_runner(
            lambda runner: runner.resume(_unfinished(runner.store, experiment, directory), experiment, planned)
        )

    def with_runner(self, work: Callable[[Runner], RunEntry]) -> Run:
        """Do ``work`` with a runner, and return the run. Raises as ``check`` does."""
        self._check_jobs()  # whether the fleet answers is seen by the executor
        with self.watched() as watching, Store.open(lab_dir()) as store:
            context, executor = self._context(watching), self._executor()
            entry = work(Runner(context, store, watching, kinds(), executor, self.events, self.fresh))
            return Run(store.load_run(entry.id), entry.directory, len(store.unfinished_cells(entry.id)))

    def context(self) -> BuildContext:
        """Builds artifacts (kernels, modules, images) in the user's cache."""
        return self._context(self.progress)

    @contextmanager
    def building(self) -> Iterator[BuildContext]:
        """The context for what is built before a run."""
        yield self.context()

    def say(self, text: str) -> None:
        """Tell the listener what is done between runs."""
        self.progress.say(text)

    def _context(self, told: ProgressListener) -> BuildContext:
        return BuildContext(Cache(cache_dir()), self.offline, told.say, told.warn)

    @contextmanager
    def watched(self) -> Iterator[ProgressListener]:
        """The listener for one operation."""
        yield self.progress

    def _executor(self) -> ExecutorMaker:
        if self.fleet is None:
            return local_executor(self.jobs or 1)
        from orchestrator.fleet.fleet_executor import fleet_executor  # loads Dask, of the extra "fleet"
        from orchestrator.fleet.target import quiet_logging, target

        fleet = target(self.fleet)
        quiet_logging()
        return lambda context, watching: fleet_executor(fleet.address, fleet.key, kinds(), context, watching)


def _unfinished(store: Store, experiment: Experiment, directory: Path | None) -> RunEntry:
    if directory is None:
        entry = store.latest(experiment.name, unfinished=True)
        if entry is None:
            raise UsageError(
                f"experiment '{experiment.name}' has no unfinished run", hint="leave out --resume to start one"
            )
    else:
        entries = [e for e in store.runs() if e.directory.resolve() == directory.resolve()]
        if not entries:
            hint = f"leave out --resume to start one; see: {PROGRAM} list runs"
            raise UsageError("this lab has no run in that directory", where=str(directory), hint=hint)
        entry = entries[0]
    check_resumable(entry, experiment, kinds())
    check_same_cells(entry, store.unfinished_cells(entry.id), plan(experiment))
    return entry
