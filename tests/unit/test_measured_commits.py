# SPDX-License-Identifier: GPL-2.0-only
"""Is a commit skipped for what it cannot do, not for what the host lacks, and measured again where it must be?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from user_trees import git

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree
from orchestrator.artifacts.own_kernel_build import TreeBuild
from orchestrator.artifacts.ready_kernels import UnusableTreeError
from orchestrator.errors import BuildError, ConfigError, HostError, LabError, UsageError
from orchestrator.library.bisected_change import BisectedCell
from orchestrator.library.commit_runs import CommitRuns
from orchestrator.library.experiment_request import ExperimentRequest
from orchestrator.library.lab import Lab
from orchestrator.library.measurer import Measurer
from orchestrator.results.commit_heads import Commit
from orchestrator.run.bisection import NotMeasured

COMMIT = Commit("0" * 40, "change nothing", "A Person", "2026-11-22")
EXPERIMENT = """\
name: own
kernels: [lab-i386-up]
machines: [{cpu: pentium4}]
probes: [none, ./own.c.j2]
benchmark: {name: gtodbench}
"""


class Failing:
    """Stands for what measures: it fails before it has begun a run."""

    def __init__(self, error: LabError) -> None:
        self.error = error

    def say(self, text: str) -> None:
        pass

    def load(self, *arguments: Any) -> Any:
        return Lab().load(*arguments)

    def check_cells(self, experiment: Any, only: Any) -> Any:
        return None

    def resolved(self, experiment: Any) -> Any:
        return experiment

    def planned(self, experiment: Any) -> Any:
        return Lab().planned(experiment)

    def measured_unless(self, *_: object) -> Any:
        raise self.error


def raised(folder: Path, error: LabError) -> LabError:
    """What becomes of an error while a commit is measured."""
    (folder / "own.yaml").write_text(EXPERIMENT)
    (folder / "own.c.j2").write_text("")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", COMMIT.subject)
    commit = replace(COMMIT, hash=git(folder, "rev-parse", "HEAD"))
    with GitTree.open(Cache(folder.parent / "cache"), folder) as tree:
        request = ExperimentRequest(folder / "own.yaml")
        measurer, build = cast(Measurer, Failing(error)), TreeBuild(folder / ".config")
        commits = BisectedCell(CommitRuns(tree, request, build, measurer, "-bisect"), None)
        with pytest.raises(LabError) as caught:
            commits.measure(commit)
    return caught.value


@pytest.mark.parametrize(
    "error", [BuildError("it does not build"), UsageError("no such point"), UnusableTreeError("no virtio")]
)
def test_a_commit_that_cannot_be_measured_is_skipped(tmp_path: Path, error: LabError) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    lab_error = raised(folder, error)
    assert isinstance(lab_error, NotMeasured)
    assert lab_error.what == error.what


def test_what_the_host_lacks_ends_the_bisection(tmp_path: Path) -> None:
    """Of a full disk all commits that follow would be candidates."""
    folder = tmp_path / "tree"
    folder.mkdir()
    error = HostError("the disk of the cache folder is full")
    assert raised(folder, error) is error


def test_a_commit_measures_what_it_has_of_an_experiment(tmp_path: Path) -> None:
    """What a series adds is new: a probe whose file an earlier commit lacks is no row there."""
    folder = tmp_path / "tree"
    folder.mkdir()
    git(folder, "init", "--quiet")
    hashes = []
    for name in ("own.c.j2", "new.c.j2"):
        (folder / name).write_text("")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", f"Add {name}")
        hashes.append(git(folder, "rev-parse", "HEAD"))
    (folder / "own.yaml").write_text(
        EXPERIMENT.replace("own.c.j2]", "own.c.j2, ./new.c.j2]") + "budgets: {probe=new.c.j2: +1, '*': +2}\n"
    )
    with GitTree.open(Cache(tmp_path / "cache"), folder) as tree:
        request, build = ExperimentRequest(folder / "own.yaml"), TreeBuild(folder / ".config")
        runs = CommitRuns(tree, request, build, Lab(offline=True), "-series", hashes[1])
        rows, digests = [], []
        for commit in hashes:
            planned = runs.check(commit)
            assert planned is not None
            rows.append([cell.probe for cell in planned.cells])
            digests.append(runs.digest)
            assert runs.budgets.plain() == {"probe=new.c.j2": "+1", "*": "+2"}
        assert rows == [["none", "own.c.j2"], ["none", "own.c.j2", "new.c.j2"]]
        assert digests[0] != digests[1]
        misspelt = ExperimentRequest(folder / "own.yaml", ["probes=[none, ./mew.c.j2]"])
        with pytest.raises(ConfigError, match="this file does not exist"):
            CommitRuns(tree, misspelt, build, Lab(offline=True), "-series", hashes[1]).check(hashes[0])
        with pytest.raises(NotMeasured, match=r"it has no new\.c\.j2"):
            BisectedCell(runs, "new.c.j2").measure(replace(COMMIT, hash=hashes[0]))


def test_a_program_that_bisects_is_told_of_its_arguments(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", COMMIT.subject)
    (folder / "own.yaml").write_text(EXPERIMENT)
    request = ExperimentRequest(folder / "own.yaml", make=["CC=gcc-12"])
    with pytest.raises(UsageError, match=r"^kconfig and make are for a kernel's tree"):
        Lab(offline=True).bisect(request, f"{folder}@HEAD", f"{folder}@HEAD")
