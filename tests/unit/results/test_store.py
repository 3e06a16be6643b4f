# SPDX-License-Identifier: GPL-2.0-only
"""What the store keeps, and that nothing short of losing the disk makes it lose any of it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from drawn_records import cells
from file_permissions import modes_count
from hypothesis import HealthCheck, given, settings
from record_builders import cell, failed
from store_writer import MANY

from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.results.contract import CellRecord
from orchestrator.results.store import FILE_NAME, RunEntry, Store

WRITER = Path(__file__).with_name("store_writer.py")


CELLS = ["pentium4/debian-686/none/noop", "pentium4/debian-686/kprobe/noop", "pentium4/debian-686/djprobe/noop"]


def begin(store: Store, experiment: str = "quickstart", planned: list[str] | None = None) -> RunEntry:
    return store.begin_run(experiment, planned or CELLS, digest="sha256:1", provenance={"qemu": ["-M", "pc"]})


def writer(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(WRITER), str(folder), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "lab") as opened:
        yield opened


def test_a_run_is_kept_with_its_planned_cells(store: Store, tmp_path: Path) -> None:
    entry = begin(store)
    assert re.fullmatch(r"\d{8}-\d{6}-quickstart-[0-9a-f]{4}", entry.id)
    assert entry.directory == tmp_path / "lab" / "runs" / entry.id
    assert (entry.status, entry.finished, entry.digest) == ("running", None, "sha256:1")
    assert store.unfinished_cells(entry.id) == CELLS
    assert store.load_run(entry.id).cells == ()
    assert store.provenance(entry.id) == {"qemu": ["-M", "pc"]}


def test_outcomes_come_back_in_the_plans_order(store: Store) -> None:
    entry = begin(store)
    records = [failed("kprobe", "optimised"), cell("djprobe"), cell("none")]
    for record in records[:2]:
        store.record(entry.id, record)
    assert store.unfinished_cells(entry.id) == CELLS[:1]
    store.record(entry.id, records[2])
    store.finish_run(entry.id, "complete")
    assert store.load_run(entry.id).cells == (records[2], records[0], records[1])
    finished = store.entry(entry.id)
    assert finished.status == "complete"
    assert finished.finished is not None
    assert finished.finished > finished.started


def test_an_outcome_is_never_replaced(store: Store) -> None:
    entry = begin(store)
    store.record(entry.id, cell("djprobe"))
    with pytest.raises(LabError, match="already has an outcome"):
        store.record(entry.id, failed("djprobe", "second thoughts"))
    with pytest.raises(LabError, match="not planned"):
        store.record(entry.id, cell("jprobe"))
    assert store.load_run(entry.id).cells == (cell("djprobe"),)


def test_an_interrupted_run_goes_on(store: Store) -> None:
    entry = begin(store)
    store.finish_run(entry.id, "interrupted")
    assert store.entry(entry.id).status == "interrupted"
    store.resume_run(entry.id)
    resumed = store.entry(entry.id)
    assert (resumed.status, resumed.finished) == ("running", None)


def test_ids_are_unique_within_a_second_and_listed_newest_first(store: Store) -> None:
    entries = [begin(store, planned=["only"]) for _ in range(300)]
    assert len({entry.id for entry in entries}) == 300
    assert store.runs() == entries[::-1]


def test_latest(store: Store) -> None:
    assert store.latest() is None
    done, other_entry = begin(store, planned=[CELLS[2]]), begin(store, "nightly")
    store.record(done.id, cell("djprobe"))
    # Its process may have been killed before it wrote the results.
    assert store.latest("quickstart", unfinished=True) == done
    store.finish_run(done.id, "complete")
    assert store.latest() == other_entry
    assert store.latest("quickstart") == store.entry(done.id)
    assert store.latest("quickstart", unfinished=True) is None
    assert store.latest(unfinished=True) == other_entry
    assert store.latest("unknown") is None


@pytest.mark.parametrize("method", ["load_run", "unfinished_cells", "entry", "provenance", "resume_run"])
def test_an_unknown_run_is_named(store: Store, method: str) -> None:
    with pytest.raises(UsageError, match="unknown run '2026'"):
        getattr(store, method)("2026")


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    lab = tmp_path / "new" / "lab"
    with Store.open(lab) as store:
        begin(store)
        files = {path.name: path.stat().st_mode & 0o777 for path in lab.iterdir()}
    assert {files[FILE_NAME], files[FILE_NAME + "-wal"], files[FILE_NAME + "-shm"]} == {0o600}
    assert lab.stat().st_mode & 0o777 == 0o700


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(record=cells())
def test_any_cell_comes_back_as_it_was(store: Store, record: CellRecord) -> None:
    entry = begin(store, planned=[record.id])
    store.record(entry.id, record)
    assert store.load_run(entry.id).cells == (record,)


@pytest.mark.parametrize("statement", ["UPDATE cells", "INSERT INTO samples", "COMMIT"])
def test_a_writer_killed_within_a_transaction_leaves_what_was_committed(tmp_path: Path, statement: str) -> None:
    process = writer(tmp_path, "die-before", statement)
    run = process.communicate(timeout=600)[0].strip()
    assert process.returncode == -signal.SIGKILL
    with Store.open(tmp_path) as store:
        assert [record.id for record in store.load_run(run).cells] == ["cell/0"]
        assert store.unfinished_cells(run) == ["cell/1"]
        store.record(run, cell("djprobe", id="cell/1"))
        assert store.unfinished_cells(run) == []


def test_a_writer_killed_at_any_time_leaves_whole_cells(tmp_path: Path) -> None:
    for delay in (0.0, 0.03):
        process = writer(tmp_path, "runs", "100000")
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
        process.communicate(timeout=600)
    with Store.open(tmp_path) as store:
        entries = store.runs()
        for entry in entries:
            record = store.load_run(entry.id)
            assert [len(recorded.samples) for recorded in record.cells] == [4] * len(record.cells)
            assert len(record.cells) + len(store.unfinished_cells(entry.id)) == 1
    assert len(entries) >= 2


def test_two_processes_write_at_once_from_the_first_moment(tmp_path: Path) -> None:
    processes = [writer(tmp_path / "lab", "runs", "40") for _ in range(2)]
    printed = [run for process in processes for run in process.communicate(timeout=600)[0].split()]
    assert [process.returncode for process in processes] == [0, 0]
    with Store.open(tmp_path / "lab") as store:
        assert sorted(entry.id for entry in store.runs()) == sorted(printed)
        assert {entry.status for entry in store.runs()} == {"complete"}
    assert len(printed) == 80


def test_a_slow_reader_keeps_no_writer_waiting_and_sees_one_moment(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        begin(store)
    reader = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    with contextlib.closing(reader):
        reader.execute("BEGIN")
        rows = reader.execute("SELECT id FROM runs")
        processes = [writer(tmp_path, "runs", "40") for _ in range(2)]
        printed = [run for process in processes for run in process.communicate(timeout=120)[0].split()]
        assert [process.returncode for process in processes] == [0, 0]
        assert len(rows.fetchall()) == 1
        reader.execute("COMMIT")
        assert len(reader.execute("SELECT id FROM runs").fetchall()) == 1 + len(printed) == 81


def test_a_second_connection_of_a_process_leaves_the_first_its_locks(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        begin(store)
        with Store.open(tmp_path):
            pass
        # It would take itself for the last one, and remove the log that this process writes to.
        writer(tmp_path, "runs", "1").communicate(timeout=60)
        late = begin(store)
        assert late.id in writer(tmp_path, "list").communicate(timeout=60)[0].split()


def test_a_new_store_is_opened_by_many_at_once(tmp_path: Path) -> None:
    def open_and_write(folder: Path) -> str:
        with Store.open(folder) as store:
            return begin(store).id

    with ThreadPoolExecutor(8) as pool:
        for attempt in range(10):
            folder = tmp_path / str(attempt)
            runs = list(pool.map(open_and_write, [folder] * 8))
            with Store.open(folder) as store:
                assert sorted(entry.id for entry in store.runs()) == sorted(runs)


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        run = begin(store).id
    raw = sqlite3.connect(tmp_path / FILE_NAME)
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(LabError, match=r"newer version.*schema 99, known up to 2"), Store.open(tmp_path):
        pass
    raw = sqlite3.connect(tmp_path / FILE_NAME)
    assert raw.execute("SELECT id FROM runs").fetchall() == [(run,)]
    assert raw.execute("PRAGMA user_version").fetchone() == (99,)
    raw.close()


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    garbage = b"my thesis, do not delete\n" * 1000
    (tmp_path / FILE_NAME).write_bytes(garbage)
    with pytest.raises(LabError, match="not a result store") as caught, Store.open(tmp_path):
        pass
    assert "Nothing in it was changed" in caught.value.hint
    assert (tmp_path / FILE_NAME).read_bytes() == garbage


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / FILE_NAME)
    raw.execute("CREATE TABLE bookmarks (address TEXT)")
    raw.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(LabError, match="another program"), Store.open(tmp_path):
        pass
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_damaged_store_is_reported(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        begin(store, planned=[f"cell/{index}" for index in range(MANY)])
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))
    with pytest.raises(LabError, match="damaged"), Store.open(tmp_path) as store:
        store.runs()


def test_a_record_changed_from_outside_is_reported(store: Store) -> None:
    entry = begin(store)
    store.record(entry.id, cell("djprobe"))
    raw = sqlite3.connect(store.path)
    with raw:
        raw.execute("UPDATE samples SET value = 1.0 WHERE position = 0")
    raw.close()
    with pytest.raises(LabError, match="contradict each other") as caught:
        store.load_run(entry.id)
    assert any("not the mean" in line for line in caught.value.detail)


def check_nothing_is_lost_when_full(folder: Path, room: int) -> None:
    printed = writer(folder, "fill", str(room)).communicate(timeout=600)[0].split("\n", 3)
    run, recorded, status, message = printed[0], int(printed[1]), int(printed[2]), printed[3]
    assert status == HostError.exit_status
    assert "hint: " in message
    assert "--resume" in message
    assert recorded > 0
    with Store.open(folder) as store:
        assert len(store.load_run(run).cells) == recorded
        assert len(store.unfinished_cells(run)) == MANY - recorded
        (entry,) = store.runs()
        assert (entry.id, entry.status, store.latest(unfinished=True)) == (run, "interrupted", entry)


def test_a_file_that_may_not_grow_loses_nothing(tmp_path: Path) -> None:
    check_nothing_is_lost_when_full(tmp_path, 1 << 20)


def fill_up(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(512)):
            pass


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "lab", str(tmp_path)]).returncode:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    try:
        check_nothing_is_lost_when_full(tmp_path, 0)
        fill_up(tmp_path / "filler")
        with pytest.raises(HostError, match="no space left for results"), Store.open(tmp_path / "new"):
            pass
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.fixture
def user_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose mode counts even for root."""
    folder = tmp_path / "own"
    folder.mkdir()
    with modes_count():
        yield folder
    folder.chmod(0o700)


def test_a_read_only_folder_is_reported(user_folder: Path) -> None:
    user_folder.chmod(0o500)
    for lab in (user_folder, user_folder / "below"):
        with pytest.raises(HostError, match="cannot store results here") as caught, Store.open(lab):
            pass
        assert "ORCHESTRATOR_LAB" in caught.value.hint


def test_a_store_that_became_read_only_is_reported_and_kept(user_folder: Path) -> None:
    with Store.open(user_folder) as store:
        run = begin(store).id
    (user_folder / FILE_NAME).chmod(0o400)
    user_folder.chmod(0o500)
    # An ordinary user may still read it, as test_read_only_store.py shows; root is taken for one who may write.
    with pytest.raises(HostError, match="cannot store results here"), Store.open(user_folder) as store:
        store.check_writable()
    user_folder.chmod(0o700)
    (user_folder / FILE_NAME).chmod(0o600)
    with Store.open(user_folder) as store:
        assert store.entry(run).id == run


def test_a_folder_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "lab").write_text("a file")
    with pytest.raises(HostError, match="lab' is a file; expected a folder"), Store.open(tmp_path / "lab"):
        pass


def test_a_path_that_is_no_text_is_reported(store: Store) -> None:
    with pytest.raises(UsageError, match="not valid UTF-8"):
        store.begin_run("quickstart", CELLS, digest="d", provenance={}, directory=Path("/tmp/\udcff"))


# Is a store that another program has changed, or a failing disk, called damaged in a sentence?


def changed(lab: Path, *statements: str) -> str:
    """A store with one run, and then these changes; the run's id."""
    with Store.open(lab) as store:
        run = store.begin_run("quickstart", ["cell"], digest="d", provenance={"qemu": "7.2"}).id
    with closing(sqlite3.connect(lab / FILE_NAME, isolation_level=None)) as other_connection:
        for statement in ("PRAGMA writable_schema = ON", *statements):
            other_connection.execute(statement)
    return run


@pytest.mark.parametrize(
    ("statements", "read"),
    [
        (["UPDATE runs SET provenance = '{'"], Store.provenance),
        (["UPDATE runs SET provenance = '[]'"], Store.provenance),
        (["UPDATE runs SET provenance = replace(hex(zeroblob(5000)), '00', '[')"], Store.provenance),
        (["UPDATE runs SET started = cast(x'32ff' AS TEXT)"], Store.entry),
        (["DROP VIEW run_entries", "CREATE VIEW run_entries AS SELECT number, id FROM runs"], Store.entry),
        (["DROP TABLE samples"], Store.load_run),
        (
            [
                "DROP VIEW run_entries",
                "CREATE VIEW run_entries AS SELECT *, NULL AS directory FROM (SELECT number, id, experiment, started,"
                " finished, status, digest FROM runs)",
            ],
            Store.entry,
        ),
    ],
)
def test_damage_is_an_error_with_the_place(
    statements: list[str], read: Callable[[Store, str], object], tmp_path: Path
) -> None:
    run = changed(tmp_path, *statements)
    with Store.open(tmp_path) as store, pytest.raises(LabError, match=f"{FILE_NAME}: .*damaged"):
        read(store, run)
