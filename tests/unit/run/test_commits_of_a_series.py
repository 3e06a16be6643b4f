# SPDX-License-Identifier: GPL-2.0-only
"""Which commits does a series have, and what do their messages say of themselves?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree
from orchestrator.artifacts.patch_series import ends_of, series
from orchestrator.errors import UsageError


def git(folder: Path, *arguments: str) -> str:
    named = ("-c", "user.name=A Person", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", "-C", folder, *named, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Two commits on main; on topic a commit, its revert, and a merge of a branch with two."""
    folder = tmp_path / "tree"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for name in ("one", "two"):
        git(folder, "commit", "--quiet", "--allow-empty", "--message", name)
    git(folder, "checkout", "--quiet", "-b", "side")
    for name in ("side one", "side two"):
        git(folder, "commit", "--quiet", "--allow-empty", "--message", name)
    git(folder, "checkout", "--quiet", "-b", "topic", "main")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "add")
    added = git(folder, "rev-parse", "HEAD")
    message = f'Revert "add"\n\nThis reverts commit {added}.'
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    git(folder, "merge", "--quiet", "--no-ff", "--message", "merge side", "side")
    git(folder, "checkout", "--quiet", "main")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "later")
    return folder


def test_a_series_begins_where_it_branched_off(top: Path, tmp_path: Path) -> None:
    base, topic = ends_of("main..topic", f"{top}/")
    with GitTree.open(Cache(tmp_path / "cache"), top) as tree:
        commits = series(tree, base, topic)
    assert [commit.commit.subject for commit in commits] == ["two", "add", 'Revert "add"', "merge side"]
    add = commits[1].commit.short
    assert [commit.remark for commit in commits] == ["", "", f"reverts {add}", "merge of all that it brings"]
    assert {commit.email for commit in commits} == {"a@example.org"}


def test_a_topic_that_has_merged_the_base_begins_where_it_began(top: Path, tmp_path: Path) -> None:
    git(top, "checkout", "--quiet", "topic")
    git(top, "merge", "--quiet", "--no-ff", "--message", "merge main", "main")
    git(top, "commit", "--quiet", "--allow-empty", "--message", "last")
    base, topic = ends_of("main..topic", str(top))
    with GitTree.open(Cache(tmp_path / "cache"), top) as tree:
        commits = series(tree, base, topic)
    assert [commit.commit.subject for commit in commits][::5] == ["two", "last"]


def test_a_tree_may_stand_before_the_series(top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, topic = ends_of(f"{top}@main..topic", "./")
    assert (base.top, base.name, topic.name) == (top, "main", "topic")
    monkeypatch.chdir(top)
    git(top, "checkout", "--quiet", "topic")
    assert ends_of("main..", ".")[1].commit == topic.commit
    monkeypatch.chdir(top.parent)
    assert ends_of("tree@main..topic", ".")[1].commit == topic.commit


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topic", "expected [TREE@]BASE..TOPIC"),
        ("main...topic", "expected [TREE@]BASE..TOPIC"),
        ("main..topik", "did you mean"),
        ("nothing..topic", "has no commit 'nothing'"),
    ],
)
def test_wrong_series_are_refused(top: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        ends_of(text, f"{top}/")
    assert message in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(("text", "message"), [("topic..topic~1", "no commit that"), ("main..lonely", "in common")])
def test_a_series_without_commits_or_history_is_refused(top: Path, tmp_path: Path, text: str, message: str) -> None:
    git(top, "checkout", "--quiet", "--orphan", "lonely")
    git(top, "commit", "--quiet", "--allow-empty", "--message", "alone")
    base, topic = ends_of(text, f"{top}/")
    with GitTree.open(Cache(tmp_path / "cache"), top) as tree, pytest.raises(UsageError) as caught:
        series(tree, base, topic)
    assert message in str(caught.value)
