# SPDX-License-Identifier: GPL-2.0-only
"""Does a disk that fills up during a run cost a sentence, and the rest of the run only until there is room again?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import PATIENCE, FinishedRun
from full_disk_run import Ended, ended, fill_up
from namespaces import OWN_MOUNTS, call_with_mount

pytestmark = [pytest.mark.qemu, OWN_MOUNTS]

RESULTS = range(0, 360, 12)
"""KiB; a run of two cells leaves 170, and 64 must be left."""

CACHE = (*range(0, 1024, 128), *range(1024, 4096, 512), 20_000, 60_000)
"""KiB; the initramfs has 2 MB, a module 50 kB, a saved guest 30 MB."""

TEMPORARY = (0, 8, 64, 512, 2048)


def runs(tmp_path: Path, kind: str, *rooms: int) -> list[Ended]:
    disk, answer = tmp_path / "disk", tmp_path / "answer"
    disk.mkdir()
    mount = ("tmpfs", "size=1g", "tmpfs", disk)
    limit = PATIENCE * len(rooms)
    function = f"{fill_up.__module__}:{fill_up.__name__}"
    assert call_with_mount(mount, function, disk, kind, answer, *rooms, time_limit=limit) == ""
    return ended(answer)


def check(found: Ended, folder: Path, exact: FinishedRun) -> None:
    """One sentence with the folder, what is free and what to do; or success. Then the same exact values."""
    print(found)
    assert found.status in (0, 3)
    errors = [line for line in found.errors if not line.startswith("warning")]
    if found.status == 3:
        error, hint = errors
        assert error.startswith(f"error: {folder / str(found.kib)}")
        assert "MB are free" in error
        assert hint.startswith("hint: ")
    else:
        assert errors == []
    assert not any("discarded" in line for line in found.errors)  # a saved guest is sound, whatever the disk
    assert (found.second_status, found.second_errors) == (0, [])
    cells = exact.cells()
    assert found.samples == {probe: list(cells[probe].samples) for probe in ("none", "kprobe")}


def test_a_run_goes_on_when_there_is_room_again(tmp_path: Path, undisturbed: FinishedRun) -> None:
    """The disk fills up while the guest is started."""
    (found,) = runs(tmp_path, "results", 130)
    check(found, tmp_path / "disk", undisturbed)
    assert found.status == 3


@pytest.mark.nightly("two runs for each of fifty sizes: half an hour")
@pytest.mark.parametrize(("kind", "rooms"), [("results", RESULTS), ("cache", CACHE), ("temporary", TEMPORARY)])
def test_a_disk_that_is_full_at_any_moment(
    tmp_path: Path, undisturbed: FinishedRun, kind: str, rooms: tuple[int, ...]
) -> None:
    endeds = runs(tmp_path, kind, *rooms)
    for one in endeds:
        check(one, tmp_path / "disk", undisturbed)
    assert endeds[-1].status == 0
    if kind != "temporary":  # where there is no room for them, they go to /tmp
        assert endeds[0].status == 3
