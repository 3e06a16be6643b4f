# SPDX-License-Identifier: GPL-2.0-only
"""Can results be read where nothing can be written, and is a run told so before it builds anything?"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from namespaces import OWN_MOUNTS, fork_with_mount
from other_processes import FORK
from record_builders import cell

from orchestrator.errors import HostError
from orchestrator.results.store import Store

pytestmark = OWN_MOUNTS


def write_a_run(folder: Path) -> None:
    with Store.open(folder) as store:
        entry = store.begin_run("quickstart", ["cell/0", "cell/1"], digest="d", provenance={})
        store.record(entry.id, cell("djprobe", id="cell/0"))


def write_and_die(folder: Path) -> None:
    """Leave what was committed in the log, as a killed process does."""
    with Store.open(folder) as store:
        entry = store.begin_run("quickstart", ["cell/0", "cell/1"], digest="d", provenance={})
        store.record(entry.id, cell("djprobe", id="cell/0"))
        os.kill(os.getpid(), signal.SIGKILL)


def read_and_not_write(lab: str) -> None:
    with Store.open(Path(lab)) as store:
        (entry,) = store.runs()
        assert [record.id for record in store.load_run(entry.id).cells] == ["cell/0"]
        assert store.unfinished_cells(entry.id) == ["cell/1"]
        for write in (store.check_writable, lambda: store.record(entry.id, cell("djprobe", id="cell/1"))):
            with pytest.raises(HostError, match="cannot store results here") as caught:
                write()
            assert caught.value.where == str(store.path)
            assert "ORCHESTRATOR_LAB" in caught.value.hint


def find_none(lab: str) -> None:
    with pytest.raises(HostError, match="cannot store results here: read-only file system"), Store.open(Path(lab)):
        pass


def read_only(folder: Path, function: Callable[[str], None]) -> str:
    mount = ("none", "bind,ro", str(folder), folder)
    return fork_with_mount(mount, function, folder)


def test_results_are_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    write_a_run(tmp_path)
    assert not list(tmp_path.glob("*-wal"))
    assert read_only(tmp_path, read_and_not_write) == ""


def test_what_a_killed_process_has_left_in_the_log_is_read(tmp_path: Path) -> None:
    process = FORK.Process(target=write_and_die, args=(tmp_path,))
    process.start()
    process.join()
    (log,) = tmp_path.glob("*-wal")
    assert log.stat().st_size > 0
    assert read_only(tmp_path, read_and_not_write) == ""


def test_a_lab_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    assert read_only(tmp_path, find_none) == ""
