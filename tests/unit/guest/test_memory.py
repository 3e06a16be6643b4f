# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest's memory written as it is, without what it has not touched?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from namespaces import OWN_MOUNTS, call_with_mount

from orchestrator.guest.guest_files import SharedMemory

PAGE = 4096
MIB = 4
PIECES = st.lists(
    st.tuples(st.integers(0, MIB * 256 - 4), st.binary(min_size=1, max_size=2 * PAGE + 7)), min_size=0, max_size=6
)


@given(PIECES)
def test_it_is_written_as_it_is(tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, bytes]]) -> None:
    target = tmp_path_factory.mktemp("memory") / "file"
    with SharedMemory(MIB) as memory:
        for page, content in pieces:
            os.pwrite(memory.descriptor, content, page * PAGE)
        memory.write(target)
        assert target.read_bytes() == os.pread(memory.descriptor, MIB << 20, 0)


def test_pages_without_content_take_no_room(tmp_path: Path) -> None:
    with SharedMemory(64) as memory:
        os.pwrite(memory.descriptor, bytes(16 << 20), 0)
        os.pwrite(memory.descriptor, b"content", 20 << 20)
        memory.write(tmp_path / "file")
    facts = (tmp_path / "file").stat()
    assert (facts.st_size, facts.st_mode & 0o777) == (64 << 20, 0o600)
    assert facts.st_blocks * 512 <= 1 << 16


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with SharedMemory(1) as memory, pytest.raises(FileExistsError):
        memory.write(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def write_too_much(folder: str) -> None:
    with SharedMemory(8) as memory:
        os.pwrite(memory.descriptor, b"x" * (8 << 20), 0)
        memory.write(Path(folder) / "file")


@OWN_MOUNTS
def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    mount = ("tmpfs", "size=1m", "tmpfs", tmp_path)
    assert "No space left on device" in call_with_mount(mount, "test_memory:write_too_much", tmp_path)
