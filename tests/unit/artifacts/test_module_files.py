# SPDX-License-Identifier: GPL-2.0-only
"""Are a kernel's own modules found by the names that it lists them by, and is a misspelt one not?"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from host_toolchain import HOST_TOOLCHAIN
from tiny_modules import make_module

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_files import loaded_files, missing_module_reason
from orchestrator.catalog.kernels import kernels

NO_MODULES = "it has no modules of its own: what it has is built in"


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """A kernel of a package, with vfat that needs fat, and ext2 built in."""
    modules = tmp_path / "6.1.0/kernel"
    make_module(modules / "fs/fat/fat.ko")
    make_module(modules / "fs/fat/vfat.ko", "fat")
    make_module(modules / "sound/snd-pcm.ko")
    (modules.parent / "modules.builtin").write_text("kernel/fs/ext2/ext2.ko\n")
    return Kernel(
        spec=kernels()["debian-686"],
        release="6.1.0",
        key="key",
        image=tmp_path / "image",
        modules=modules,
        headers=tmp_path / "headers",
        headers_makefile=tmp_path / "Makefile",
        packages={"linux-image": "1"},
        config={},
        toolchain=HOST_TOOLCHAIN,
    )


def test_what_a_module_needs_is_loaded_before_it(kernel: Kernel) -> None:
    assert list(loaded_files(kernel, ["vfat", "snd_pcm"])) == ["fat", "vfat", "snd_pcm"]
    assert loaded_files(kernel, ["snd-pcm"])["snd_pcm"].name == "snd-pcm.ko"
    assert loaded_files(kernel, ["ext2"]) == {}


def test_a_package_s_files_are_looked_through_once(kernel: Kernel) -> None:
    """A hundred cells with points in a module took a quarter of a minute to say so."""
    found = loaded_files(kernel, ["vfat"])
    shutil.rmtree(kernel.modules / "fs")
    assert loaded_files(kernel, ["vfat"]) == found


def test_modules_that_need_each_other_end(kernel: Kernel) -> None:
    make_module(kernel.modules / "fs/fat/fat.ko", "vfat")
    assert set(loaded_files(kernel, ["vfat"])) == {"fat", "vfat"}


@pytest.mark.parametrize("names", [[], ["vfat"], ["snd-pcm"], ["ext2", "fat"]])
def test_what_the_kernel_has(kernel: Kernel, names: list[str]) -> None:
    assert missing_module_reason(kernel, names) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("vfta", "it has no module vfta of its own; did you mean vfat?"),
        ("snd_pmc", "it has no module snd_pmc of its own; did you mean snd_pcm?"),
        ("ext22", "it has no module ext22 of its own; did you mean ext2?"),
        ("nothing_alike", "it has no module nothing_alike of its own"),
    ],
)
def test_a_misspelt_module_has_a_nearest_one(kernel: Kernel, name: str, reason: str) -> None:
    assert missing_module_reason(kernel, ["fat", name]) == reason


def test_a_kernel_without_modules(kernel: Kernel, tmp_path: Path) -> None:
    bare = replace(kernel, modules=tmp_path / "no-drivers", headers=tmp_path)
    assert missing_module_reason(bare, ["fat"]) == NO_MODULES
    assert missing_module_reason(bare, []) is None
