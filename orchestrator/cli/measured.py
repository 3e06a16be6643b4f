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
    from orchestrator.run.runner import Runner


@dataclass(frozen=True)
class Measuring:
    """How guests are run: see the options of ``orchestrator run``."""

    jobs: int = 1
    events: bool = False
    fresh: bool = False
    offline: bool = False
    verbose: bool = False

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
        from orchestrator.run.runner import Runner, local_crew

        with self._watched() as (context, watching), Store.open(lab_dir()) as store:
            entry = work(Runner(context, store, watching, kinds(), local_crew(self.jobs), self.events, self.fresh))
            return entry, store.load_run(entry.id)

    @contextmanager
    def _watched(self) -> Iterator[tuple[BuildContext, ProgressListener]]:
        """The user's cache, and who is told what is done in it."""
        from orchestrator.artifacts.build_context import BuildContext
        from orchestrator.artifacts.cache import Cache
        from orchestrator.cli.progress import listener
        from orchestrator.paths import cache_dir

        with listener(sys.stderr) as watching, options.printed_steps(verbose=self.verbose):
            yield BuildContext(Cache(cache_dir()), self.offline, watching.say, watching.warn), watching
