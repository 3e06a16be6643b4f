# SPDX-License-Identifier: GPL-2.0-only
"""Are the lines of each program read from an object's type information, and is a damaged one without any?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.artifacts.object_lines import object_lines

SOURCE = Path(__file__).with_name("lines.bpf.c")


def compiled(target: Path, *flags: str) -> bytes:
    argv = ["clang", "-O2", "-target", "bpf", *flags, "-c", str(SOURCE), "-o", str(target)]
    subprocess.run(argv, check=True)
    return target.read_bytes()


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compiled(tmp_path_factory.mktemp("object") / "lines.o", "-g")


def test_each_program_of_a_section_has_its_own_lines(content: bytes) -> None:
    first, second = object_lines(content, "first"), object_lines(content, "second")
    assert {Path(line.file) for line in (*first, *second)} == {SOURCE}
    assert {10, 12} <= {line.line for line in first} <= set(range(8, 15))
    assert {19} <= {line.line for line in second} <= set(range(17, 22))
    assert [line.offset for line in first] == sorted(line.offset for line in first)
    assert first[0].offset == second[0].offset == 0


def test_what_has_no_lines_has_none(content: bytes, tmp_path: Path) -> None:
    assert object_lines(content, "third") == []
    assert object_lines(compiled(tmp_path / "plain.o"), "first") == []
    assert object_lines(b"", "first") == []


@given(st.data())
def test_a_damaged_object_is_read_or_has_none(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content)
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
        damaged[at] = data.draw(st.integers(0, 255))
    object_lines(bytes(damaged[: data.draw(st.integers(0, len(content)))]), "first")
