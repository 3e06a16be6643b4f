# SPDX-License-Identifier: GPL-2.0-only
"""Find a run by a directory, an id, the beginning of an id, ``latest``, or a baseline's name.

A run's directory has its identity (``run.json``) and its results (``results.json``, the contract), so that another
machine can report it without the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.catalog.data import nearest
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import is_file, read_bounded, write_whole
from orchestrator.paths import lab_dir
from orchestrator.plain_text import counted, shown
from orchestrator.program import PROGRAM
from orchestrator.results.contract import Name, Record, RunRecord, json_text
from orchestrator.results.faults import storage_faults
from orchestrator.results.frames import cell_rows, frame
from orchestrator.results.store import FILE_NAME, LATEST, RunEntry, Store, no_run_yet

if TYPE_CHECKING:
    from pandas import DataFrame

RUN_FILE = "run.json"
RESULTS_FILE = "results.json"
EXPERIMENT_FILE = "experiment.yaml"
_ID_IS = "a run's id or its beginning, 'latest', or a baseline's name"
_RUN_IS = f"RUN is a run's directory, {_ID_IS}"

_COPY_AGAIN = "copy the directory again from the original, or name another run"

_LARGEST_FILE = 256 << 20  # 10 000 cells of 100 samples take some 20 MB
_SHOWN = 5


class UnknownRun(UsageError):
    """The lab has runs, but none of this name; ``guess`` is the most similar name, if any."""

    guess: str | None = None


class RunIdentity(Record):
    """The content of ``run.json``."""

    run: Name
    experiment: Name


_Model = TypeVar("_Model", RunIdentity, RunRecord)


@dataclass(frozen=True)
class Run:
    """A stored run: its results so far, its directory, and the number of ``unfinished`` cells without an outcome.

    A directory from another machine does not show unfinished cells. ``is_running`` while a process works on it.
    """

    record: RunRecord
    directory: Path
    unfinished: int = 0
    is_running: bool = False

    def to_frame(self) -> DataFrame:
        """A row of pandas for each cell, with its figures and parameters. Raises HostError without pandas."""
        return frame(cell_rows(self.record))

    @property
    def unfinished_sentence(self) -> str:
        """The number of cells without an outcome, and why; empty if all have one."""
        if not self.unfinished:
            return ""
        has = "has" if self.unfinished == 1 else "have"
        why = "it is still running" if self.is_running else "it was interrupted"
        return f"{counted(self.unfinished, 'cell')} of run {self.record.run} {has} no outcome yet: {why}"


def find_run(name: str, lab: Path) -> Run:
    """The run of this ``name`` (RUN on the command line), from its directory or the store in ``lab``.

    Raises ``UsageError`` for an unknown or ambiguous name, ``LabError`` for damaged results.
    """
    directory = Path(name)
    try:
        is_run = is_file(directory / RUN_FILE)
    except OSError as error:  # such as a name that is too long
        raise UsageError(f"not readable: {(error.strerror or str(error)).lower()}", where=name) from error
    if is_run:
        return _run_of_directory(directory, lab)
    if os.sep in name or name in (".", ".."):
        missing = "a file; expected a run's directory" if directory.is_file() else "this directory does not exist"
        raise UsageError(
            f"not a run's directory: it has no {RUN_FILE}" if directory.is_dir() else missing,
            where=name,
            hint=f"{_RUN_IS}; see: {PROGRAM} list runs",
        )
    try:
        return stored_run(name, lab)
    except UnknownRun as error:
        error.hint = f"{_RUN_IS}."
        raise


def stored_run(name: str, lab: Path) -> Run:
    """The run of this id, beginning of an id, ``latest`` or baseline; no directory. Raises as ``find_run`` does."""
    if not (lab / FILE_NAME).exists():
        raise _no_runs_yet(lab)
    with Store.open(lab) as store:
        baselines = store.baselines()
        known = baselines.get(name)
        entry = _choose(name, store.runs(), baselines, lab) if known is None else store.entry(known.run)
        return _stored_run(store, entry, entry.directory)


@contextmanager
def opened_store() -> Iterator[Store | None]:
    """The lab's store, or None before the first run: what only reads does not create it."""
    if not (lab_dir() / FILE_NAME).exists():
        yield None
        return
    with Store.open(lab_dir()) as store:
        yield store


def check_directory(directory: Path) -> None:
    """Raise UsageError for a directory that a new run cannot use."""
    _check_owner(directory, None)
    if directory.exists() and not directory.is_dir():
        raise UsageError("a file; expected a directory", where=str(directory), hint="name another directory")


def prepare_directory(directory: Path, identity: RunIdentity) -> None:
    """Make a run's directory and write ``run.json``. Raises ``UsageError`` for another run's directory."""
    _check_owner(directory, identity.run)
    with storage_faults(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(directory / RUN_FILE, identity.model_dump_json(indent=2) + "\n")


def _check_owner(directory: Path, run: str | None) -> None:
    """Raise UsageError for a directory of another run."""
    if (directory / RUN_FILE).exists():
        owner = _load(directory / RUN_FILE, RunIdentity).run
        if owner != run:
            hint = "name another directory with --out, or resume that run: --resume"
            raise UsageError(f"this directory belongs to run {owner}", where=str(directory), hint=hint)


def write_results(directory: Path, record: RunRecord) -> None:
    """Write ``results.json``, the contract, atomically."""
    file = directory / RESULTS_FILE
    with storage_faults(file):
        write_whole(file, json_text(record))


def _run_of_directory(directory: Path, lab: Path) -> Run:
    identity = _load(directory / RUN_FILE, RunIdentity)
    # Prefer the store, which also has the last cells of a killed run.
    if (lab / FILE_NAME).exists():
        with Store.open(lab) as store:
            for entry in store.runs():
                if entry.id == identity.run:
                    return _stored_run(store, entry, directory)
    results = directory / RESULTS_FILE
    if not results.exists():
        raise UsageError(
            f"run {identity.run} has no {RESULTS_FILE} and is not in this lab's store",
            where=str(directory),
            hint=f"It was probably interrupted. Resume it on the machine where it began: --resume --out {directory}",
        )
    record = _load(results, RunRecord)
    if record.run != identity.run:
        what = f"the files are of two runs: {RUN_FILE} of {identity.run}, {RESULTS_FILE} of {record.run}"
        raise LabError(what, where=str(directory), hint=_COPY_AGAIN)
    return Run(record, directory)


def _stored_run(store: Store, entry: RunEntry, directory: Path) -> Run:
    unfinished = len(store.unfinished_cells(entry.id))
    return Run(store.load_run(entry.id), directory, unfinished, entry.status == "running")


def _choose(name: str, entries: Sequence[RunEntry], baselines: Iterable[str], lab: Path) -> RunEntry:
    if not entries:
        raise _no_runs_yet(lab)
    if name == LATEST:
        return entries[0]
    meant = [entry for entry in entries if entry.id == name] or [e for e in entries if e.id.startswith(name)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UsageError(
            f"'{name}' begins the ids of {len(meant)} runs", detail=_listed(meant), hint="give more of the id"
        )
    guess = nearest(name, [LATEST, *baselines]) or nearest(name, [entry.id for entry in entries])
    question = f"; did you mean '{guess}'?" if guess else ""
    error = UnknownRun(
        f"unknown run '{name}'{question}",
        detail=["recent runs:", *_listed(entries)],
        hint=f"RUN is {_ID_IS}.",
    )
    error.guess = guess
    raise error


def _listed(entries: Sequence[RunEntry]) -> list[str]:
    return shown([entry.id for entry in entries], _SHOWN, "...")


def _no_runs_yet(lab: Path) -> UsageError:
    if lab.is_file():
        return UsageError(
            "a file; expected the results folder", where=str(lab), hint="set ORCHESTRATOR_LAB to a folder"
        )
    return no_run_yet(lab)


def _load(path: Path, model: type[_Model]) -> _Model:
    """Read and validate a file of a run, which may come from another machine."""
    try:
        content = read_bounded(path, _LARGEST_FILE)
    except OSError as error:
        raise HostError(f"cannot be read: {(error.strerror or str(error)).lower()}", where=str(path)) from None
    if content is None:
        raise LabError(f"larger than {_LARGEST_FILE >> 20} MiB", where=str(path))
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        faults = [f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {_fault(problem)}" for problem in problems]
        what, detail = "damaged, or written by another version of this program", shown(faults, _SHOWN, "and {} more")
        raise LabError(what, where=str(path), detail=detail, hint=_COPY_AGAIN) from error


def _fault(details: ErrorDetails) -> str:
    """A plain sentence for an error of pydantic."""
    match details["type"]:
        case "json_invalid":
            return "not JSON, or cut off" + details["msg"][details["msg"].rfind(" at line") :].replace(" at", " in")
        case "missing":
            return "missing"
        case "extra_forbidden":
            return "unknown key"
        case "value_error":  # a sentence of the contract
            return str(details["ctx"]["error"])
    return f"invalid value: {details['input']!r:.80}"
