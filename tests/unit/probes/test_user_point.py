# SPDX-License-Identifier: GPL-2.0-only
"""Does a point in a program have its experiment's name, and is a hit's address told from another place's?"""

from __future__ import annotations

import pytest

from orchestrator.experiment.fields import ProgramPoint, in_program
from orchestrator.probes.place import UserPoint

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
    ("point", "place"),
    [
        (None, None),
        ("vfs_read+0x1", None),
        ("program:inner", ProgramPoint("program", "inner", 0)),
        ("program:lab:passed", ProgramPoint("program", "lab:passed", 0)),
        ("libstdc++.so.6:_Znwm+0x4", ProgramPoint("libstdc++.so.6", "_Znwm", 4)),
        ("libc.so.6:libc:setjmp", ProgramPoint("libc.so.6", "libc:setjmp", 0)),
    ],
)
def test_a_point_is_of_the_kernel_the_program_or_a_library(point: str | None, place: ProgramPoint | None) -> None:
    assert in_program(point) == place
    if place is not None:
        assert place.library == (None if place.file == "program" else place.file)
