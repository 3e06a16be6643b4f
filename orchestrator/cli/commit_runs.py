# SPDX-License-Identifier: GPL-2.0-only
"""Runs of an experiment at any commit of a tree, which is built and measured where that was not done before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from orchestrator import __version__
from orchestrator.artifacts.git_tree import GitTree
from orchestrator.artifacts.inclusion import included, read_source
from orchestrator.artifacts.tree_build import TreeBuild, is_kernel_source
from orchestrator.benchmarks.registry import kinds
from orchestrator.cli import options
from orchestrator.cli.measured import Measuring
from orchestrator.errors import ConfigError, LabError, UsageError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file.loading import load_experiment
from orchestrator.experiment.on_kernels import on_kernels
from orchestrator.experiment.plan import Plan, plan
from orchestrator.experiment.profiled import with_symbols
from orchestrator.guest.emulator import qemu_cpu_names, qemu_version
from orchestrator.paths import lab_dir
from orchestrator.results.bisected import Commit
from orchestrator.results.contract import all_ok
from orchestrator.results.runs import Run, find_run
from orchestrator.whole_file import write_whole

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
            elsewhere = included(read_source(path), [path.parent])
        except ConfigError:  # to build it tells; what it includes is unknown, and no earlier run is known to have that
            yield uuid4().hex
    for file in sorted({path, *beside, *elsewhere}):
        if file.is_file():
            status = file.stat()
            yield f"{file} {status.st_size} {status.st_mtime_ns}"
