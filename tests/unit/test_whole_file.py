# SPDX-License-Identifier: GPL-2.0-only
"""Is a file whole at any moment, whoever else writes it, and whatever another writer has left?"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.files import write_whole

WRITERS = 4
ROUNDS = 50


def test_several_writers_at_once_each_write_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    sizes = [(number + 1) * 100_000 for number in range(WRITERS)]
    contents = {bytes([number]) * size for number, size in enumerate(sizes)}
    done = threading.Event()
    write_whole(file, min(contents))

    def read() -> set[bytes]:
        found = {file.read_bytes()}
        while not done.is_set():
            found.add(file.read_bytes())
        return found

    def write(content: bytes) -> None:
        for _ in range(ROUNDS):
            write_whole(file, content)

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        reader = pool.submit(read)
        try:
            for writer in [pool.submit(write, content) for content in contents]:
                writer.result()
        finally:
            done.set()
        assert reader.result() <= contents
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_killed_writer_left_is_overwritten(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "file", tmp_path / "elsewhere"
    (tmp_path / ".file.new").write_text("longer than what comes")
    write_whole(file, "short")
    assert file.read_text() == "short"
    elsewhere.write_text("not to be touched")
    (tmp_path / ".file.new").symlink_to(elsewhere)
    write_whole(file, "à")
    assert (file.read_bytes(), elsewhere.read_text()) == ("à".encode(), "not to be touched")
    assert {entry.name for entry in tmp_path.iterdir()} == {"file", "elsewhere"}


def test_what_cannot_be_written_leaves_the_old_file_alone(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(folder, "content")
    assert list(tmp_path.iterdir()) == [folder]
