# SPDX-License-Identifier: GPL-2.0-only
"""Are temporary folders removed, those of killed processes too, and never one that is in use?"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.files import ScratchFolder

HOLDER = """
import sys
from pathlib import Path
from orchestrator.files import ScratchFolder
print(ScratchFolder("some-", Path(sys.argv[1])).path, flush=True)
sys.stdin.read()
"""


def test_a_folder_is_private_and_goes_with_its_content(tmp_path: Path) -> None:
    with ScratchFolder("some-", tmp_path) as scratch:
        assert scratch.parent == tmp_path
        assert scratch.stat().st_mode & 0o777 == 0o700
        (scratch / "file").write_text("")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    pipe = subprocess.PIPE
    other = tmp_path / "other-folder"
    other.mkdir()
    (tmp_path / "some-file").write_text("")
    (tmp_path / "some-link").symlink_to(other)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with ScratchFolder("some-", tmp_path):
            assert left.exists()
        process.kill()
        process.wait()
        assert left.exists()
        with ScratchFolder("some-", tmp_path):
            assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other-folder", "some-file", "some-link"]


def test_no_folder_is_taken_from_who_has_just_made_it(tmp_path: Path) -> None:
    def use(number: int) -> bool:
        with ScratchFolder("some-", tmp_path) as scratch:
            file = scratch / "file"
            file.write_text(str(number))
            os.sched_yield()
            return file.read_text() == str(number)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(400)))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_be_closed_twice(tmp_path: Path) -> None:
    folder = ScratchFolder("some-", tmp_path)
    folder.close()
    with (tmp_path / "file").open("w") as other:  # has the number of the folder's descriptor
        folder.close()
        other.write("still open")
    assert (tmp_path / "file").read_text() == "still open"
