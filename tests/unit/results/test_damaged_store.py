# SPDX-License-Identifier: GPL-2.0-only
"""Is a store that another program has changed, or a failing disk, called damaged in a sentence?"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import LabError
from orchestrator.results.store import FILE_NAME, Store


def changed(lab: Path, *statements: str) -> str:
    """A store with one run, and then these changes; the run's id."""
    with Store.open(lab) as store:
        run = store.begin_run("quickstart", ["cell"], digest="d", provenance={"qemu": "7.2"}).id
    with closing(sqlite3.connect(lab / FILE_NAME, isolation_level=None)) as other:
        for statement in ("PRAGMA writable_schema = ON", *statements):
            other.execute(statement)
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
