# SPDX-License-Identifier: GPL-2.0-only
"""The submodules of a commit, checked out in the lab's clone from the repositories that the user has of them.

Nothing is fetched. A commit is named by its content, so any repository of the user's that has it will do: that of the
submodule's name, one in a work tree, one of another worktree, or one of an earlier name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shutil import rmtree

from orchestrator.artifacts.git import SharedRepository, git, is_clone, unlock
from orchestrator.artifacts.large_files import check_out, lacking_content
from orchestrator.errors import LabError
from orchestrator.process import Finished

_GITLINK = "160000"
"""The mode of a submodule in git's index and trees."""


class SubmoduleError(LabError):
    """A submodule's commit cannot be checked out: the user's repository of it lacks the commit."""


@dataclass(frozen=True)
class Submodule:
    """A submodule in the folder ``path`` of its repository, at ``commit``."""

    path: str
    commit: str


def submodules(folder: Path) -> Sequence[Submodule]:
    """The submodules in the index of a work tree; none if git refuses it."""
    listed = _git(folder, "ls-files", "--stage", "-z").stdout.split("\0")
    entries = [line.partition("\t") for line in listed if line.startswith(_GITLINK)]
    return [Submodule(path, facts.split()[1]) for facts, _, path in entries]


def _git(folder: Path, *arguments: str) -> Finished:
    """Ask git about a repository of any owner; nothing is fetched for it."""
    return git(folder, "-c", f"safe.directory={folder}", *arguments, settings={"GIT_ALLOW_PROTOCOL": "none"})


def remove_submodules(clone: Path, commit: str) -> None:
    """Remove the checked-out submodules that a commit lacks: git would keep their folders, or fail to replace them."""
    present = [submodule.path for submodule in submodules(clone) if is_clone(clone / submodule.path)]
    if present:
        listed = _git(clone, "ls-tree", "-z", commit, "--", *present).stdout.split("\0")
        kept = {line.partition("\t")[2] for line in listed if line.startswith(_GITLINK)}
        for path in present:
            if path not in kept:
                rmtree(clone / path)


@dataclass(frozen=True)
class UserSubmodules:
    """The repositories that the user has of the submodules of the work tree ``top``."""

    top: Path

    def check_out(self, clone: Path, commit: str, *, offline: bool) -> Iterator[str]:
        """Check out the submodules of a checked-out ``commit``, and those of these.

        A folder stays empty where the user has no repository of the submodule, as in the user's work tree: yields a
        sentence on each. Raises SubmoduleError.
        """
        yield from self._checked_out(clone, "", commit, offline=offline)

    def _checked_out(self, clone: Path, outer: str, commit: str, *, offline: bool) -> Iterator[str]:
        """Check out the submodules of a clone; ``outer`` is its path below the tree, ``commit`` the tree's."""
        for submodule in submodules(clone):
            path, folder = f"{outer}{submodule.path}", clone / submodule.path
            repository = self._with(submodule, path, clone)
            if repository is None:
                if is_clone(folder):  # of another commit
                    rmtree(folder)
                yield self._sentence(outer, submodule.path, commit)
                continue
            shared = SharedRepository.of(repository)
            if is_clone(folder):
                unlock(folder)
                shared.share(folder)
                remove_submodules(folder, submodule.commit)
            else:
                shared.clone(folder)
            finished = check_out(folder, "--detach", submodule.commit, offline=offline)
            if finished.status != 0:
                what = f"git cannot check out {submodule.commit[:12]} of the submodule {path} of {self.top}"
                raise SubmoduleError(what, where=str(repository), detail=finished.complaint())
            yield from lacking_content(repository, folder, submodule.commit, offline=offline)
            yield from self._checked_out(folder, f"{path}/", commit, offline=offline)

    def _with(self, submodule: Submodule, path: str, clone: Path) -> Path | None:
        """A repository that has a submodule's commit; None if the user has no repository of the submodule.

        Raises SubmoduleError if the user has one, without the commit.
        """
        here = _repository_of(self.top / path)
        place = f"/modules/{_name(clone, submodule.path)}"
        named = [repository for repository in self._stored if repository.as_posix().endswith(place)]
        paths = [*([] if here is None else [here]), *named]
        for repository in (*paths, *self._stored, *self._in_work_tree):
            if _git(repository, "--work-tree=.", "cat-file", "-e", f"{submodule.commit}^{{commit}}").status == 0:
                return repository
        if not paths:
            return None
        remote = next(iter(_git(paths[0], "--work-tree=.", "remote").stdout.split()), "origin")
        in_it = f"{shlex.quote(str(paths[0]))} --work-tree=." if here is None else shlex.quote(str(self.top / path))
        raise SubmoduleError(
            f"{self.top} needs its submodule {path} at {submodule.commit[:12]}, which your repository of it lacks",
            hint=f"fetch the commit: git -C {in_it} fetch {shlex.quote(remote)} {submodule.commit}",
        )

    def _sentence(self, outer: str, path: str, commit: str) -> str:
        lacking = (
            f"{commit[:12]} has the submodule {outer}{path}, and you have no repository of it: its folder is empty"
        )
        user, is_there = self.top / outer, (self.top / outer / ".git").exists()
        if is_there and path in (submodule.path for submodule in submodules(user)):
            command = f"git -C {shlex.quote(str(user))} submodule update --init {shlex.quote(path)}"
        else:
            aside = shlex.quote(f"{self.top}-{commit[:12]}")
            command = f"git -C {shlex.quote(str(self.top))} worktree add --detach {aside} {commit[:12]}"
            command += f" && git -C {aside} submodule update --init --recursive"
        return f"{lacking}; to get its files: {command}"

    @cached_property
    def _stored(self) -> Sequence[Path]:
        """The repositories of submodules within the user's repository and its worktrees."""
        asked = _git(self.top, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir").stdout
        folders = dict.fromkeys(Path(line) for line in asked.splitlines())
        return [path for folder in folders for path in _submodules_of(folder)]

    @cached_property
    def _in_work_tree(self) -> Sequence[Path]:
        """The repositories in folders of the user's work tree, at whatever path they are now."""
        places = [_repository_of(self.top / submodule.path) for submodule in submodules(self.top)]
        return [place for place in places if place is not None]


def _repository_of(folder: Path) -> Path | None:
    """The repository of a work tree's top folder; None for another folder."""
    if not (folder / ".git").exists():
        return None
    asked = _git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir")
    return Path(asked.stdout.removesuffix("\n")) if asked.status == 0 else None


def _submodules_of(repository: Path) -> Iterator[Path]:
    """The repositories of submodules in a ``.git`` folder: their own, those of its worktrees, and theirs."""
    for folder in (repository / "modules", *sorted(repository.glob("worktrees/*/modules"))):
        yield from _repositories_below(folder)


def _repositories_below(folder: Path) -> Iterator[Path]:
    """Below ``modules`` a folder for each part of a submodule's name ends in its repository."""
    for child in sorted(folder.iterdir()) if folder.is_dir() else ():
        if child.is_symlink() or not child.is_dir():
            continue
        if (child / "HEAD").is_file() and (child / "objects").is_dir():
            yield child
            yield from _submodules_of(child)
        else:
            yield from _repositories_below(child)


def _name(clone: Path, path: str) -> str:
    """The name by which a checked-out commit calls the submodule at a path."""
    words = ("config", "--file", ".gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$")
    for line in _git(clone, *words).stdout.split("\0"):
        key, _, value = line.partition("\n")
        if value == path:
            return key.removeprefix("submodule.").removesuffix(".path")
    return path
