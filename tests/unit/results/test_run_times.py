# SPDX-License-Identifier: GPL-2.0-only
"""Does a run end behind its beginning, and stay in its place, whatever the host's clock does meanwhile?"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from orchestrator.results.store import RunEntry, Store


def begin(store: Store) -> RunEntry:
    return store.begin_run("quickstart", ["cell/0"], digest="d", provenance={})


def test_a_clock_that_is_set_back_moves_no_run(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        first = begin(store)
        ahead = first.started.replace(first.started[:4], "9999", 1)
        with sqlite3.connect(store.path) as raw:
            raw.execute("UPDATE runs SET started = ?", (ahead,))
        raw.close()
        store.finish_run(first.id, "complete")
        second = begin(store)
        assert store.entry(first.id).finished == ahead
        assert [entry.id for entry in store.runs()] == [second.id, first.id]
        assert store.latest() == second
        store.resume_run(first.id)
        assert store.entry(first.id).finished is None
