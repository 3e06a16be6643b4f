# SPDX-License-Identifier: GPL-2.0-only
"""Is a pointer of Git LFS, checked out in place of a file, told from the file, and replaced once that can be had?"""

from __future__ import annotations

from pathlib import Path

import pytest
from user_trees import git

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree
from orchestrator.artifacts.large_files import lacking_content
from orchestrator.errors import LabError

POINTER = """\
version https://git-lfs.github.com/spec/v1
oid sha256:98353545e952f72b80ee9b86d3f24ed2df3f13da7faf597d635c18c92f94963f
size 18
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a header in Git LFS, on a host without git-lfs."""
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    top = tmp_path / "tree"
    (top / "sub").mkdir(parents=True)
    git(top, "init", "--quiet")
    (top / "sub/.gitattributes").write_text("*.h filter=lfs\n")
    (top / "sub/rounds.h").write_text(POINTER)
    (top / "sub/plain.c").write_text(POINTER)
    git(top, "add", "--all")
    git(top, "commit", "--quiet", "--message", "first")
    return top


WITHOUT_CONTENT = '[ "$GIT_LFS_SKIP_SMUDGE" = 1 ] && cat'
"""Does what git-lfs does without the content, and with its variable."""


def header(tree: Path) -> tuple[str, list[str]]:
    """The checked-out header, and what the commit lacks."""
    with GitTree.open(Cache(tree.parent / "cache"), tree) as clone:
        clone.check_out(git(tree, "rev-parse", "HEAD"))
        return (clone.folder / "sub/rounds.h").read_text(), list(clone.lacking)


def filtered(tree: Path, program: str) -> None:
    """Have a program in place of git-lfs."""
    git(tree, "config", "filter.lfs.required", "true")
    git(tree, "config", "filter.lfs.clean", "cat")
    git(tree, "config", "filter.lfs.smudge", program)


def test_a_pointer_is_said_until_the_content_can_be_had(tree: Path) -> None:
    commit = git(tree, "rev-parse", "HEAD")
    content, (sentence,) = header(tree)
    assert content == POINTER
    assert sentence == (
        f"{commit[:12]} has 1 file of Git LFS as pointers, such as sub/rounds.h; to get the content, with git-lfs "
        f"installed (apt install git-lfs): git -C {tree} lfs fetch origin {commit}"
    )
    filtered(tree, WITHOUT_CONTENT)
    assert header(tree) == (content, [sentence])
    filtered(tree, "sed 's/.*/#define ROUNDS 10/;q'")
    assert header(tree) == ("#define ROUNDS 10\n", [])


def test_a_commit_is_checked_out_where_git_lfs_fails_at_once(tree: Path) -> None:
    filtered(tree, WITHOUT_CONTENT)
    assert header(tree)[0] == POINTER


def test_a_file_that_cannot_be_written_again_is_no_missing_file(tree: Path) -> None:
    assert header(tree)[0] == POINTER
    filtered(tree, "echo 'No space left on device' >&2; exit 1")
    commit = git(tree, "rev-parse", "HEAD")
    with pytest.raises(LabError, match=f"git cannot write 1 file of Git LFS of {commit[:12]}") as caught:
        header(tree)
    assert any("No space left on device" in line for line in caught.value.detail)
    filtered(tree, "sed 's/.*/#define ROUNDS 10/;q'")
    assert header(tree) == ("#define ROUNDS 10\n", [])


def test_a_clone_whose_files_cannot_be_listed_is_no_commit_without_pointers(tree: Path) -> None:
    with GitTree.open(Cache(tree.parent / "cache"), tree) as clone:
        commit = git(tree, "rev-parse", "HEAD")
        clone.check_out(commit)
        (clone.folder / ".git/index").write_text("damaged")
        with pytest.raises(LabError, match="git cannot list the files of"):
            list(lacking_content(tree, clone.folder, commit, offline=True))
