# SPDX-License-Identifier: GPL-2.0-only
"""What the user named for ``orchestrator cost``, as it is at a commit, and what is found there by its name of today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.git_tree import GitTree
from orchestrator.catalog.probes import (
    ONE_PROGRAM,
    TOGETHER,
    is_one_liner,
    parameters_of,
    probe_in_catalogue,
    split_member,
    split_path,
    with_path,
)
from orchestrator.catalog.tools import is_script, is_tool, named_file, with_named_file
from orchestrator.cost.subjects import Subject
from orchestrator.paths import user_path


@dataclass(frozen=True)
class SubjectAtCommit:
    """A subject that the user named, and its name ``then``, at a commit; ``file`` is its file, if that is in the tree.

    ``sources`` has what a line calls it then, with what it calls it today.
    """

    name: str
    then: str
    sources: Mapping[str, str]
    file: str = ""
    moved: str = ""

    @classmethod
    def of(cls, name: str, tree: GitTree) -> SubjectAtCommit:
        if is_tool(name) or is_script(name):
            return cls._of_command(name, tree)
        path, parameters = split_path(name)
        place, member = split_member(path)
        moved = tree.moved(place)
        if is_one_liner(name) or probe_in_catalogue(name) is not None or moved == place:
            return cls(name, name, {name: name, path: path})
        then_path = moved if member is None else f"{moved}:{member}"
        then = with_path(then_path, parameters)
        return cls(name, then, {then: name, then_path: path}, str(user_path(place)), moved)

    @classmethod
    def _of_command(cls, name: str, tree: GitTree) -> SubjectAtCommit:
        file = named_file(name)
        moved = None if file is None else tree.moved(file)
        if file is None or moved is None or moved == file:
            return cls(name, name, {name: name})
        then = with_named_file(name, moved)
        return cls(name, then, {then: name}, str(user_path(file)), moved)

    @property
    def is_there(self) -> bool:
        return not self.moved or Path(self.moved).exists()

    def has(self, subject: Subject) -> bool:
        """Whether a subject at the commit is of it: with parameters it is one program of a file, or a module's row."""
        if subject.source not in self.sources:
            return False
        if self.then == subject.source:
            return True
        given = parameters_of(self.then)
        if subject.name:  # also of a program among those that are attached together
            given = {ONE_PROGRAM: subject.name, **given}
            given.pop(TOGETHER, None)
        return parameters_of(subject.row) == given

    def of_today(self, subject: Subject) -> Subject:
        """A subject with the path of today's file."""
        row = subject.row
        if self.moved and (is_tool(row) or is_script(row)):
            row = with_named_file(row, self.file)
        elif self.moved:
            row = row.replace(self.moved, self.file, 1)
        return replace(subject, row=row, source=self.sources[subject.source])


def subject_of_today(subject: Subject, named: Sequence[SubjectAtCommit]) -> Subject:
    """A subject at the commit as it is called today, by the first of the names that it is of."""
    return next(each for each in named if each.has(subject)).of_today(subject)
