# SPDX-License-Identifier: GPL-2.0-only
"""Has a user's tree each of its commits in a clone, and is it left as it is?"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from user_trees import git

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, find_revision, revisions
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.process import Finished


@pytest.fixture(scope="module")
def two_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of two commits, with a file that is not committed."""
    top = tmp_path_factory.mktemp("two-commits") / "my tree"
    (top / "sub").mkdir(parents=True)
    git(top, "init", "--quiet")
    for content in ("first", "second"):
        (top / "sub" / "file").write_text(content)
        git(top, "add", "sub")
        git(top, "commit", "--quiet", "--message", content)
    (top / "own").write_text("not committed")
    return top


@pytest.fixture
def tree(two_commits: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(two_commits, tmp_path / two_commits.name, symlinks=True))


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
        pytest.raises(LabError, match="another process is working on"),
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


# --- trees that lack something, or that only the user's configuration allows ---------------------


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A repository of five commits, from which parts can be fetched, and a branch with a tag aside of them."""
    top = tmp_path / "upstream"
    (top / "sub").mkdir(parents=True)
    git(top, "init", "--quiet")
    for setting in ("allowFilter", "allowAnySHA1InWant"):
        git(top, "config", f"uploadpack.{setting}", "true")
    for number in range(1, 6):
        commit(top, str(number))
    git(top, "checkout", "--quiet", "-b", "topic", "HEAD~3")
    commit(top, "aside")
    git(top, "tag", "v0")
    git(top, "checkout", "--quiet", "main")
    return top


def commit(top: Path, content: str) -> str:
    (top / "sub" / "file").write_text(content)
    git(top, "add", "sub")
    git(top, "commit", "--quiet", "--message", content)
    return git(top, "rev-parse", "HEAD")


def cloned(upstream: Path, *options: str) -> Path:
    """A clone of it, without files: nothing of them was fetched."""
    git(upstream.parent, "clone", "--quiet", "--no-checkout", *options, f"file://{upstream}", "mine")
    return upstream.parent / "mine"


def worktree(top: Path) -> Path:
    """Another worktree of a repository, without files."""
    git(top, "worktree", "add", "--quiet", "--no-checkout", "--detach", "../worktree", "HEAD")
    return top.parent / "worktree"


def content(top: Path, name: str, *, offline: bool = False) -> str:
    """What a commit has in the file, by the tree's clone in the cache."""
    revision = find_revision(f"{top}@{name}")
    with GitTree.open(Cache(top.parent / "cache"), revision.top, offline=offline) as clone:
        clone.check_out(revision.commit)
        return (clone.folder / "sub" / "file").read_text()


def objects(top: Path) -> list[Path]:
    return sorted((top / ".git" / "objects").rglob("*"))


@pytest.mark.parametrize("aside", [False, True], ids=["clone", "worktree"])
@pytest.mark.parametrize("lacking", ["--depth=2", "--filter=blob:none", "--filter=tree:0"])
def test_what_a_part_of_a_repository_can_check_out(upstream: Path, lacking: str, aside: bool) -> None:
    mine = cloned(upstream, lacking)
    tree = worktree(mine) if aside else mine
    before = objects(mine)
    assert [content(tree, name) for name in ("HEAD~1", "HEAD")] == ["4", "5"]
    assert objects(mine) == before
    assert git(tree, "rev-parse", "HEAD") == git(upstream, "rev-parse", "main")
    # What is fetched and committed later is there as well.
    commit(upstream, "6")
    git(mine, "fetch", "--quiet")
    assert [content(tree, name) for name in ("origin/main", "origin/main~1")] == ["6", "5"]


def test_a_shallow_clone_that_was_made_whole_has_all_commits(upstream: Path) -> None:
    mine = cloned(upstream, "--depth=1")
    assert content(mine, "HEAD") == "5"
    git(mine, "fetch", "--quiet", "--unshallow")
    assert content(mine, "HEAD~4") == "1"


@pytest.mark.parametrize(("name", "found"), [("HEAD~4", "1"), ("v0", "aside"), ("origin/topic", "aside")])
def test_the_command_that_is_named_gets_what_a_shallow_clone_lacks(upstream: Path, name: str, found: str) -> None:
    mine = cloned(upstream, "--depth=2")
    with pytest.raises(UsageError, match="has no commit") as caught:
        find_revision(f"{mine}@{name}")
    said, command = caught.value.hint.split(": ", 1)
    assert said.endswith("the tree is a shallow clone")
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    assert content(mine, name) == found


def test_a_partial_clone_whose_remote_is_gone(upstream: Path) -> None:
    mine = cloned(upstream, "--filter=blob:none")
    away = upstream.rename(upstream.with_name("away"))
    with pytest.raises(HostError, match="is a partial clone") as caught:
        content(mine, "HEAD")
    assert caught.value.hint == f"check that its remote answers: git -C {mine} fetch"
    away.rename(upstream)
    assert content(mine, "HEAD") == "5"


def test_offline_a_partial_clone_fetches_from_a_folder_alone(upstream: Path) -> None:
    mine = cloned(upstream, "--filter=blob:none")
    assert content(mine, "HEAD~1", offline=True) == "4"
    git(mine, "remote", "set-url", "origin", "https://example.invalid/upstream.git")
    with pytest.raises(HostError, match="is a partial clone") as caught:
        content(mine, "HEAD", offline=True)
    assert caught.value.hint == "leave out --offline"
    assert any("not allowed" in line for line in caught.value.detail)


@pytest.mark.parametrize("status", [-13, 141])
def test_a_fetch_that_ends_before_git_has_asked_it_kills_git(
    upstream: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = cloned(upstream, "--filter=blob:none")
    killed = Finished(("git", "checkout"), status, "", "fatal: transport 'https' not allowed\n")
    monkeypatch.setattr("orchestrator.artifacts.git_tree.check_out", lambda *words, offline: killed)
    with pytest.raises(HostError, match="is a partial clone"):
        content(mine, "HEAD", offline=True)


def test_the_first_commit_is_checked_out_where_the_others_can_be(upstream: Path) -> None:
    mine = cloned(upstream, "--filter=blob:none")
    commits = [find_revision(f"{mine}@{name}").commit for name in ("HEAD", "HEAD~1")]
    content(mine, "HEAD")  # fetches what it needs
    upstream.rename(upstream.with_name("away"))
    with GitTree.open(Cache(mine.parent / "cache"), mine) as clone:
        clone.check_out(commits[0])
        with pytest.raises(HostError, match=commits[1][:12]):
            clone.check_out(*commits)


@pytest.mark.parametrize("place", ["system", "global", "count", "parameters"])
def test_a_tree_of_another_user_s_that_the_configuration_allows(
    tree: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UsageError, match="git refuses") as caught:
        find_revision(f"{tree}@HEAD")
    assert any("safe.directory" in line for line in caught.value.detail)
    file = tree.parent / "config"
    file.write_text(f'[safe]\n\tdirectory = "{tree}"\n')
    settings = {
        "system": {"GIT_CONFIG_SYSTEM": str(file)},
        "global": {"GIT_CONFIG_GLOBAL": str(file)},
        "count": {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": str(tree)},
        "parameters": {"GIT_CONFIG_PARAMETERS": f"'safe.directory'='{tree}'"},
    }
    for name, value in settings[place].items():
        monkeypatch.setenv(name, value)
    (tree / "sub" / "file").write_text("third")
    assert content(tree, "HEAD~1") == "first"


@pytest.mark.parametrize("written", ["UTF-8", "ISO-8859-1"])
def test_a_commit_s_subject_is_text_whatever_encoding_the_user_sees_it_in(
    tree: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    git(tree, "config", "i18n.logOutputEncoding", "ISO-8859-1")
    message = tree.parent / "message"
    message.write_text("Größe der Puffer ändern", encoding=written)
    git(tree, "-c", f"i18n.commitEncoding={written}", "commit", "--quiet", "--allow-empty", "--file", str(message))
    monkeypatch.setenv("LC_ALL", "de_DE.ISO-8859-1")
    with GitTree.open(Cache(tree.parent / "cache"), tree, offline=True) as clone:
        assert clone.commit(git(tree, "rev-parse", "HEAD")).subject == "Größe der Puffer ändern"


def test_a_filter_that_only_the_repository_s_configuration_has(tree: Path) -> None:
    git(tree, "config", "filter.louder.smudge", "tr a-z A-Z")
    (tree / ".gitattributes").write_text("file filter=louder\n")
    git(tree, "add", ".gitattributes")
    git(tree, "commit", "--quiet", "--message", "third")
    assert content(tree, "HEAD") == "SECOND"


def test_a_repository_whose_files_are_in_worktrees_only(upstream: Path) -> None:
    git(upstream.parent, "clone", "--quiet", "--bare", str(upstream), "mine")
    assert content(worktree(upstream.parent / "mine"), "HEAD~2") == "3"


@pytest.mark.parametrize("bare", [False, True], ids=["beside a work tree", "of a bare repository"])
def test_worktrees_of_a_repository_have_one_clone(tree: Path, tmp_path: Path, bare: bool) -> None:
    main = tree
    if bare:
        main = tmp_path / "bare.git"
        git(tmp_path, "clone", "--quiet", "--bare", str(tree), str(main))
    tops = [main] if not bare else []
    for name in ("aside", "inside/a place" if not bare else "apart"):
        tops.append(tmp_path / "trees" / name if bare or name == "aside" else main / name)
        git(main, "worktree", "add", "--quiet", "--detach", str(tops[-1]), "HEAD")
    folders = set()
    for top in tops:
        with GitTree.open(Cache(tmp_path / "cache"), find_revision(f"{top}/@HEAD").top) as clone:
            folders.add(clone.folder)
            # An experiment may name a file of any of them.
            assert {clone.moved(str(path / "sub/file")) for path in tops} == {str(clone.folder / "sub/file")}
    assert len(folders) == 1
    before, after = revisions(f"{tops[0]}/@HEAD~1", f"{tops[1]}/@HEAD")
    assert (before.top, after.top) == (tops[0], tops[1])
    with (
        GitTree.open(Cache(tmp_path / "cache"), tops[0]),
        pytest.raises(LabError, match="another process is working on"),
        GitTree.open(Cache(tmp_path / "cache"), tops[1]),
    ):
        pass


def test_the_clone_of_a_main_work_tree_has_the_name_that_it_had(tree: Path, tmp_path: Path) -> None:
    """The ids of cells on the kernel that is built there have its path: their histories go on."""
    with GitTree.open(Cache(tmp_path / "cache"), tree) as clone:
        assert clone.folder.name == f"my-tree-{hashlib.sha256(str(tree).encode()).hexdigest()[:6]}"


def test_a_copy_of_an_earlier_version_or_of_another_repository_is_no_obstacle(upstream: Path) -> None:
    mine = cloned(upstream, "--depth=2")
    with GitTree.open(Cache(mine.parent / "cache"), mine) as clone:
        copy = clone.folder
    shutil.rmtree(copy)
    git(mine.parent, "clone", "--quiet", "--shared", "--no-checkout", str(upstream), str(copy))
    assert content(mine, "HEAD~1") == "4"
    # Another repository in its place: no commit of before is there.
    shutil.rmtree(mine)
    upstream.rename(mine)
    assert content(mine, commit(mine, "of another one")) == "of another one"
    shutil.rmtree(mine / ".git")
    git(mine, "init", "--quiet")
    commit(mine, "anew")
    assert content(mine, commit(mine, "and again")) == "and again"
