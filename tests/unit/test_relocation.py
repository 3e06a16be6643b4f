# SPDX-License-Identifier: GPL-2.0-only
"""Does a build tree that changes its source forget the old one, and nothing else?"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.artifacts.relocation import relocate


def test_a_build_tree_belongs_to_its_new_source(tmp_path: Path) -> None:
    old, new, build = tmp_path / "old/linux", tmp_path / "new/linux", tmp_path / "build"
    (build / "kernel").mkdir(parents=True)
    command = build / "kernel/.fork.o.cmd"
    command.write_text(f"cmd := gcc -I{old}/include {old}/kernel/fork.c\ndeps := {old}-other/x.h\n")
    (build / "Makefile").write_text(f"include {old}/Makefile\n")
    (build / "include").mkdir()
    (build / "include/auto.conf.cmd").write_text(f"root = {old}\n")
    binary = build / "kernel/fork.o"
    binary.write_bytes(f"{old}/kernel/fork.c".encode())
    os.utime(binary, (1, 1))
    (build / "source").symlink_to(old)

    relocate(build, old, new)

    assert command.read_text() == f"cmd := gcc -I{new}/include {new}/kernel/fork.c\ndeps := {old}-other/x.h\n"
    assert (build / "Makefile").read_text() == f"include {new}/Makefile\n"
    assert (build / "include/auto.conf.cmd").read_text() == f"root = {new}\n"
    assert (build / "source").readlink() == new
    # What was made stays as it is: make decides by the times.
    assert binary.read_bytes() == f"{old}/kernel/fork.c".encode()
    assert binary.stat().st_mtime == 1


def test_the_same_source_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.cmd"
    file.write_text(f"cmd := {tmp_path}/a.c\n")
    os.utime(file, (1, 1))
    relocate(tmp_path, tmp_path, tmp_path)
    assert file.stat().st_mtime == 1
