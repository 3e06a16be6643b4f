# SPDX-License-Identifier: GPL-2.0-only
"""How long cells took, by the logs of earlier runs; what a log does not tell is not made up."""

from __future__ import annotations

from pathlib import Path

import pytest
from record_builders import cell, failed

from orchestrator.results.contract import CellRecord
from orchestrator.results.run_files import durations, logged_durations
from orchestrator.results.store import Store

NONE, KPROBE, JPROBE = cell("none"), cell("kprobe"), cell("jprobe")
LOG = f"""\
# before the run
   0.312  get kernel debian-686 ready (0.313 s)
# seconds since 2026-11-22T14:29:20+00:00
   1.000  boot1: boot debian-686 on pentium4 ...
   1.152  boot1:   boot guest1-pentium4-debian-686 on pentium4 ...
   5.324  boot1:   boot guest1-pentium4-debian-686 on pentium4 (4.172 s)
   6.000  boot1:   measure {NONE.id} ...
   7.000  boot1:   measure {NONE.id} (0.395 s)
   7.500  boot2: boot debian-686 on athlon ...
   7.600  boot1:   compare the kernel's text (0.522 s)
   9.000  boot1:   measure {KPROBE.id} FAILED (0.847 s): the proof (2.000 s) is not complete
   9.500  boot2:   measure {JPROBE.id} (1.624 s)
   9.600  boot1: boot debian-686 on pentium4 (8.600 s)
"""


def test_a_cell_has_its_share_of_its_guests_start_and_end() -> None:
    found = logged_durations(LOG.splitlines())
    assert found == pytest.approx({NONE.id: 6.0, KPROBE.id: 2.6, JPROBE.id: 2.0})


def test_cells_of_a_guest_that_works_by_itself_share_its_boot() -> None:
    lines = [
        "   2.000  boot1: boot lab-i386-up on pentium4 ...",
        "   3.000  boot2: boot lab-i386-up on athlon ...",
        f"  11.900  boot1:   store {NONE.id} (0.003 s)",
        f"  11.950  boot1:   store {KPROBE.id} (0.003 s)",
        "  12.000  boot1: boot lab-i386-up on pentium4 (10.000 s)",
        f"  14.000  boot2:   store {JPROBE.id} (0.003 s)",
        "  15.000  boot2: boot lab-i386-up on athlon (12.000 s)",
    ]
    assert logged_durations(lines) == {NONE.id: 5.0, KPROBE.id: 5.0, JPROBE.id: 12.0}


def test_a_run_that_was_gone_on_with_begins_anew() -> None:
    lines = [
        "   1.000  boot1: boot debian-686 on pentium4 ...",
        f"   4.000  boot1:   measure {NONE.id} (0.395 s)",
        "# seconds since 2026-11-23T14:29:20+00:00",
        "   2.000  boot1: boot debian-686 on pentium4 ...",
        f"   3.000  boot1:   measure {KPROBE.id} (0.395 s)",
    ]
    assert logged_durations(lines) == pytest.approx({NONE.id: 3.0, KPROBE.id: 1.0})


def stored(lab: Path, experiment: str, seconds: float | None, *cells: CellRecord) -> None:
    """A complete run whose cells took as many seconds each; None where its log is gone."""
    with Store.open(lab) as store:
        entry = store.begin_run(experiment, [one.id for one in cells], digest="d", provenance={})
        for one in cells:
            store.record(entry.id, one)
        store.finish_run(entry.id, "complete")
        entry.directory.mkdir(parents=True)
        if seconds is not None:
            lines = [
                f"{(number + 1) * seconds:8.3f}  boot1:   measure {one.id} (0 s)" for number, one in enumerate(cells)
            ]
            log = "\n".join(["   0.000  boot1: boot k on c ...", *lines])
            (entry.directory / "lab.log").write_text(f"{log}\n")


def test_the_median_of_the_latest_runs_by_cell_and_by_benchmark(tmp_path: Path) -> None:
    for seconds in (100.0, 4.0, 1.0, 2.0):
        stored(tmp_path, "quickstart", seconds, NONE, KPROBE)
    for _ in range(3):
        stored(tmp_path, "quickstart", None, NONE)
    with Store.open(tmp_path) as store:
        known = durations(store, "quickstart")
        assert known.of(NONE.id, "gtodbench") == pytest.approx(2.0), "the first run is too old, the last ones are gone"
        assert known.of("another cell", "gtodbench") == pytest.approx(2.0)
        assert known.of("another cell", "kernel-build") is None


def test_another_experiment_tells_of_its_benchmark_alone(tmp_path: Path) -> None:
    stored(tmp_path, "nightly", 3.0, NONE, failed("kprobe", "no such probe"))
    with Store.open(tmp_path) as store:
        known = durations(store, "quickstart")
    assert known.cells == {}
    assert known.of(NONE.id, "gtodbench") == pytest.approx(3.0)


def test_what_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    stored(tmp_path, "quickstart", None, NONE)
    with Store.open(tmp_path) as store:
        entry = store.begin_run("quickstart", [NONE.id], digest="d", provenance={})
        assert durations(store, "quickstart").of(NONE.id, "gtodbench") is None
        (entry.directory).mkdir(parents=True)
        (entry.directory / "lab.log").write_bytes(b"\xff\x00 1.000  boot1: measure\n")
        store.finish_run(entry.id, "complete")
        assert durations(store, "quickstart").of(NONE.id, "gtodbench") is None
