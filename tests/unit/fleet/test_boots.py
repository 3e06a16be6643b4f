# SPDX-License-Identifier: GPL-2.0-only
"""Does a worker begin no boot that was ended, and send no more files of one than a client takes?"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra fleet is not installed")

from staged_fleet import ROWS, jobs_of, record_of

from orchestrator.fleet.parcel import packed
from orchestrator.fleet.worker import Boots, FileMessage, received
from orchestrator.run.boot import PROFILES_FOLDER, Outcome, Progress, Session
from orchestrator.run.crew import Stopped


def test_a_boot_that_was_ended_before_it_began_does_not_begin(tmp_path: Path) -> None:
    boots = Boots(tmp_path)
    told: list[object] = []
    boots.abort("boot1-1")
    with pytest.raises(Stopped):
        boots.do("boot1-1", b"", told.append)
    assert told == []
    with pytest.raises(zlib.error):  # others do
        boots.do("boot1-2", b"no parcel", told.append)
    assert len(told) == 1


def leave(files: dict[str, int]) -> Callable[[Session], None]:
    """A boot that writes a profile of each of its cells, and then files of these sizes."""

    def do(session: Session) -> None:
        folder = session.task.directory
        (folder / PROFILES_FOLDER).mkdir(parents=True)
        for cell in session.task.cells:
            (folder / PROFILES_FOLDER / f"{cell.row}.json").write_bytes(bytes(10))
            session.emit(Outcome(record_of(cell)))
        for name, size in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(bytes(size))

    return do


@pytest.mark.parametrize(
    ("files", "left_out"),
    [
        ({"guest1.console": 40, "events/a.csv": 30}, ""),
        ({"guest1.console": 10, "guest2.console": 10, "events/a.csv": 10, "events/b.csv": 10}, "2 files, events/a.csv"),
        ({"guest1.console": 10, "guest1.qemu": 41}, "1 file, guest1.qemu"),
        ({"guest1.console": 40, "events/a.csv": 31}, "1 file, events/a.csv"),
    ],
    ids=["all fit", "too many", "too large", "too large together"],
)
def test_what_is_too_much_of_a_boot_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, int], left_out: str
) -> None:
    for name, value in {"LARGEST_FILE": 40, "MOST_FILES": 5, "MOST_BYTES": 100}.items():
        monkeypatch.setattr(f"orchestrator.fleet.worker.{name}", value)
    monkeypatch.setattr("orchestrator.fleet.worker.run_boot", leave(files))
    (job,) = jobs_of(tmp_path, 1)
    task = replace(job.task, directory=Path("boot1"))
    told: list[dict[str, object]] = []
    Boots(tmp_path / "cache").do("boot1-1", packed((task, job.artifacts), tmp_path).data, told.append)
    bodies = [received(message)[1] for message in told]
    sent = [body for body in bodies if isinstance(body, FileMessage)]
    assert len(sent) <= 5
    assert sum(len(one.content) for one in sent) <= 100
    assert [one.name for one in sent[:4]] == [*(f"profiles/{row}.json" for row in ROWS), "guest1.console"]
    warnings = [body.text for body in bodies if isinstance(body, Progress) and "left out" in body.text]
    if left_out:
        count, first = left_out.split(", ")
        (text,) = warnings
        assert text.startswith(f"warning: {count} of the boot left out, {first} for one: a fleet carries ")
    else:
        assert (warnings, len(sent)) == ([], 3 + len(files))
