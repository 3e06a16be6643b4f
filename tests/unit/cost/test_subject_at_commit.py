# SPDX-License-Identifier: GPL-2.0-only
"""Is each program at a commit that of exactly one of the user's names?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from user_trees import git

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, Revision, find_revision
from orchestrator.cost.subject_at_commit import SubjectAtCommit, subject_of_today
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.library.cost_reference import find_reference


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "own.bpf.c").write_text("int all;\n")
    for name in ("my load", "reads.bt"):
        (folder / name).write_text("kprobe:vfs_read { @ = 1; }\n")
    git(folder, "add", ".")
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


@pytest.mark.parametrize(
    ("name", "row", "is_there"),
    [
        ("tool: './my load' -p 1", "tool: '{folder}/my load' -p 1", True),
        ("tool: ./mine -x", "tool: {folder}/mine -x", False),
        ("{top}/reads.bt 'a b'", "{folder}/reads.bt 'a b'", True),
        ("reads.bt 7", "{folder}/reads.bt 7", True),
    ],
)
def test_a_tool_of_the_repository_is_that_of_the_commit(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, row: str, is_there: bool
) -> None:
    """A built tool is rarely under git: it is not there then, rather than today's."""
    monkeypatch.chdir(top)
    with GitTree.open(Cache(tmp_path / "cache"), top, offline=True) as tree:
        tree.check_out(find_revision(f"{top}@HEAD").commit)
        given = name.format(top=top)
        subject = SubjectAtCommit.of(given, tree)
        assert (subject.then, subject.is_there) == (row.format(folder=tree.folder), is_there)
        then = Subject(subject.then, subject.then, AttachPlace())
        assert subject_of_today(then, [subject]) == Subject(row.format(folder=top), given, AttachPlace())


def test_a_tool_s_repository_has_the_commit_that_it_is_compared_with(top: Path) -> None:
    for name in (f"tool: '{top}/my load' -p 1", f"{top}/reads.bt 'a b'"):
        revision = find_reference("HEAD", ["tool: opensnoop", name])
        assert isinstance(revision, Revision)
        assert revision.top == top
