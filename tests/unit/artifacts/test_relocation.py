# SPDX-License-Identifier: GPL-2.0-only
"""Does a build tree that changes its source forget the old one, and nothing else?"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.artifacts.kernel_build import relocate


def test_a_build_tree_belongs_to_its_new_source(tmp_path: Path) -> None:
    old, new, build = tmp_path / "old/linux", tmp_path / "new/linux", tmp_path / "build"
    for folder in (old, new, build / "kernel"):
        folder.mkdir(parents=True)
    command = build / "kernel/.fork.o.cmd"
    command.write_text(f"cmd := gcc -I{old}/include {old}/kernel/fork.c\ndeps := {old}-other/x.h\n")
    user_path = build / "kernel/.tool.o.cmd"
    user_path.write_text(f"cmd_{tmp_path}/elsewhere/tool.o := gcc {tmp_path}/elsewhere-not/x.c\n")
    (build / "Makefile").write_text(f"include {old}/Makefile\n")
    (build / "include").mkdir()
    (build / "include/auto.conf.cmd").write_text(f"root = {old}\n")
    binary = build / "kernel/fork.o"
    binary.write_bytes(f"{old}/kernel/fork.c".encode())
    os.utime(binary, (1, 1))
    (build / "source").symlink_to(old)

    relocate(build, tmp_path / "elsewhere", old, new)

    assert command.read_text() == f"cmd := gcc -I{new}/include {new}/kernel/fork.c\ndeps := {old}-other/x.h\n"
    assert user_path.read_text() == f"cmd_{build}/tool.o := gcc {tmp_path}/elsewhere-not/x.c\n"
    assert (build / "Makefile").read_text() == f"include {new}/Makefile\n"
    assert (build / "include/auto.conf.cmd").read_text() == f"root = {new}\n"
    assert (build / "source").readlink() == new
    # What was made stays as it is: make decides by the times.
    assert binary.read_bytes() == f"{old}/kernel/fork.c".encode()
    assert binary.stat().st_mtime == 1


def test_what_came_from_a_file_that_differs_is_made_again(tmp_path: Path) -> None:
    old, new, build = tmp_path / "old", tmp_path / "new", tmp_path / "build"
    for folder in (old, new, build):
        (folder / "kernel").mkdir(parents=True)
    for name in ("same.c", "changed.c", "gone.h"):
        (old / "kernel" / name).write_text(name)
    (new / "kernel/same.c").hardlink_to(old / "kernel/same.c")
    (new / "kernel/changed.c").write_text("changed.c")  # the same text, yet who knows
    for name, source in {"same": "same.c", "changed": "changed.c", "wanting": "gone.h", "changed.c": "same.c"}.items():
        (build / f"kernel/{name}.o").touch()
        (build / f"kernel/.{name}.o.cmd").write_text(f"deps := \\\n  {old}/kernel/{source} \\\n")
    (build / "auto.conf").touch()
    (build / "auto.conf.cmd").write_text(f"deps := {old}/kernel/changed.c\n")

    relocate(build, tmp_path / "elsewhere", old, new)

    left = {file.name for file in build.rglob("*") if file.is_file() and file.suffix != ".cmd"}
    assert left == {"same.o", "changed.c.o", "auto.conf"}


def test_the_same_source_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.cmd"
    file.write_text(f"cmd := {tmp_path}/a.c\n")
    os.utime(file, (1, 1))
    relocate(tmp_path, tmp_path, tmp_path, tmp_path)
    assert file.stat().st_mtime == 1
