# SPDX-License-Identifier: GPL-2.0-only
"""What a run has left on a disk, perhaps of another host: results, provenance, profiles, logs, the store."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from rich.console import Console

from fuzz.scratch import file, folder
from orchestrator.artifacts.pinned_packages import chosen
from orchestrator.benchmarks.registry import reports
from orchestrator.errors import LabError, UsageError
from orchestrator.nightly.night import NightlyMarker
from orchestrator.profile.code.annotated_code import annotated
from orchestrator.profile.code.instruction_classes import per_call
from orchestrator.profile.stored.call_tree import call_tree
from orchestrator.profile.stored.profile_files import FOLDER, file_name, load_profile
from orchestrator.profile.stored.profiles_json import PrintedProfile
from orchestrator.report.claims import all_claims
from orchestrator.report.csv_export import render_csv
from orchestrator.report.junit_export import render_junit
from orchestrator.report.markdown import render_markdown
from orchestrator.report.text import print_table
from orchestrator.results.contract import CellRecord
from orchestrator.results.cost_history import metrics, recent_histories
from orchestrator.results.recorded_provenance import (
    RecordedProvenance,
    host_differences,
    kernel_versions,
    provenance_differences,
    provenance_of,
)
from orchestrator.results.run_files import last_lines, logged_durations, module_folders, readable_provenance
from orchestrator.results.runs import RESULTS_FILE, RUN_FILE, find_run
from orchestrator.results.store import FILE_NAME, Store
from orchestrator.run.provenance import Provenance
from orchestrator.steps import LOG_NAME

_CELL = "pentium4/debian-686/kprobe/noop"
_RUN = '{"run": "20261121-014502-quickstart-1f3a", "experiment": "quickstart"}'
_FACTS: dict[str, object] = {"orchestrator": "1.0.0", "qemu": "7.2.22", "compiler": "gcc"}
_GZIP = b"\x1f\x8b"


def _record(digest: str) -> CellRecord:
    names = {"cpu": "pentium4", "kernel": "debian-686", "probe": "kprobe", "handler": "noop", "benchmark": "gtodbench"}
    outcome = {"metric": "cost per call", "clock": "instructions", "unit": "instructions", "status": "failed"}
    profile = {"sha256": digest, "calls": 1, "instructions": 1, "int3": 0}
    return CellRecord.model_validate({"id": _CELL, "smp": 1, **names, **outcome, "reason": "no", "profile": profile})


@cache
def _run_folder() -> Path:
    directory = folder() / "run"
    directory.mkdir()
    (directory / RUN_FILE).write_text(_RUN)
    return directory


def read_results(data: bytes) -> None:
    """results.json, and what is reported of it."""
    directory = _run_folder()
    (directory / RESULTS_FILE).write_bytes(data)
    record = find_run(str(directory), folder() / "no lab").record
    print_table(record, Console(file=io.StringIO(), width=100), reports(), all_claims)
    render_markdown(record, reports(), all_claims)
    render_csv(record)
    render_junit(record, RecordedProvenance(), {})


def read_identity(data: bytes) -> None:
    """run.json."""
    directory = folder() / "unknown run"
    directory.mkdir(exist_ok=True)
    (directory / RUN_FILE).write_bytes(data)
    find_run(str(directory), folder() / "no lab")


def read_provenance(data: bytes) -> None:
    """provenance.json: compared with another run's, shown beside the consoles, and gone on with."""
    directory = folder() / "made"
    directory.mkdir(exist_ok=True)
    (directory / "provenance.json").write_bytes(data)
    for boot in readable_provenance(directory).boots:
        list(module_folders(directory, boot, _record("0" * 64)))
    with suppress(LabError):
        provenance = provenance_of(directory)
        kernel_versions(provenance)
        for other_provenance in (RecordedProvenance(), provenance):
            provenance_differences(provenance, other_provenance)
            host_differences(other_provenance, provenance)
    Provenance(directory).session(dict(_FACTS))


def read_profile(data: bytes) -> None:
    """A cell's profile, compressed or, for inputs that say more, to be compressed; and what is shown of it."""
    content = data if data.startswith(_GZIP) else gzip.compress(data, 1, mtime=0)
    directory = folder() / "profiled"
    (directory / FOLDER).mkdir(parents=True, exist_ok=True)
    (directory / FOLDER / file_name(_CELL)).write_bytes(content)
    profile = load_profile(directory, _record(hashlib.sha256(content).hexdigest()))
    classes = per_call(profile)
    PrintedProfile.of(profile, classes).json_text()
    shown: Sequence[Callable[[], object]] = (
        lambda: call_tree(profile),
        *((lambda name=symbol.name: annotated([profile], name)) for symbol in profile.symbols[:10]),
    )
    for show in shown:
        with suppress(UsageError):
            show()


def read_steps_log(data: bytes) -> None:
    """The log of a run's steps."""
    directory = _run_folder()
    (directory / LOG_NAME).write_bytes(data)
    last_lines(directory, [_CELL])
    logged_durations(data.decode("utf-8", errors="replace").splitlines())


@cache
def _store() -> tuple[Store, sqlite3.Connection, str]:
    """A store with a run of one cell, open until the process ends, and another connection to it."""
    open_things = ExitStack()
    store = open_things.enter_context(Store.open(folder() / "lab"))
    entry = store.begin_run("quickstart", [_CELL], digest="", provenance={})
    other_connection = sqlite3.connect(store.path, isolation_level=None)
    open_things.callback(other_connection.close)
    _kept.append(open_things)
    return store, other_connection, entry.id


_kept: list[ExitStack] = []


def read_stored_record(data: bytes) -> None:
    """A cell's record and a run's provenance in the store's file, which another program has changed."""
    store, other_connection, run = _store()
    text = data.decode("utf-8", errors="replace")
    other_connection.execute("UPDATE cells SET status = 'ok', record = ? WHERE run = ?", (text, run))
    other_connection.execute("UPDATE runs SET provenance = ? WHERE id = ?", (text, run))
    for read in (lambda: store.load_run(run), lambda: recent_histories(store, 1), lambda: store.provenance(run)):
        with suppress(LabError):
            read()


def read_night_note(data: bytes) -> None:
    """The note of a night that has begun."""
    store, _, _ = _store()
    NightlyMarker(file("night", data)).runs(store, "quickstart", [_CELL])


def read_store_file(data: bytes) -> None:
    """The store's file itself."""
    lab = folder() / "damaged lab"
    shutil.rmtree(lab, ignore_errors=True)
    lab.mkdir()
    (lab / FILE_NAME).write_bytes(data)
    with Store.open(lab) as store:
        metrics(store)
        for entry in store.runs():
            with suppress(LabError):
                store.load_run(entry.id)
        recent_histories(store, 10)


def read_pins(data: bytes) -> None:
    """The record of chosen packages."""
    chosen(file("pins.json", data))
