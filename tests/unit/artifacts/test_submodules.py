# SPDX-License-Identifier: GPL-2.0-only
"""Has a commit in the lab's clone the submodules that it records, from whatever repositories the user has of them?"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from user_trees import git

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, find_revision
from orchestrator.artifacts.submodules import SubmoduleError

BY_FILE = ("-c", "protocol.file.allow=always")


def commit(top: Path, file: str, content: str) -> str:
    """Commit a file, and everything else that has changed."""
    (top / file).parent.mkdir(parents=True, exist_ok=True)
    (top / file).write_text(content)
    git(top, "add", "--all")
    git(top, "commit", "--quiet", "--message", content)
    return git(top, "rev-parse", "HEAD")


def repository(top: Path) -> Path:
    top.mkdir()
    git(top, "init", "--quiet")
    return top


def add(top: Path, url: Path | str, path: str, *options: str) -> None:
    git(top, *BY_FILE, "submodule", "--quiet", "add", *options, str(url), path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose file says 10, then 20, then 30, and a repository whose submodule of it was at 10, then at 20."""
    folder = tmp_path_factory.mktemp("made")
    shared, tree = repository(folder / "shared"), repository(folder / "tree")
    commits = [commit(shared, "rounds.h", rounds) for rounds in ("10", "20", "30")]
    add(tree, "../shared", "counts/shared")
    git(tree / "counts/shared", "checkout", "--quiet", commits[0])
    commit(tree, "counts/counts.c", "the same")
    git(tree / "counts/shared", "checkout", "--quiet", commits[1])
    git(tree, "commit", "--quiet", "--all", "--message", "nothing else")
    return folder


@pytest.fixture
def tree(made: Path, tmp_path: Path) -> Path:
    """A copy of the repository, beside one of the library."""
    return Path(shutil.copytree(made, tmp_path / "made", symlinks=True)) / "tree"


def contents(top: Path, name: str, file: str = "counts/shared/rounds.h") -> tuple[str | None, list[str]]:
    """What a commit has in the file by the tree's clone, and what it lacks; without the network."""
    revision = find_revision(f"{top}@{name}")
    with GitTree.open(Cache(top.parent / "cache"), revision.top, offline=True) as clone:
        clone.check_out(revision.commit)
        place = clone.folder / file
        return place.read_text() if place.is_file() else None, list(clone.lacking)


def state(top: Path) -> list[str]:
    """All files of a repository, its submodules' included, with their times."""
    return sorted(f"{path} {path.stat().st_mtime_ns}" for path in top.rglob("*") if path.is_file())


def test_each_commit_has_the_submodule_that_it_records(tree: Path) -> None:
    before = state(tree)
    for name, rounds in [("HEAD~1", "10"), ("HEAD", "20"), ("HEAD~1", "10")]:
        assert contents(tree, name) == (rounds, [])
    assert state(tree) == before


def test_what_was_built_beside_a_submodule_s_files_is_kept(tree: Path) -> None:
    with GitTree.open(Cache(tree.parent / "cache"), tree) as clone:
        clone.check_out(git(tree, "rev-parse", "HEAD~1"))
        built, header = (clone.folder / "counts/shared" / name for name in ("rounds.o", "rounds.h"))
        built.write_text("an object")
        header.write_text("changed by a build")
        clone.check_out(git(tree, "rev-parse", "HEAD"))
        assert (built.read_text(), header.read_text()) == ("an object", "20")


def test_a_killed_git_s_lock_in_a_submodule_is_no_obstacle(tree: Path) -> None:
    with GitTree.open(Cache(tree.parent / "cache"), tree) as clone:
        clone.check_out(git(tree, "rev-parse", "HEAD~1"))
        (clone.folder / "counts/shared/.git/index.lock").touch()
        clone.check_out(git(tree, "rev-parse", "HEAD"))
        assert (clone.folder / "counts/shared/rounds.h").read_text() == "20"


def renamed(tree: Path) -> None:
    git(tree, "mv", "counts/shared", "library")
    git(tree, "commit", "-qm", "move")


def removed(tree: Path) -> None:
    git(tree, "rm", "-q", "counts/shared")
    git(tree, "commit", "-qm", "remove")


def taken_in(tree: Path) -> None:
    """Its files become the repository's own."""
    removed(tree)
    commit(tree, "counts/shared/rounds.h", "own")


def a_file_in_its_place(tree: Path) -> None:
    removed(tree)
    commit(tree, "counts/shared", "a file")


def added_anew(tree: Path) -> None:
    """Under another name, so that no repository is called as the commits before call it."""
    url = git(tree / "counts/shared", "remote", "get-url", "origin")
    removed(tree)
    shutil.rmtree(tree / ".git/modules")
    add(tree, url, "library", "--name", "headers")
    commit(tree, "counts/counts.c", "another")


def recursing(tree: Path) -> None:
    git(tree, "config", "submodule.recurse", "true")
    git(tree, "config", "diff.submodule", "log")


def with_own_folder(tree: Path) -> None:
    """As older versions of git made it: the repository is in the submodule's own folder."""
    place, stored = tree / "counts/shared/.git", tree / ".git/modules/counts/shared"
    place.unlink()
    stored.rename(place)
    git(tree, "config", "--file", f"{place}/config", "--unset", "core.worktree")


def sparse(tree: Path) -> None:
    git(tree, "sparse-checkout", "set", "nothing")


@pytest.mark.parametrize(
    "change", [renamed, removed, taken_in, a_file_in_its_place, added_anew, recursing, with_own_folder, sparse]
)
def test_the_commits_before_a_change_have_their_submodule(tree: Path, change: Callable[[Path], None]) -> None:
    before, last = git(tree, "rev-parse", "HEAD~1"), git(tree, "rev-parse", "HEAD")
    change(tree)
    kept: dict[Callable[[Path], None], str] = {taken_in: "own", recursing: "20", with_own_folder: "20", sparse: "20"}
    for name, rounds in [(before, "10"), (last, "20"), ("HEAD", kept.get(change)), (before, "10")]:
        assert contents(tree, name) == (rounds, [])
    if change is a_file_in_its_place:
        assert contents(tree, "HEAD", "counts/shared")[0] == "a file"
    if change in (renamed, added_anew):
        assert contents(tree, "HEAD", "library/rounds.h")[0] in ("20", "30")


def test_a_submodule_within_a_submodule(tree: Path, tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer")
    add(outer, tree, "inner")
    commit(outer, "file", "first")
    git(outer, *BY_FILE, "submodule", "--quiet", "update", "--init", "--recursive")
    git(outer / "inner", "checkout", "--quiet", "HEAD~1")
    commit(outer, "file", "second")
    for name, rounds in [("HEAD", "10"), ("HEAD~1", "20")]:
        assert contents(outer, name, "inner/counts/shared/rounds.h") == (rounds, [])


def test_another_worktree_s_repository_will_do(tree: Path) -> None:
    git(tree, "worktree", "add", "--quiet", "--detach", "../aside", "HEAD")
    assert contents(tree.parent / "aside", "HEAD~1") == ("10", [])


def test_a_tree_that_is_a_submodule_itself(tree: Path, tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer")
    add(outer, tree, "inner")
    git(outer, *BY_FILE, "submodule", "--quiet", "update", "--init", "--recursive")
    assert contents(outer / "inner", "HEAD~1") == ("10", [])


def cloned(tree: Path, *options: str) -> Path:
    git(tree.parent, *BY_FILE, "clone", "--quiet", *options, str(tree), "mine")
    return tree.parent / "mine"


def as_said(command: str) -> None:
    """Do what a message says; the submodule's address is a folder here."""
    subprocess.run(
        ["sh", "-c", command.replace("git ", f"git {shlex.join(BY_FILE)} ")], check=True, capture_output=True
    )


def test_a_submodule_that_the_user_never_had_stays_empty_and_is_said(tree: Path) -> None:
    mine = cloned(tree)
    content, (sentence,) = contents(mine, "HEAD~1")
    assert content is None
    said, command = sentence.split("; to get its files: ")
    short = git(tree, "rev-parse", "HEAD~1")[:12]
    assert said == f"{short} has the submodule counts/shared, and you have no repository of it: its folder is empty"
    assert command == f"git -C {mine} submodule update --init counts/shared"
    as_said(command)
    assert contents(mine, "HEAD~1") == ("10", [])


def test_a_submodule_of_earlier_commits_that_the_user_never_had(tree: Path) -> None:
    before = git(tree, "rev-parse", "HEAD~1")
    removed(tree)
    mine = cloned(tree)
    content, (sentence,) = contents(mine, before)
    assert content is None
    as_said(sentence.split("; to get its files: ")[1])
    assert contents(mine, before) == ("10", [])
    assert contents(mine, "HEAD") == (None, [])


def test_a_submodule_that_is_gone_again_leaves_nothing(tree: Path) -> None:
    mine = cloned(tree, "--recurse-submodules")
    assert contents(mine, "HEAD") == ("20", [])
    git(mine, "submodule", "--quiet", "deinit", "--all", "--force")
    shutil.rmtree(mine / ".git/modules")
    content, lacking = contents(mine, "HEAD")
    assert (content, len(lacking)) == (None, 1)


@pytest.mark.parametrize("is_away", [False, True], ids=["in place", "not in the work tree"])
def test_a_commit_that_the_user_s_submodule_lacks(tree: Path, made: Path, *, is_away: bool) -> None:
    last = git(tree, "rev-parse", "HEAD")
    mine = cloned(tree)
    as_said(f"git -C {mine} config submodule.counts/shared.url file://{made}/shared")
    as_said(f"git -C {mine} submodule --quiet update --init --depth 1")
    if is_away:
        removed(mine)
    assert contents(mine, last) == ("20", [])
    with pytest.raises(SubmoduleError) as caught:
        contents(mine, f"{last}~1")
    needed = git(made / "shared", "rev-parse", "HEAD~2")
    assert caught.value.what == (
        f"{mine} needs its submodule counts/shared at {needed[:12]}, which your repository of it lacks"
    )
    as_said(caught.value.hint.removeprefix("fetch the commit: "))
    assert contents(mine, f"{last}~1") == ("10", [])
