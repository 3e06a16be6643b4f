# SPDX-License-Identifier: GPL-2.0-only
"""Is of the kernel's source taken what a build needs, its build system whole, and nothing changed in the source?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.artifacts.kernel_build import build_source_choice, link_chosen
from orchestrator.catalog.kernels import kernels


@pytest.mark.parametrize(
    ("folder", "names", "taken"),
    [
        (".", ["Makefile", "Kbuild", "Kconfig", "COPYING"], ["Makefile", "Kbuild", "Kconfig", "COPYING"]),
        ("kernel/locking", ["mutex.c", "Makefile"], ["mutex.c", "Makefile"]),
        ("arch", ["Kconfig"], ["Kconfig"]),
        ("arch/x86/kernel", ["setup.c", "vmlinux.lds.S"], ["setup.c", "vmlinux.lds.S"]),
        ("arch/x86/boot/dts", ["a.dts"], []),
        ("arch/arm", ["Kconfig", "Kconfig.debug", "Makefile", "head.S"], ["Kconfig", "Kconfig.debug", "Makefile"]),
        ("arch/arm64/kernel", ["setup.c", "Makefile"], ["Makefile"]),
        ("net", ["Kconfig", "socket.c"], ["Kconfig"]),
        ("net/ipv4", ["Kconfig", "tcp.c"], ["Kconfig"]),
        ("include/net", ["tcp.h"], ["tcp.h"]),
        ("drivers/net/ethernet", ["Kconfig", "dummy.c"], ["Kconfig"]),
        ("drivers/char", ["mem.c"], ["mem.c"]),
        ("drivers/clk/x86", ["clk.c"], []),
        ("drivers/clocksource", ["i8253.c"], ["i8253.c"]),
        ("fs/ext4", ["super.c", "Makefile"], ["Makefile"]),
        ("fs/ext4x", ["super.c"], ["super.c"]),
        ("lib", ["README.rst", "sort.c"], ["sort.c"]),
    ],
)
def test_the_chosen_files(folder: str, names: list[str], taken: list[str]) -> None:
    assert build_source_choice().takes(folder, names) == taken


def test_the_source_is_that_of_the_lab_s_kernels() -> None:
    default = kernels()["lab-i386-up"]
    assert default.source == build_source_choice().package


def test_the_tree_shares_its_files_with_the_source(tmp_path: Path) -> None:
    source, tree = tmp_path / "source", tmp_path / "tree"
    files = ("Makefile", "kernel/fork.c", "net/Kconfig", "net/socket.c", "arch/mips/Kbuild", "sound/core/pcm.c")
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "kernel/link.c").symlink_to("nowhere.c")
    link_chosen(build_source_choice(), source, tree)
    found = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if not path.is_dir()}
    assert found == {"Makefile", "kernel/fork.c", "kernel/link.c", "net/Kconfig", "arch/mips/Kbuild"}
    assert (tree / "sound/core").is_dir()
    assert (tree / "kernel/link.c").readlink() == Path("nowhere.c")
    assert (tree / "kernel/fork.c").samefile(source / "kernel/fork.c")
    assert all((source / name).read_text() == name for name in files)
