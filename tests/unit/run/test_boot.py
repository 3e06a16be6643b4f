# SPDX-License-Identifier: GPL-2.0-only
"""Is there one policy for what fails in a boot: which cells end, how, and when a fresh guest is needed?"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from full_disk import room
from loaded_tables import QEMU_CPUS, calls_experiment
from namespaces import OWN_MOUNTS, fork_with_mount
from record_builders import cell as a_record

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import (
    BuildError,
    EvidenceError,
    GuestError,
    GuestExit,
    GuestHang,
    HostError,
    LabError,
    UnsupportedError,
    UsageError,
)
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.experiment.table import Table
from orchestrator.experiment.table_kind import BenchmarkEntry
from orchestrator.guest.machine import Machine
from orchestrator.paths import data_dir
from orchestrator.profile.stored.profile_files import file_name
from orchestrator.results.contract import CellRecord, ProfileEvidence
from orchestrator.run.benchmark_kind import (
    BenchmarkKind,
    BootArtifacts,
    BootTask,
    Prepared,
    Ready,
    Session,
    failed,
    unsupported,
)
from orchestrator.run.boot import run_boot
from orchestrator.run.boot_events import CellBegan, CellRecorded, Event
from orchestrator.run.cell_records import changed

RELEASE = "6.1.0-50-686"
PROBES = ["none", "kprobe", "jprobe", "djprobe"]
(BOOT,) = plan(calls_experiment(probes=PROBES)).boots
NAMES = {cell.probe: cell.id for cell in BOOT.cells}

Measure = Callable[[Session, Sequence[Cell[Any]]], Generator[CellRecord, None, None]]


@dataclass(frozen=True)
class Scripted(BenchmarkKind):
    """A kind that measures what a test sets."""

    how: Measure
    proved_wrong: tuple[str, ...] = ()

    name = "scripted"
    table = Table

    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return {}

    def cells(self, name: str | None, table: Table) -> Sequence[Cell[Any]]:
        return ()

    def describe(self, cell: Cell[Any]) -> str:
        return cell.id

    def prepare(
        self, context: BuildContext, kernel: Kernel, cells: Sequence[Cell[Any]]
    ) -> Mapping[str, Prepared[None]]:
        return {}

    def measure(self, session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        return self.how(session, cells)

    def compare(self, cell: Cell[Any], record: CellRecord, other_cells: Sequence[CellRecord]) -> CellRecord:
        if cell.probe in self.proved_wrong:
            raise EvidenceError("it was not hit")
        return record


def without_machine(setups: Mapping[str, Prepared[Any]]) -> BootArtifacts:
    """What a scripted kind needs, which boots no machine."""
    return BootArtifacts(cast(Kernel, SimpleNamespace(release=RELEASE)), cast(Machine, None), setups)


def events_of(
    folder: Path,
    how: Measure,
    prepared: Mapping[str, Prepared[Any]] | None = None,
    proved_wrong: tuple[str, ...] = (),
) -> list[Event]:
    """What a boot of four cells emits."""
    events: list[Event] = []
    setups = {cell.id: Ready(None) for cell in BOOT.cells} | dict(prepared or {})
    artifacts = without_machine(setups)
    task = BootTask(Scripted(how, proved_wrong), BOOT, BOOT.cells, folder / "boot1")
    run_boot(Session(task, artifacts, BuildContext(Cache(folder / "cache")), events.append))
    return events


def outcomes(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    rows = {id_: row for row, id_ in NAMES.items()}
    return [
        (rows[event.record.id], event.record.status, event.record.reason or "")
        for event in events
        if isinstance(event, CellRecorded)
    ]


def record_of(cell: Cell[Any]) -> CellRecord:
    return a_record(cell.probe, id=cell.id)


def failing_at(row: str, error: LabError, guests: list[list[str]]) -> Measure:
    """Cell after cell, until this one raises; each call of it is a guest."""

    def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        guests.append([cell.probe for cell in cells])
        for cell in cells:
            session.begin(cell)
            if cell.probe == row:
                raise error
            yield record_of(cell)

    return measure


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (EvidenceError("not armed"), "failed"),
        (GuestError("an oops"), "failed"),
        (UnsupportedError("no such instruction"), "unsupported"),
    ],
)
def test_a_cell_that_fails_costs_its_guest_and_no_other_cell(tmp_path: Path, error: LabError, status: str) -> None:
    guests: list[list[str]] = []
    events = events_of(tmp_path, failing_at("kprobe", error, guests))
    assert outcomes(events) == [
        ("none", "ok", ""),
        ("kprobe", status, str(error)),
        ("jprobe", "ok", ""),
        ("djprobe", "ok", ""),
    ]
    assert guests == [PROBES, ["jprobe", "djprobe"]]


def test_a_cell_that_fails_leaves_no_profile(tmp_path: Path) -> None:
    def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        for cell in cells:
            session.begin(cell)
            file = session.profile_file(replace(cell, profile=("symbols",)))
            assert file is not None
            file.parent.mkdir(exist_ok=True)
            file.write_text("")
            if cell.probe == "kprobe":
                raise EvidenceError("its text has changed")
            record = record_of(cell)
            (sample, *_) = record.samples
            proof = ProfileEvidence(sha256="0" * 64, calls=1, instructions=int(sample), int3=0)
            yield record if cell.probe == "jprobe" else changed(record, profile=proof)

    events = events_of(tmp_path, measure)
    left = {file.name for file in (tmp_path / "boot1" / "profiles").iterdir()}
    assert [status for _, status, _ in outcomes(events)] == ["ok", "failed", "ok", "ok"]
    assert left == {file_name(NAMES[row]) for row in ("none", "djprobe")}


def test_a_record_that_failed_costs_its_guest_too(tmp_path: Path) -> None:
    guests = []

    def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        guests.append([cell.probe for cell in cells])
        for cell in cells:
            session.begin(cell)
            if cell.probe == "jprobe":
                yield record_of(cell).model_copy(update={"status": "failed", "reason": "an oops"})
            yield record_of(cell)

    assert [status for _, status, _ in outcomes(events_of(tmp_path, measure))] == ["ok", "ok", "failed", "ok"]
    assert guests == [PROBES, ["djprobe"]]


def test_without_a_guest_every_cell_has_failed(tmp_path: Path) -> None:
    def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        raise GuestError("the guest does not boot")
        yield

    events = events_of(tmp_path, measure)
    assert outcomes(events) == [(probe, "failed", "the guest does not boot") for probe in PROBES]
    assert not [event for event in events if isinstance(event, CellBegan)]
    # The table's heading names the kernel that did not boot.
    records = [event.record for event in events if isinstance(event, CellRecorded)]
    assert [record.parameters.get("kernel_release") for record in records] == [RELEASE] * len(PROBES)


def test_what_a_killed_process_left_of_a_guest_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "boot1"
    folder.mkdir()
    for name in ("guest1.console", "guest1.hprnbgv6.overlay", "guest1.x4k2.initramfs"):
        (folder / name).write_text("")
    events_of(tmp_path, failing_at("kprobe", EvidenceError("not armed"), []))
    assert [file.name for file in folder.iterdir()] == ["guest1.console"]


def test_a_qemu_that_is_killed_before_a_cell_begins_costs_one(tmp_path: Path) -> None:
    guests = []

    def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        guests.append([cell.probe for cell in cells])
        if len(guests) == 1:
            killed = GuestExit("QEMU ended (signal 9) while booting")
            killed.status = -signal.SIGKILL
            raise killed
        for cell in cells:
            session.begin(cell)
            yield record_of(cell)

    assert [status for _, status, _ in outcomes(events_of(tmp_path, measure))] == ["failed", "ok", "ok", "ok"]
    assert guests == [PROBES, PROBES[1:]]


def test_a_failure_of_the_shared_work_fails_all_cells(tmp_path: Path) -> None:
    def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        for cell in cells:
            session.begin(cell)
        raise EvidenceError("the work did not end well")
        yield

    assert {status for _, status, _ in outcomes(events_of(tmp_path, measure))} == {"failed"}


@pytest.mark.parametrize("error", [HostError("no QEMU"), UsageError("another kernel")])
def test_host_and_usage_errors_end_the_run(tmp_path: Path, error: LabError) -> None:
    with pytest.raises(type(error)):
        events_of(tmp_path, failing_at("kprobe", error, []))


def test_cells_without_preparation_need_no_guest(tmp_path: Path) -> None:
    guests: list[list[str]] = []
    prepared = {NAMES["kprobe"]: unsupported("no CONFIG_KPROBES"), NAMES["jprobe"]: failed(BuildError("line 3"))}
    found = outcomes(events_of(tmp_path, failing_at("", GuestError(""), guests), prepared))
    assert found[:2] == [("kprobe", "unsupported", "no CONFIG_KPROBES"), ("jprobe", "failed", "line 3")]
    assert guests == [["none", "djprobe"]]
    every = {id_: unsupported("nothing") for id_ in NAMES.values()}
    guests.clear()
    events_of(tmp_path, failing_at("", GuestError(""), guests), every)
    assert guests == []


def test_a_task_survives_pickling(tmp_path: Path) -> None:
    task = BootTask(kinds().named("calls"), BOOT, BOOT.cells, tmp_path)
    again = pickle.loads(pickle.dumps(task))
    assert again.cells == task.cells
    assert (again.kind.name, again.boot) == (task.kind.name, task.boot)


def test_a_comparison_that_proves_a_record_wrong_costs_the_guest_too(tmp_path: Path) -> None:
    guests: list[list[str]] = []
    how = failing_at("", GuestError(""), guests)
    found = outcomes(events_of(tmp_path, how, proved_wrong=("kprobe", "djprobe")))
    assert [status for _, status, _ in found] == ["ok", "failed", "ok", "failed"]
    assert found[1][2] == "it was not hit"
    assert guests == [PROBES, ["jprobe", "djprobe"]]


def test_records_of_one_boot_are_compared_in_it(tmp_path: Path) -> None:
    events = events_of(tmp_path, failing_at("", GuestError(""), []))
    assert {event.is_compared for event in events if isinstance(event, CellRecorded)} == {True}


def test_a_guest_that_cannot_be_had_has_failed_whatever_the_error(tmp_path: Path) -> None:
    def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        raise UnsupportedError("no such CPU")
        yield

    assert {status for _, status, _ in outcomes(events_of(tmp_path, measure))} == {"failed"}


def test_events_are_kept_in_the_boot_s_own_folder(tmp_path: Path) -> None:
    files: list[Path | None] = []

    def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        for cell in cells:
            session.begin(cell)
            files.append(session.events_file(cell))
            yield record_of(cell)

    events_of(tmp_path, measure)
    assert files == [None] * 4


# Can every boot of the experiments that come with the package be handed to another process?

EXPERIMENTS = sorted(data_dir("configs").glob("*.yaml"))


@pytest.mark.parametrize("config", EXPERIMENTS, ids=lambda config: config.stem)
def test_boots_survive_pickling(config: Path, tmp_path: Path) -> None:
    boots = plan(load_experiment(config, kinds(), (), lambda: QEMU_CPUS)).boots
    assert boots
    for number, boot in enumerate(boots, start=1):
        task = BootTask(kinds().named(boot.kind), boot, boot.cells, tmp_path / f"boot{number}")
        copied = pickle.loads(pickle.dumps(task))
        assert copied.boot == boot
        assert hash(copied.boot) == hash(boot)
        assert (copied.cells, copied.directory) == (task.cells, task.directory)
        assert type(copied.kind) is type(task.kind)


def test_all_kinds_are_among_them() -> None:
    boots = [
        boot for config in EXPERIMENTS for boot in plan(load_experiment(config, kinds(), (), lambda: QEMU_CPUS)).boots
    ]
    assert {boot.kind for boot in boots} == {kind.name for kind in kinds()}


# Does a full disk end a run, and no cell: neither with a number whose console was cut, nor with a failure?

MEASURED = 2
"""Cells before the disk is full."""


def fill_up_within_a_boot(disk: str, error: str) -> None:
    """Measure two cells; then the disk is full, and the third is measured, or its guest hangs."""
    events: list[Event] = []
    with ExitStack() as full:

        def measure(session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
            for number, cell in enumerate(cells):
                session.begin(cell)
                if number == MEASURED:
                    full.enter_context(room(Path(disk), 4))
                    if error:
                        raise GuestHang(error)
                yield record_of(cell)

        setups = {cell.id: Ready(None) for cell in BOOT.cells}
        artifacts = without_machine(setups)
        task = BootTask(Scripted(measure), BOOT, BOOT.cells, Path(disk) / "boot1")
        session = Session(task, artifacts, BuildContext(Cache(Path(disk) / "cache")), events.append)
        with pytest.raises(HostError, match=r"no space left for results: 0\.0 MB are free") as caught:
            run_boot(session)
    assert caught.value.where == str(task.directory)
    assert "--resume" in caught.value.hint
    statuses = [event.record.status for event in events if isinstance(event, CellRecorded)]
    assert statuses == ["ok"] * MEASURED


@OWN_MOUNTS
@pytest.mark.parametrize("error", ["", "no answer within 60 s"])
def test_the_cell_under_way_has_no_outcome(tmp_path: Path, error: str) -> None:
    mount = ("tmpfs", "size=1m", "tmpfs", tmp_path)
    assert fork_with_mount(mount, fill_up_within_a_boot, tmp_path, error) == ""
