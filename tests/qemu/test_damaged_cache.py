# SPDX-License-Identifier: GPL-2.0-only
"""Does a damaged cache cost a sentence and a rebuild, and not a guest that hangs?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.initramfs import initramfs
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.catalog.kernels import kernels
from orchestrator.paths import cache_dir

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

EXEC = ("exec", "--offline", "--kernel", "lab-i386-up", "--cpu", "athlon", "--accel", "tcg", "--", "uname", "-m")


def copy_but_for(entry: Path, root: Path) -> Path:
    """The user's cache by links, but for one artifact, which is a copy."""
    root.mkdir()
    for folder in cache_dir().iterdir():
        if folder.is_dir() and folder.name not in {"locks", "damaged", entry.parent.name}:
            (root / folder.name).symlink_to(folder)
    shutil.copytree(entry, root / entry.parent.name / entry.name, symlinks=True)
    return root


@pytest.fixture
def kernel(workshop: BuildContext) -> Kernel:
    return ready_kernel(workshop, kernels()["lab-i386-up"])


def test_a_damaged_initramfs_is_made_anew(kernel: Kernel, workshop: BuildContext, tmp_path: Path) -> None:
    copy = copy_but_for(initramfs(workshop, kernel).parent, tmp_path / "cache")
    (file,) = copy.glob("initramfs/*/initramfs.cpio")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    done = CommandLine(tmp_path, {"ORCHESTRATOR_CACHE": str(copy)}).run(*EXEC)
    assert (done.returncode, done.stdout) == (0, "i686\n")
    assert "initramfs of lab-i386-up in the cache is damaged (initramfs.cpio: has " in done.stderr
    assert file.read_bytes() == whole
    assert len(list((copy / "damaged").iterdir())) == 1


def test_a_damaged_kernel_is_not_booted(kernel: Kernel, tmp_path: Path) -> None:
    copy = copy_but_for(kernel.headers.parent, tmp_path / "cache")
    (file,) = copy.glob("kernels/*/build/arch/x86/boot/bzImage")
    with file.open("r+b") as image:
        image.seek(0x10000)
        image.write(b"????")
    done = CommandLine(tmp_path, {"ORCHESTRATOR_CACHE": str(copy)}).run(*EXEC)
    assert (done.returncode, done.stdout) == (3, "")
    damage = (
        "kernels lab-i386-up in the cache is damaged (build/arch/x86/boot/bzImage: has different content): set aside"
    )
    assert damage in done.stderr
    assert "error: lab-i386-up is not in the cache" in done.stderr
    assert "hint: run once without --offline" in done.stderr
