# SPDX-License-Identifier: GPL-2.0-only
"""Is a commit skipped for what it cannot do, not for what the host lacks, and measured again where it must be?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from record_builders import cell
from stored_profiles import store_run

from orchestrator.artifacts.git_tree import GitTree
from orchestrator.artifacts.kernels import UnusableTreeError
from orchestrator.artifacts.own_kernel_build import TreeBuild
from orchestrator.cli.commits import BisectedCell, CommitRuns, _stamps
from orchestrator.cli.measuring import Measurer
from orchestrator.errors import BuildError, HostError, LabError, UsageError
from orchestrator.lab.lab import Lab
from orchestrator.results.origin import Commit
from orchestrator.results.runs import find_run
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

    def load(self, *arguments: Any) -> Any:
        return Lab().load(*arguments)

    def resolved(self, experiment: Any) -> Any:
        return experiment

    def measured(self, _experiment: object, _planned: object) -> Any:
        raise self.error


def raised(folder: Path, error: LabError) -> LabError:
    """What becomes of an error while a commit is measured."""
    (folder / "own.yaml").write_text(EXPERIMENT)
    (folder / "own.c.j2").write_text("")
    measurer = cast(Measurer, Failing(error))
    tree = GitTree(folder, folder.parent / "clone")
    tree.folder.mkdir()
    (tree.folder / "own.c.j2").write_text("")
    runs = CommitRuns(tree, folder / "own.yaml", (), TreeBuild(folder / ".config"), measurer, "-bisect")
    commits = BisectedCell(runs, None)
    with pytest.raises(LabError) as caught:
        commits.measure(COMMIT)
    return caught.value


@pytest.mark.parametrize(
    "error", [BuildError("it does not build"), UsageError("no such point"), UnusableTreeError("no virtio")]
)
def test_a_commit_that_cannot_be_measured_is_skipped(tmp_path: Path, error: LabError) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    found = raised(folder, error)
    assert isinstance(found, NotMeasured)
    assert found.what == error.what


def test_what_the_host_lacks_ends_the_bisection(tmp_path: Path) -> None:
    """Of a full disk all commits that follow would be candidates."""
    folder = tmp_path / "tree"
    folder.mkdir()
    error = HostError("the disk of the cache folder is full")
    assert raised(folder, error) is error


class Counting(Failing):
    """Stands for what measures: it stores a run with a number each time."""

    def __init__(self, lab: Path) -> None:
        self.lab, self.runs = lab, 0

    def measured(self, _experiment: object, _planned: object) -> Any:
        self.runs += 1
        id_ = store_run(self.lab, self.lab.parent / f"run{self.runs}", cell("none"))
        return find_run(id_, self.lab)


def test_what_is_not_in_the_tree_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel is bisected with a module that is elsewhere: its costs of before an edit are none of today's."""
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    for folder in ("tree", "clone/.git", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("tree/own.c.j2", "clone/own.c.j2", "elsewhere/other.c.j2", "elsewhere/work.h"):
        (tmp_path / file).touch()
    config = tmp_path / "own.yaml"
    config.write_text(EXPERIMENT.replace("./own.c.j2", "./tree/own.c.j2, ./elsewhere/other.c.j2"))
    measurer = Counting(tmp_path / "lab")
    tree = GitTree(tmp_path / "tree", tmp_path / "clone")

    def measured() -> int:
        runs = CommitRuns(tree, config, (), TreeBuild(tmp_path / ".config"), cast(Measurer, measurer), "-bisect")
        runs.run(COMMIT, *runs.planned(COMMIT))
        return measurer.runs

    assert [measured(), measured()] == [1, 1]
    (tmp_path / "elsewhere" / "work.h").write_text("/* more */")
    assert [measured(), measured()] == [2, 2]
    (tmp_path / "elsewhere" / "notes").write_text("no module includes it")
    assert measured() == 2
    (tmp_path / "apart.h").write_text("")
    (tmp_path / "elsewhere" / "other.c.j2").write_text('#include "../apart.h"\n')
    assert [measured(), measured()] == [3, 3]
    (tmp_path / "apart.h").write_text("/* more */")
    assert [measured(), measured()] == [4, 4]


@pytest.mark.parametrize("content", [b"/* caf\xe9 */\n", b"x" * ((1 << 20) + 1)])
@pytest.mark.parametrize("name", ["own.c.j2", "large.h"])
def test_a_source_that_cannot_be_read_as_one_has_a_stamp(tmp_path: Path, name: str, content: bytes) -> None:
    """Whether it can be built is for the build to say. What it includes may change without a sign."""
    main = tmp_path / "own.c.j2"
    main.write_text('#include "large.h"\n')
    (tmp_path / name).write_bytes(content)
    stamps = list(_stamps(main))
    assert str(main) in [line.partition(" ")[0] for line in stamps]
    assert list(_stamps(main)) != stamps


def test_every_file_of_a_module_s_folder_has_a_stamp(tmp_path: Path) -> None:
    (tmp_path / "mine" / "include").mkdir(parents=True)
    for name in ("Kbuild", "include/work.h"):
        (tmp_path / "mine" / name).touch()
    before = list(_stamps(tmp_path / "mine"))
    (tmp_path / "mine" / "include" / "work.h").write_text("/* more */")
    assert list(_stamps(tmp_path / "mine")) != before
