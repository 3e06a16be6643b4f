# SPDX-License-Identifier: GPL-2.0-only
"""What was measured at the commits of a tree, kept in the lab's clone, so that nothing is built or measured twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.own_kernel_build import TreeBuild
from orchestrator.artifacts.saved_guests import qemu_digests
from orchestrator.artifacts.sources import included, read_c_source
from orchestrator.errors import ConfigError, LabError
from orchestrator.files import write_whole
from orchestrator.paths import data_dir, lab_dir
from orchestrator.results.contract import RunRecord
from orchestrator.results.runs import Run, find_run
from orchestrator.run.provenance import host_facts
from orchestrator.run.runner import PreparedPlan

_FILE = Path(".git") / "lab-measured.json"
_BROKEN = "broken: "
"""Begins what is noted of a commit that does not build."""
_CONTENT = "content"
_NOTED = TypeAdapter(dict[str, dict[str, str]])


@dataclass(frozen=True)
class MeasuredCommits:
    """The runs of a tree's commits, and why others do not build: in a file of its ``clone``.

    A run is found by its content (``PreparedPlan.content``), once a commit is built; or by the request and the commit,
    before it is built. A run that was removed since is not found.
    """

    clone: Path

    def of_content(self, content: str) -> Run | None:
        """The run of this content."""
        return self._run(self._noted().get(_CONTENT, {}).get(content))

    def note_content(self, content: str, run: Run) -> None:
        self._note({_CONTENT: {content: run.record.run}})

    def outcome(self, request: str, commit: str) -> Run | str | None:
        """The run of a commit, or why it does not build; None if unknown."""
        noted = self._noted().get(request, {}).get(commit)
        if noted is not None and noted.startswith(_BROKEN):
            return noted.removeprefix(_BROKEN)
        return self._run(noted)

    def remember(self, request: str, commit: str, outcome: Run | str) -> None:
        self._note({request: {commit: outcome.record.run if isinstance(outcome, Run) else f"{_BROKEN}{outcome}"}})

    def _run(self, name: str | None) -> Run | None:
        try:
            return None if name is None else find_run(name, lab_dir())
        except LabError:  # it was removed
            return None

    def _note(self, new: Mapping[str, Mapping[str, str]]) -> None:
        noted = self._noted()
        for key, values in new.items():
            noted[key] = {**noted.get(key, {}), **values}
        write_whole(self.clone / _FILE, json.dumps(noted))

    def _noted(self) -> dict[str, dict[str, str]]:
        try:
            return _NOTED.validate_json((self.clone / _FILE).read_bytes())
        except (OSError, ValidationError):
            return {}


def is_lasting(record: RunRecord, prepared: PreparedPlan) -> bool:
    """Whether a run is that of its commit for good: a cell may fail for its code, not for what happened in a guest."""
    failed = {cell.id for cell in record.cells if cell.status == "failed"}
    return failed <= prepared.broken and any(cell.status in ("ok", "failed") for cell in record.cells)


def request_of(
    context: BuildContext, experiment: str, only: Sequence[str], build: TreeBuild, outside: Iterable[str]
) -> str:
    """A key of all that decides the outcome of a commit of a kernel's tree besides the commit itself.

    The experiment, by its digest, and the files that it names ``outside`` the tree; the kernel's configuration, and how
    it is built; the lab's files, compilers and QEMU.
    """
    lab_files = [line for name in ("images", "kmods") for line in stamps(data_dir(name))]
    return digest(
        {
            "experiment": experiment,
            "only": list(only),
            "outside": [line for file in sorted(outside) for line in stamps(Path(file))],
            "make": list(build.variables),
            "config": build.config.read_bytes().hex() if build.config.is_file() else "",
            "tools": [line for name in build.tools for line in _program_stamps(name)],
            "lab": [{**host_facts(context), "host": ""}, lab_files],
            "qemu": qemu_digests(),
        }
    )


def series_of(config: Path, overrides: Sequence[str], only: Sequence[str], build: TreeBuild) -> str:
    """A key of a series as a user asks for it: its last measurement is found by the same words and file."""
    place = [str(config.resolve()), config.read_text(), str(Path.cwd()) if overrides else ""]
    return digest({"series": [*place, *overrides], "only": list(only), "make": [str(build.config), *build.variables]})


def _program_stamps(name: str) -> Iterator[str]:
    program = shutil.which(name)
    if program is not None:
        yield from _lines([Path(program).resolve()])


def stamps(path: Path) -> Iterator[str]:
    """Sizes and times of a user's file, module's folder or build tree, and of the files that a module may include."""
    is_tree = path.is_dir() and (path / ".config").is_file()
    beside = path.iterdir() if is_tree else path.rglob("*") if path.is_dir() else path.parent.glob("*.[chS]*")
    elsewhere: list[Path] = []
    if path.suffix in (".c", ".j2"):
        try:
            elsewhere = included(read_c_source(path), [path.parent])
        except ConfigError:  # the build reports it; with unknown includes no earlier run may be reused
            yield uuid4().hex
    yield from _lines(sorted({path, *beside, *elsewhere}))


def _lines(files: Iterable[Path]) -> Iterator[str]:
    for file in files:
        if file.is_file():
            status = file.stat()
            yield f"{file} {status.st_size} {status.st_mtime_ns}"
