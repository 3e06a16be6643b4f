# SPDX-License-Identifier: GPL-2.0-only
"""Is a call's first instruction found in the programs that make timed calls?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import EvidenceError
from orchestrator.paths import data_dir
from orchestrator.run.debugging import first_instructions

LOOP = data_dir("images") / "workload" / "workload_loop.S"
CALLER = "void workload(void) {}\nvoid _start(void) { for (;;); }\n"


def built(folder: Path, option: str, *sources: Path) -> bytes:
    (folder / "caller.c").write_text(CALLER)
    made = folder / "made"
    flags = ["-nostdlib", "-static", "-ffreestanding", "-fno-pic", "-no-pie", "-o", str(made)]
    subprocess.run(["gcc", option, *flags, str(folder / "caller.c"), *map(str, sources)], check=True)
    return made.read_bytes()


@pytest.mark.parametrize("option", ["-m32", "-m64"])
def test_the_first_instruction_of_a_call(tmp_path: Path, option: str) -> None:
    ((place, code),) = first_instructions(built(tmp_path, option, LOOP)).items()
    assert code[0] == 0xE8  # call workload
    assert 8 < len(code) <= 16
    listed = subprocess.run(["objdump", "-d", str(tmp_path / "made")], check=True, capture_output=True, text=True)
    (line,) = (one for one in listed.stdout.splitlines() if one.strip().startswith(f"{place:x}:"))
    assert "<workload>" in line


def test_another_program(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="none of the loops that make timed calls"):
        first_instructions(built(tmp_path, "-m64"))
