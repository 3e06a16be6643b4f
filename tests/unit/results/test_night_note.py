# SPDX-License-Identifier: GPL-2.0-only
"""Is the night that did not end found again, and only that one, by one process at a time?"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.nightly.night import NightlyMarker, nightly_lock
from orchestrator.results.store import RunEntry, Store


@pytest.fixture
def note(lab: Path) -> Iterator[NightlyMarker]:
    with nightly_lock(lab, "nightly") as note:
        yield note


@pytest.fixture
def store(lab: Path) -> Iterator[Store]:
    with Store.open(lab) as store:
        yield store


def run(store: Store, experiment: str = "nightly", cells: Sequence[str] = ("a", "b")) -> RunEntry:
    return store.begin_run(experiment, cells, digest="d", provenance={})


def runs(note: NightlyMarker, store: Store) -> Sequence[RunEntry]:
    return note.runs(store, "nightly", ["a", "b"])


def test_the_run_of_a_night_that_did_not_end_began_in_it(note: NightlyMarker, store: Store) -> None:
    run(store)
    assert runs(note, store) == []
    note.begin()
    assert runs(note, store) == [], "a run of before the night"
    begun = run(store)
    run(store, "another")
    assert runs(note, store) == [begun]
    note.end()
    assert runs(note, store) == []
    note.end()


def test_a_run_of_some_cells_is_not_the_night(note: NightlyMarker, store: Store) -> None:
    """Somebody measures one cell again, as the report says to do, before the night is gone on with."""
    note.begin()
    begun = run(store)
    run(store, cells=["a"])
    run(store, cells=["a", "b", "c"])
    assert runs(note, store) == [begun]
    again = run(store, cells=["b", "a"])
    assert runs(note, store) == [again, begun]


def test_a_new_night_leaves_the_old_one(note: NightlyMarker, store: Store) -> None:
    note.begin(datetime.now(UTC) - timedelta(days=1))
    assert [run(store)] == runs(note, store)
    note.begin(datetime.now(UTC) + timedelta(seconds=1))
    assert runs(note, store) == []


@pytest.mark.parametrize("damage", ["", "yesterday", "\0\xff", "2026-11-22T02:30:00"])
def test_a_damaged_note_is_a_night_that_ended(lab: Path, note: NightlyMarker, store: Store, damage: str) -> None:
    note.begin()
    run(store)
    (lab / "nights" / "nightly").write_text(damage)
    assert runs(note, store) == []


def test_one_process_has_the_night(lab: Path, note: NightlyMarker) -> None:
    with pytest.raises(UsageError, match="is measuring the nightly experiment 'nightly'"), nightly_lock(lab, "nightly"):
        pass
    with nightly_lock(lab, "another"):
        pass


def test_the_lab_is_its_owners(lab: Path, note: NightlyMarker) -> None:
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (lab, lab / "nights")] == [0o700, 0o700]
