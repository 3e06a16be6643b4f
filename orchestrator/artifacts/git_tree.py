# SPDX-License-Identifier: GPL-2.0-only
"""A user's tree under git at any of its revisions: a clone of its own, which keeps what was built in it.

The user's repository is only read. The clone shares its objects, and has its own files and its own bisection.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.compiler import build_environment
from orchestrator.catalog.spelling import nearest
from orchestrator.errors import LabError, UsageError
from orchestrator.paths import AWKWARD, kbuild_takes, user_path
from orchestrator.plain_text import plain_line
from orchestrator.process import Finished, run
from orchestrator.results.bisected import Commit

FOLDER = "git-trees"
"""In the cache."""
UNFINISHED = ".unfinished"
"""Ends the name of a clone that is being made."""

_LIMIT = 1800.0
"""Seconds; a checkout of a kernel's source takes some tens on a slow disk."""
_LONGEST_SUBJECT = 200
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PATHLESS = "a folder with a slash in its name, then @ and a commit: ./linux@v6.1"
_MOST_NAMES = 10_000
"""Tags and branches among which the nearest is looked for; a kernel's repository has a thousand tags."""


@dataclass(frozen=True)
class Revision:
    """A commit of a repository; ``top`` is the folder of its files, ``name`` what the user called the commit."""

    top: Path
    commit: str
    name: str


def is_revision(name: str) -> bool:
    """Whether a name is meant as ``TREE@REV``, and not as a path of a file that is there."""
    return "@" in name and not user_path(name).exists()


def find_revision(text: str) -> Revision:
    """The commit that ``TREE@REV`` names. Raises UsageError where there is no such tree or commit."""
    tree, mark, name = text.rpartition("@")
    if name.startswith("{"):  # HEAD@{1}, or @{upstream}
        tree, _, ref = tree.rpartition("@") if "@" in tree else (tree, "", "")
        name = f"{ref}@{name}"
    if not mark or "/" not in tree:
        raise UsageError(f"found {text!r}; expected TREE@REV", hint=_PATHLESS)
    folder = user_path(tree)
    if not folder.is_dir():
        raise UsageError(f"found {text!r}; {_no_folder(tree, folder)}")
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top.status != 0:
        words = top.complaint()[1:]
        if "not a git repository" in "".join(words):
            raise UsageError(f"found {text!r}; {folder} is not under git", hint="name a folder of a repository")
        raise UsageError(f"found {text!r}; git refuses {folder}", detail=words)
    found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    commit = found.stdout.strip()
    if found.status != 0 or not _COMMIT.fullmatch(commit):
        raise UsageError(f"found {text!r}; {folder} has no commit {name!r}", hint=_other_commit(tree, folder, name))
    return Revision(Path(top.stdout.rstrip("\n")), commit, name)


def _no_folder(tree: str, folder: Path) -> str:
    if "://" in tree:
        return "a tree is a folder of this host: clone the repository first"
    if folder.exists():
        return f"{folder} is a file; a tree is a folder"
    beside = sorted(one.name for one in folder.parent.iterdir()) if folder.parent.is_dir() else []
    guess = nearest(folder.name, beside)
    question = f"; did you mean '{tree.rstrip('/').removesuffix(folder.name)}{guess}'?" if guess else ""
    return f"there is no folder {folder}{question}"


def _other_commit(tree: str, folder: Path, name: str) -> str:
    """What to do where a repository has no commit of a name: of most names one is nearest."""
    if ".." in name:
        return "name one commit, and no range"
    if _git(folder, "rev-list", "--max-count=1", "--all").stdout == "":
        return "the repository has no commit yet"
    named = _git(folder, "for-each-ref", "--format=%(refname:short)", f"--count={_MOST_NAMES}").stdout.split()
    guess = nearest(name, named)
    question = f"did you mean '{tree}@{guess}'? " if guess else ""
    return f"{question}see: git -C {tree} log --oneline --all"


def revisions(before: str, after: str) -> tuple[Revision, Revision]:
    """Two commits of one repository, each ``TREE@REV``. Raises UsageError as ``find_revision`` does."""
    found = find_revision(before), find_revision(after)
    if found[0].top != found[1].top:
        raise UsageError(f"{found[0].top} and {found[1].top} are two repositories", hint="name two commits of one")
    return found


def tree_lock(folder: Path) -> str:
    """The name of the cache's lock that is held while a clone is made or used."""
    return f"git-tree-{folder.name.removesuffix(UNFINISHED)}"


@dataclass(frozen=True)
class GitTree:
    """The clone ``folder`` of the repository whose files are in ``top``; for the process that has it open."""

    top: Path
    folder: Path

    @classmethod
    @contextmanager
    def open(cls, cache: Cache, top: Path) -> Iterator[GitTree]:
        """The tree's clone in the cache, which is made where it is missing. Raises LabError where it is in use."""
        name = re.sub(r"[^A-Za-z0-9._+-]+", "-", top.name).strip("-.+_") or "tree"
        folder = cache.root / FOLDER / f"{name[:40]}-{hashlib.sha256(str(top).encode()).hexdigest()[:6]}"
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not kbuild_takes(folder):
            what = f"nothing can be built in {folder}: its path has {AWKWARD}"
            raise LabError(what, hint="set ORCHESTRATOR_CACHE to another folder")
        with cache.try_lock(tree_lock(folder)) as is_ours:
            if not is_ours:
                raise LabError(f"another process works on {top}", where=str(folder), hint="wait until it has ended")
            tree = cls(top, folder)
            if not (folder / ".git" / "HEAD").is_file():
                tree._clone()
            tree._unlock()
            yield tree

    def git(self, *arguments: str) -> Finished:
        """Run git in the clone to its end, whatever its status."""
        return _git(self.folder, *arguments)

    def check_out(self, commit: str) -> None:
        """Have the files of a commit in the clone; what was built there and is not under git stays. Raises LabError."""
        self.succeed("checkout", "--quiet", "--force", "--detach", commit)

    def succeed(self, *arguments: str) -> str:
        """What git prints. Raises LabError where it fails."""
        finished = self.git(*arguments)
        if finished.status != 0:
            raise LabError(f"git {arguments[0]} failed", where=str(self.folder), detail=finished.complaint())
        return finished.stdout

    def commit(self, name: str) -> Commit:
        """What git knows of a commit. Raises LabError where it knows none."""
        text = self.succeed("log", "-1", "--no-show-signature", "--format=%H%n%s%n%an%n%as", name, "--")
        lines = [plain_line(line)[:_LONGEST_SUBJECT] for line in text.split("\n")]
        found, subject, author, date, *_ = [*lines, "", "", ""]
        return Commit(found, subject, author, date)

    def parent(self, commit: str) -> str:
        """A commit's first parent; empty where it has none."""
        return self.git("rev-parse", "--verify", "--quiet", f"{commit}^1").stdout.strip()

    def moved(self, path: str) -> str:
        """The path of something in the user's tree, in the clone; any other path as it is."""
        place = user_path(path)
        # git names the tree without symbolic links; a user may come to it by one.
        for one in (place, place.resolve()):
            if one.is_relative_to(self.top):
                return str(self.folder / one.relative_to(self.top))
        return path

    def _unlock(self) -> None:
        """Remove what a git that was killed left: Ctrl-C kills it, and its lock files would refuse any other one."""
        repository = self.folder / ".git"
        for lock in [*repository.glob("*.lock"), *(repository / "refs").rglob("*.lock")]:
            lock.unlink(missing_ok=True)

    def _clone(self) -> None:
        unfinished = self.folder.with_name(self.folder.name + UNFINISHED)
        shutil.rmtree(unfinished, ignore_errors=True)
        command = ("clone", "--quiet", "--shared", "--no-checkout", "--template=", "--", str(self.top), str(unfinished))
        finished = _git(self.folder.parent, *command)
        if finished.status != 0:
            raise LabError(f"{self.top} cannot be cloned", detail=finished.complaint())
        unfinished.rename(self.folder)


def _git(folder: Path, *arguments: str) -> Finished:
    # Without the user's variables, such as GIT_DIR of a hook that we are called by, and without prompts.
    environment = {**build_environment(), "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    quiet = ("-c", "advice.detachedHead=false", "-c", "core.hooksPath=/dev/null")
    return run(["git", "-C", str(folder), *quiet, *arguments], time_limit=_LIMIT, environment=environment)
