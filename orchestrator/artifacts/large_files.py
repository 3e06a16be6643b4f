# SPDX-License-Identifier: GPL-2.0-only
"""Files of Git LFS in a clone: without git-lfs, or without a file's content, git checks out a pointer to it.

git-lfs reads the content from the user's repository, beside the objects that the clone shares.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.artifacts.git import git_in_clone
from orchestrator.errors import LabError
from orchestrator.plain_text import counted
from orchestrator.process import Finished

_ATTRIBUTE = b"filter=lfs"
_POINTER = b"version https://git-lfs.github.com/spec/"
"""Begins a pointer (git-lfs, docs/spec.md)."""
_FAILED = "smudge filter lfs failed"
_MOST = 1000
"""Files that are looked at again."""


def check_out(clone: Path, *words: str, offline: bool) -> Finished:
    """Check out what ``words`` name; a large file whose content git-lfs cannot get is a pointer."""
    argv = ("checkout", "--quiet", "--force", *words)
    finished = git_in_clone(clone, *argv, offline=offline)
    if _FAILED not in finished.stderr:
        return finished
    return git_in_clone(clone, *argv, offline=offline, settings={"GIT_LFS_SKIP_SMUDGE": "1"})


def lacking_content(top: Path, clone: Path, commit: str, *, offline: bool) -> Iterator[str]:
    """A sentence on the pointers that a ``commit`` of ``top``, checked out in ``clone``, has in place of files.

    Raises LabError if git cannot list the files, or cannot write those whose content it should have.
    """
    pointers = _pointers(clone)
    if pointers and git_in_clone(clone, "config", "--get-regexp", r"^filter\.lfs\.", offline=True).status == 0:
        # They may be left from before git-lfs was installed, or had the content: to git they are unchanged.
        for name in pointers:
            (clone / name).unlink()
        written = check_out(clone, "--", *(f":(literal){name}" for name in pointers), offline=offline)
        what = f"git cannot write {counted(len(pointers), 'file')} of Git LFS of {commit[:12]} of {top}"
        see = f"git -C {shlex.quote(str(top))} archive {commit[:12]} >/dev/null"
        hint = f"see whether git-lfs can: {see}; and whether there is room: df -h {shlex.quote(str(clone))}"
        written.or_raise(LabError, what, hint=hint)
        pointers = _pointers(clone)
    if pointers:
        fetched = f"git -C {shlex.quote(str(top))} lfs fetch origin {commit}"
        how = f"with git-lfs installed (apt install git-lfs): {fetched}"
        number = counted(len(pointers), "file")
        yield f"{commit[:12]} has {number} of Git LFS as pointers, such as {pointers[0]}; to get the content, {how}"


def _pointers(clone: Path) -> Sequence[str]:
    attributes = _listed(clone, ".gitattributes", "**/.gitattributes")
    if not any(_ATTRIBUTE in (clone / name).read_bytes() for name in attributes if (clone / name).is_file()):
        return []
    files = _listed(clone, ":(attr:filter=lfs)")[:_MOST]
    return [name for name in files if _is_pointer(clone / name)]


def _is_pointer(file: Path) -> bool:
    if file.is_symlink() or not file.is_file():
        return False
    with file.open("rb") as content:
        return content.read(len(_POINTER)) == _POINTER


def _listed(clone: Path, *patterns: str) -> Sequence[str]:
    listed = git_in_clone(clone, "ls-files", "-z", "--", *patterns, offline=True)
    hint = f"remove the lab's copy, which is then made again: rm -r {shlex.quote(str(clone))}"
    listed.or_raise(LabError, f"git cannot list the files of {clone}", hint=hint)
    return [name for name in listed.stdout.split("\0") if name]
