# SPDX-License-Identifier: GPL-2.0-only
"""Is a function of a static program found by its name, and what cannot be found refused with what to do?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.artifacts.program_code import find_in_program
from orchestrator.errors import BuildError

SOURCE = """
__attribute__((noinline)) void inner(void) { __asm__ volatile("nop; nop; nop"); }
void _start(void) { inner(); for (;;); }
"""
AT = 0x500000


def linked(folder: Path, *options: str) -> Path:
    source, program = folder / "program.c", folder / "program"
    source.write_text(SOURCE)
    argv = [
        "gcc",
        "-O2",
        "-ffreestanding",
        "-nostdlib",
        "-fcf-protection=none",
        *options,
        "-o",
        str(program),
        str(source),
    ]
    subprocess.run(argv, check=True, timeout=600)
    return program


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return linked(tmp_path, "-static", "-no-pie", f"-Wl,-Ttext={AT:#x}")


def test_a_function_is_where_the_file_has_it(program: Path) -> None:
    first, third = (find_in_program(program, "inner", offset) for offset in (0, 2))
    assert AT <= first.address < AT + 0x1000
    assert first.code.startswith(bytes.fromhex("909090c3"))
    assert program.read_bytes()[first.file_offset :].startswith(first.code)
    assert (third.address - first.address, third.file_offset - first.file_offset) == (2, 2)
    assert third.code.startswith(bytes.fromhex("90c3"))


def test_what_is_not_there(program: Path) -> None:
    with pytest.raises(BuildError, match=r"^the program has no function iner; the compiler may have") as caught:
        find_in_program(program, "iner", 0)
    assert caught.value.hint == "did you mean inner"
    with pytest.raises(BuildError, match=r"^inner\+0x10 is behind the end of inner, which has 0x4 bytes"):
        find_in_program(program, "inner", 16)


def test_a_program_that_cannot_be_probed_by_name(tmp_path: Path) -> None:
    moving = linked(tmp_path, "-static-pie")
    with pytest.raises(BuildError, match=r"^program is position-independent, and has no fixed address"):
        find_in_program(moving, "inner", 0)
    stripped = linked(tmp_path, "-static", "-no-pie", "-s")
    with pytest.raises(BuildError, match=r"^program has no symbols"):
        find_in_program(stripped, "inner", 0)
    stripped.write_bytes(stripped.read_bytes()[:80])
    with pytest.raises(BuildError, match=r"^program is damaged"):
        find_in_program(stripped, "inner", 0)
