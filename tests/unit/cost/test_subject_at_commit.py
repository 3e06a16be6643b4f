# SPDX-License-Identifier: GPL-2.0-only
"""Is each program at a commit that of exactly one of the user's names?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from user_trees import git

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree
from orchestrator.cost.subject_at_commit import SubjectAtCommit, subject_of_today
from orchestrator.cost.subjects import AttachPlace, Subject


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "own.bpf.c").write_text("int all;\n")
    git(folder, "add", "own.bpf.c")
    git(folder, "commit", "--quiet", "-m", "Watch")
    return folder


@pytest.mark.parametrize(
    "names",
    [
        ["{file} program=on_read", "{file} program=on_open"],
        ["{file} program='on_read'", "{file} program=on_open"],
        ["{file} program=on_read", "{file}"],
        ["{file}"],
        ["{file} program=on_read cflags=-Iinclude", "{file} 'cflags=-I include' program=on_open"],
        ["{file} cflags=-Iinclude"],
    ],
)
def test_programs_of_one_file_are_named_one_by_one(top: Path, tmp_path: Path, names: list[str]) -> None:
    file = top / "own.bpf.c"
    with GitTree.open(Cache(tmp_path / "cache"), top, offline=True) as tree:
        named = [SubjectAtCommit.of(name.format(file=file), tree) for name in names]
        moved = tree.moved(str(file))
        assert moved != str(file)
        for program in ("on_read", "on_open"):
            flags = " 'cflags=-I include'" if "cflags" in names[0] else ""
            then = Subject(f"{moved} program={program}{flags}", moved, AttachPlace("vfs_read"), program)
            today = replace(then, row=f"{file} program={program}{flags}", source=str(file))
            assert subject_of_today(then, named) == today
