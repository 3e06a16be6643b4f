# SPDX-License-Identifier: GPL-2.0-only
"""Has a user's tree each of its commits in a clone, and is it left as it is?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, find_revision
from orchestrator.errors import LabError, UsageError


def git(folder: Path, *arguments: str) -> str:
    named = ("-c", "user.name=A Person", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    command = ["git", "-C", str(folder), *named, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of two commits, with a file that is not committed."""
    top = tmp_path / "my tree"
    (top / "sub").mkdir(parents=True)
    git(top, "init", "--quiet")
    for content in ("first", "second"):
        (top / "sub" / "file").write_text(content)
        git(top, "add", "sub")
        git(top, "commit", "--quiet", "--message", content)
    (top / "own").write_text("not committed")
    return top


def state(top: Path) -> tuple[str, ...]:
    return git(top, "status", "--porcelain"), git(top, "for-each-ref"), git(top, "rev-parse", "HEAD")


def test_a_commit_is_named_from_any_folder_of_the_tree(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, part = find_revision(f"{tree}@HEAD~1"), find_revision(f"{tree}/sub@main~1")
    assert (whole.top, whole.commit) == (part.top, part.commit) == (tree, git(tree, "rev-parse", "HEAD~1"))
    monkeypatch.chdir(tree)
    assert find_revision("./@HEAD").commit == git(tree, "rev-parse", "HEAD")
    # Whoever calls us from a hook of another repository means the tree that is named.
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert find_revision("./@HEAD").top == tree


@pytest.mark.parametrize("name", ["HEAD@{1}", "@{1}", "main@{1}"])
def test_a_commit_of_the_reflog_is_named_as_git_does(tree: Path, name: str) -> None:
    assert find_revision(f"{tree}/@{name}").commit == git(tree, "rev-parse", name)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("v6.1", "expected TREE@REV"),
        ("linux@v6.1", "expected TREE@REV"),
        ("{tree}@", "has no commit ''"),
        ("{tree}@v6.1", "has no commit 'v6.1'"),
        ("{tree}@--help", "has no commit '--help'"),
        ("{tree}@HEAD:sub", "has no commit"),
        ("{tree}/none@HEAD", "there is no folder"),
        ("/proc/self@HEAD", "is not under git"),
    ],
)
def test_what_names_no_commit_is_refused(tree: Path, name: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_revision(name.format(tree=tree))
    assert sentence in str(caught.value)


def test_a_clone_has_each_commit_and_keeps_what_was_built(tree: Path, tmp_path: Path) -> None:
    before, revision = state(tree), find_revision(f"{tree}@HEAD~1")
    with GitTree.open(Cache(tmp_path / "cache"), tree) as clone:
        clone.check_out(revision.commit)
        file = Path(clone.moved(f"{tree}/sub/file"))
        assert file.read_text() == "first"
        (file.parent / "built").write_text("an object")
        file.write_text("changed by a build")
        clone.check_out(git(tree, "rev-parse", "HEAD"))
        assert (file.read_text(), (file.parent / "built").read_text()) == ("second", "an object")
        assert clone.moved("/elsewhere/file") == "/elsewhere/file"
        assert clone.parent(git(tree, "rev-parse", "HEAD")) == revision.commit
        assert clone.parent(revision.commit) == ""
    assert state(tree) == before
    # What is committed later is there as well.
    (tree / "sub" / "file").write_text("third")
    git(tree, "commit", "--quiet", "--all", "--message", "third")
    with GitTree.open(Cache(tmp_path / "cache"), tree) as again:
        again.check_out(git(tree, "rev-parse", "HEAD"))
        assert file.read_text() == "third"
        assert (file.parent / "built").exists()


def test_two_processes_do_not_share_a_clone(tree: Path, tmp_path: Path) -> None:
    with (
        GitTree.open(Cache(tmp_path / "cache"), tree),
        pytest.raises(LabError, match="another process works on"),
        GitTree.open(Cache(tmp_path / "cache"), tree),
    ):
        pass


def test_a_clone_that_was_interrupted_is_made_anew(tree: Path, tmp_path: Path) -> None:
    with GitTree.open(Cache(tmp_path / "cache"), tree) as clone:
        folder = clone.folder
    folder.rename(folder.with_name(f"{folder.name}.unfinished"))
    (folder.with_name(f"{folder.name}.unfinished") / ".git" / "HEAD").unlink()
    with GitTree.open(Cache(tmp_path / "cache"), tree) as clone:
        clone.check_out(git(tree, "rev-parse", "HEAD"))


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock", "refs/bisect/bad.lock"])
def test_what_a_killed_git_had_locked_can_be_used_again(tree: Path, tmp_path: Path, lock: str) -> None:
    with GitTree.open(Cache(tmp_path / "cache"), tree) as clone:
        clone.check_out(git(tree, "rev-parse", "HEAD~1"))
        file = clone.folder / ".git" / lock
        file.parent.mkdir(exist_ok=True)
        file.touch()
    with GitTree.open(Cache(tmp_path / "cache"), tree) as clone:
        clone.check_out(git(tree, "rev-parse", "HEAD"))
        clone.succeed("update-ref", "refs/bisect/bad", "HEAD")


def test_a_tree_that_is_named_by_a_symbolic_link_is_the_same_tree(tree: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tree)
    revision = find_revision(f"{link}/@HEAD")
    with GitTree.open(Cache(tmp_path / "cache"), revision.top) as clone:
        assert clone.moved(f"{link}/sub/file") == clone.moved(f"{tree}/sub/file") == str(clone.folder / "sub" / "file")


def test_a_hook_of_the_user_s_is_not_run(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, witness = tmp_path / "hooks", tmp_path / "hooked"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {witness}\n")
    (hooks / "post-checkout").chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(f"[core]\n\thooksPath = {hooks}\n")
    monkeypatch.setenv("HOME", str(home))
    with GitTree.open(Cache(tmp_path / "cache"), tree) as clone:
        clone.check_out(git(tree, "rev-parse", "HEAD"))
    assert not witness.exists()
