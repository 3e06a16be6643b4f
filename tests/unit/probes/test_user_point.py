# SPDX-License-Identifier: GPL-2.0-only
"""Does a point in a program have its experiment's name, and is a hit's address told from another place's?"""

from __future__ import annotations

import pytest

from orchestrator.probes.place import UserPoint
from orchestrator.probes.point import Point

CODE = bytes.fromhex("4154")
IN_PROGRAM = UserPoint("inner", 4, 0x401234, CODE, program="/tmp/workload", file_offset=0x1234)
IN_LIBRARY = UserPoint(
    *("malloc", 0, 0x98930, CODE),
    program="/tmp/workload",
    file_offset=0x98930,
    library="/usr/lib/libc.so.6",
    label="libc.so.6",
)


def test_names_and_files() -> None:
    assert (IN_PROGRAM.name, IN_PROGRAM.file) == ("program:inner+0x4", "/tmp/workload")
    assert (IN_LIBRARY.name, IN_LIBRARY.file) == ("libc.so.6:malloc", "/usr/lib/libc.so.6")


def test_a_library_is_at_other_pages_in_each_process() -> None:
    assert IN_PROGRAM.is_at(0x401234)
    assert not IN_PROGRAM.is_at(0x402234)
    assert IN_LIBRARY.is_at(0x7F1C34A00000 + 0x98930)
    assert not IN_LIBRARY.is_at(0x7F1C34A00000 + 0x98931)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("vfs_read", Point("vfs_read")),
        ("vfs_read+0x0", Point("vfs_read", 0)),
        ("vfs_read+*", Point("vfs_read", is_whole=True)),
        ("program:inner", Point("inner", file="program")),
        ("program:lab:passed", Point("lab:passed", file="program")),
        ("libstdc++.so.6:_Znwm+0x4", Point("_Znwm", 4, "libstdc++.so.6")),
        ("libc.so.6:libc:setjmp", Point("libc:setjmp", file="libc.so.6")),
    ],
)
def test_a_point_is_of_the_kernel_the_program_or_a_library(text: str, point: Point) -> None:
    assert Point.of(text) == point
    assert str(point) == text
    assert point.library == (None if point.file == "program" else point.file)
