# SPDX-License-Identifier: GPL-2.0-only
"""A command that measures: with the user's cache and store, progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.cli import options

if TYPE_CHECKING:
    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.experiment.experiment import Experiment
    from orchestrator.results.contract import RunRecord
    from orchestrator.results.store import RunEntry
    from orchestrator.run.progress_listener import ProgressListener
    from orchestrator.run.runner import CrewMaker, Runner


@dataclass(frozen=True)
class Measuring:
    """How guests are run: see the options of ``orchestrator run``. ``jobs`` is None where the user has not said it."""

    jobs: int | None = None
    events: bool = False
    fresh: bool = False
    offline: bool = False
    verbose: bool = False
    fleet: str | None = None

    def check(self) -> None:
        """Raise UsageError for what goes not together, HostError where the fleet does not answer: before any work."""
        from orchestrator.errors import UsageError

        if self.fleet is None:
            return
        if self.jobs is not None:
            hint = "leave --jobs out: `fleet up` and `fleet worker` take --guests"
            raise UsageError("a fleet's workers say themselves how many guests they run", where="--jobs", hint=hint)
        from orchestrator.fleet.target import target

        target(self.fleet)

    def found(self, experiment: Experiment) -> Experiment:
        """The experiment with the points that guests have to find."""
        from orchestrator.benchmarks.registry import kinds
        from orchestrator.run.found_cells import with_found

        with self._watched() as (context, _):
            return with_found(context, experiment, kinds())

    def done(self, work: Callable[[Runner], RunEntry]) -> tuple[RunEntry, RunRecord]:
        """Let ``work`` make a run, or go on with one; the run and its results."""
        from orchestrator.benchmarks.registry import kinds
        from orchestrator.paths import lab_dir
        from orchestrator.results.store import Store
        from orchestrator.run.runner import Runner

        with self._watched() as (context, watching), Store.open(lab_dir()) as store:
            entry = work(Runner(context, store, watching, kinds(), self._crew(), self.events, self.fresh))
            return entry, store.load_run(entry.id)

    def _crew(self) -> CrewMaker:
        """Who does the boots: threads of this process, or a fleet."""
        from orchestrator.run.runner import local_crew

        if self.fleet is None:
            return local_crew(self.jobs or 1)
        from orchestrator.benchmarks.registry import kinds
        from orchestrator.fleet.crew import fleet_crew
        from orchestrator.fleet.silence import silence_dask
        from orchestrator.fleet.target import target

        found = target(self.fleet)
        silence_dask()
        return lambda context, watching: fleet_crew(found.address, found.key, kinds(), context, watching)

    @contextmanager
    def _watched(self) -> Iterator[tuple[BuildContext, ProgressListener]]:
        """The user's cache, and who shows what is done in it."""
        from orchestrator.artifacts.build_context import BuildContext
        from orchestrator.artifacts.cache import Cache
        from orchestrator.cli.progress import listener
        from orchestrator.paths import cache_dir

        with listener(sys.stderr) as watching, options.printed_steps(verbose=self.verbose):
            yield BuildContext(Cache(cache_dir()), self.offline, watching.say, watching.warn), watching
