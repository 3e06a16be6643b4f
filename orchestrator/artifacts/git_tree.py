# SPDX-License-Identifier: GPL-2.0-only
"""A user's git tree at any of its revisions: a clone in the cache, which keeps what was built in it.

The user's repository is only read. The clone has its own files and bisection state. It shares the repository's
objects, configuration and shallow boundary, refreshed whenever it is opened, so it can check out whatever the user's
git can. Objects that it fetches for a partial clone stay in the clone.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git import SharedRepository, git, git_in_clone, is_clone, unlock
from orchestrator.artifacts.large_files import check_out, lacking_content
from orchestrator.artifacts.submodules import UserSubmodules, remove_submodules
from orchestrator.catalog.data import nearest
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.paths import AWKWARD, kbuild_takes, user_path
from orchestrator.plain_text import plain_line
from orchestrator.process import Finished
from orchestrator.results.commit_heads import Commit

FOLDER = "git-trees"
"""In the cache."""
UNFINISHED = ".unfinished"
"""The suffix of an unfinished clone."""

_PATHLESS = "a folder with a slash in its name, then @ and a commit: ./linux@v6.1"
_MOST_NAMES = 10_000
"""Tags and branches considered for suggestions; a kernel's repository has a thousand tags."""

_FETCH_ENDED = (-signal.SIGPIPE, 128 + signal.SIGPIPE)
"""git 2.39 is killed by SIGPIPE if its own fetch has ended before git writes the wanted objects to it."""


@dataclass(frozen=True)
class Revision:
    """A commit of a repository; ``top`` is the work tree's folder, ``name`` the commit as the user wrote it."""

    top: Path
    commit: str
    name: str


def is_revision(name: str) -> bool:
    """Whether a name means ``TREE@REV``, and not an existing file."""
    return "@" in name and not user_path(name).exists()


def find_revision(text: str) -> Revision:
    """The commit that ``TREE@REV`` names. Raises UsageError if there is no such tree or commit."""
    tree, mark, name = text.rpartition("@")
    if name.startswith("{"):  # as in HEAD@{1} or @{upstream}
        tree, _, ref = tree.rpartition("@") if "@" in tree else (tree, "", "")
        name = f"{ref}@{name}"
    if not mark or "/" not in tree:
        raise UsageError(f"found {text!r}; expected TREE@REV", hint=_PATHLESS)
    folder = user_path(tree)
    if not folder.is_dir():
        raise UsageError(f"found {text!r}; {_no_folder(tree, folder)}")
    top = git(folder, "rev-parse", "--show-toplevel")
    if top.status != 0:
        words = top.complaint()[1:]
        if "not a git repository" in "".join(words):
            raise UsageError(f"found {text!r}; {folder} is not under git", hint="name a folder of a repository")
        raise UsageError(f"found {text!r}; git refuses {folder}", detail=words)
    finished = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    commit = finished.stdout.strip()
    if finished.status != 0 or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
        raise UsageError(f"found {text!r}; {folder} has no commit {name!r}", hint=_other_commit(tree, folder, name))
    return Revision(Path(top.stdout.rstrip("\n")), commit, name)


def _no_folder(tree: str, folder: Path) -> str:
    if "://" in tree:
        return "a tree is a folder of this host: clone the repository first"
    if folder.exists():
        return f"{folder} is a file; a tree is a folder"
    beside = sorted(path.name for path in folder.parent.iterdir()) if folder.parent.is_dir() else []
    guess = nearest(folder.name, beside)
    question = f"; did you mean '{tree.rstrip('/').removesuffix(folder.name)}{guess}'?" if guess else ""
    return f"there is no folder {folder}{question}"


def _other_commit(tree: str, folder: Path, name: str) -> str:
    if ".." in name:
        return "name one commit, not a range"
    if git(folder, "rev-list", "--max-count=1", "--all").stdout == "":
        return "the repository has no commit yet"
    named = git(folder, "for-each-ref", "--format=%(refname:short)", f"--count={_MOST_NAMES}").stdout.split()
    guess = nearest(name, named)
    question = f"did you mean '{tree}@{guess}'? " if guess else ""
    if not is_shallow(folder):
        return f"{question}see: git -C {tree} log --oneline --all"
    has_origin = git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", re.sub(r"[~^].*", "", name))
    if has_origin.status == 0:
        return f"the tree is a shallow clone: {unshallowing(tree, whole=False)}"
    return f"{question}the tree is a shallow clone: {unshallowing(tree, whole=True)}"


def is_shallow(folder: Path) -> bool:
    """Whether a folder's repository lacks older commits that its remote has."""
    return git(folder, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"


def unshallowing(tree: str, *, whole: bool) -> str:
    """The command that fetches a shallow clone's missing commits: of its branch, or of all branches and tags."""
    command = f"git -C {shlex.quote(tree)} fetch --unshallow"
    if not whole:
        return command
    remote = next(iter(git(user_path(tree), "remote").stdout.split()), "origin")
    return f"{command} --tags {shlex.quote(remote)} '+refs/heads/*:refs/remotes/{remote}/*'"


def revisions(before: str, after: str) -> tuple[Revision, Revision]:
    """Two commits of one repository, each ``TREE@REV``. Raises UsageError."""
    pair = find_revision(before), find_revision(after)
    if repository_of(pair[0].top) != repository_of(pair[1].top):
        raise UsageError(f"{pair[0].top} and {pair[1].top} are two repositories", hint="name two commits of one")
    return pair


def repository_of(top: Path) -> Path:
    """The folder that stands for a work tree's repository, the same for all its worktrees: that of the main one.

    A bare repository stands for itself. Raises LabError if git refuses the folder.
    """
    common = Path(_asked(top, "--git-common-dir"))
    return common.parent if common.name == ".git" else common


def _work_trees(top: Path) -> Sequence[Path]:
    """All work trees of a repository, an inner one before the one that it is in."""
    listed = git(top, "worktree", "list", "--porcelain").stdout
    folders = (Path(line.removeprefix("worktree ")) for line in listed.splitlines() if line.startswith("worktree "))
    return sorted({top, *folders}, key=lambda folder: len(folder.parts), reverse=True)


def _asked(top: Path, *question: str) -> str:
    answer = git(top, "rev-parse", "--path-format=absolute", *question)
    return answer.or_raise(LabError, f"git refuses {top}").stdout.removesuffix("\n")


def tree_lock(folder: Path) -> str:
    """The cache lock that is held while a clone is made or used."""
    return f"git-tree-{folder.name.removesuffix(UNFINISHED)}"


@dataclass(frozen=True)
class GitTree:
    """The clone ``folder`` of the repository of ``top``, opened by one process. With ``offline`` it fetches nothing.

    All worktrees of a repository have one clone; ``work_trees`` are these, an inner one before the one that it is in,
    or ``top`` alone. ``lacking`` are sentences on what the checked-out commit has and the user's repository has not: a
    submodule, a large file.
    """

    top: Path
    folder: Path
    offline: bool = False
    work_trees: Sequence[Path] = ()
    lacking: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def open(cls, cache: Cache, top: Path, *, offline: bool = False) -> Iterator[GitTree]:
        """Open the tree's clone, making it if missing. Raises LabError if another process uses it."""
        repository = repository_of(top)
        name = re.sub(r"[^A-Za-z0-9._+-]+", "-", repository.name).strip("-.+_") or "tree"
        folder = cache.root / FOLDER / f"{name[:40]}-{hashlib.sha256(str(repository).encode()).hexdigest()[:6]}"
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not kbuild_takes(folder):
            what = f"nothing can be built in {folder}: its path has {AWKWARD}"
            raise LabError(what, hint="set ORCHESTRATOR_CACHE to another folder")
        with cache.try_lock(tree_lock(folder)) as is_ours:
            if not is_ours:
                raise LabError(
                    f"another process is working on {repository}", where=str(folder), hint="wait until it has ended"
                )
            tree = cls(top, folder, offline, _work_trees(top))
            shared = SharedRepository.of(top)
            if not is_clone(folder):
                tree._clone(shared)
            unlock(folder)
            shared.share(folder)
            yield tree

    def git(self, *arguments: str) -> Finished:
        return git_in_clone(self.folder, *arguments, offline=self.offline)

    def check_out(self, *commits: str) -> None:
        """Check out the first commit, given that the others were checked out before it, each with its submodules.

        Raises HostError; SubmoduleError and other LabErrors.
        """
        for commit in reversed(commits):
            remove_submodules(self.folder, commit)
            finished = check_out(self.folder, "--detach", commit, offline=self.offline)
            if finished.status == 0:
                lacking = UserSubmodules(self.top).check_out(self.folder, commit, offline=self.offline)
                self.lacking[:] = [*lacking, *lacking_content(self.top, self.folder, commit, offline=self.offline)]
                continue
            words = finished.complaint()
            if "promisor remote" in finished.stderr or finished.status in _FETCH_ENDED:
                see = f"check that its remote answers: git -C {shlex.quote(str(self.top))} fetch"
                what = f"{self.top} is a partial clone, and the objects of {commit[:12]} cannot be fetched"
                raise HostError(what, detail=words, hint="leave out --offline" if self.offline else see)
            hint = f"see whether git can: git -C {shlex.quote(str(self.top))} archive {commit[:12]} >/dev/null"
            hint += f"; if so, remove the lab's copy, which is then made again: rm -r {shlex.quote(str(self.folder))}"
            raise LabError(f"git cannot check out {commit[:12]} of {self.top}", detail=words, hint=hint)

    def succeed(self, *arguments: str) -> str:
        return self.git(*arguments).or_raise(LabError, f"git {arguments[0]} failed", where=str(self.folder)).stdout

    def commit(self, name: str) -> Commit:
        text = self.succeed("log", "-1", "--no-show-signature", "--format=%H%n%s%n%an%n%as", name, "--")
        lines = [plain_line(line)[:200] for line in text.split("\n")]
        full_name, subject, author, date, *_ = [*lines, "", "", ""]
        return Commit(full_name, subject, author, date)

    def parent(self, commit: str) -> str:
        return self.git("rev-parse", "--verify", "--quiet", f"{commit}^1").stdout.strip()

    def moved(self, path: str) -> str:
        """A path in one of the repository's work trees as that of the same file in the clone; another one unchanged."""
        place = user_path(path)
        # git reports the tree without symbolic links; a user's path may go through one.
        for file in (place, place.resolve()):
            for top in self.work_trees or (self.top,):
                if file.is_relative_to(top):
                    return str(self.folder / file.relative_to(top))
        return path

    def _clone(self, shared: SharedRepository) -> None:
        unfinished = self.folder.with_name(self.folder.name + UNFINISHED)
        for folder in (unfinished, self.folder):
            shutil.rmtree(folder, ignore_errors=True)
        shared.clone(unfinished)
        unfinished.rename(self.folder)
