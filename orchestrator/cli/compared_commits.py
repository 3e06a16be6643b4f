# SPDX-License-Identifier: GPL-2.0-only
"""An experiment at two commits of a tree, measured and compared."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, revisions
from orchestrator.artifacts.tree_build import TreeBuild
from orchestrator.cli.commit_runs import CommitRuns
from orchestrator.cli.compared_runs import compared_runs
from orchestrator.cli.measured import Measuring
from orchestrator.errors import UsageError
from orchestrator.experiment.file.source import read_source
from orchestrator.experiment.selection import select
from orchestrator.paths import cache_dir
from orchestrator.results.bisected import Commit
from orchestrator.results.compared_runs import ComparedRuns
from orchestrator.results.origin import OriginDifference
from orchestrator.results.runs import Run

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
        """What was called."""
        options = [
            *(("--set", override) for override in self.overrides),
            *(("--only", wanted) for wanted in self.only),
            *([("--kconfig", str(self.kconfig))] if self.kconfig is not None else []),
            *(("--make", variable) for variable in self.make),
        ]
        words = [word for option in options for word in option]
        return ["compare", "--config", str(self.config), *self.names, *words]
