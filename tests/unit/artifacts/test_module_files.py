# SPDX-License-Identifier: GPL-2.0-only
"""Are a kernel's own modules found by the names that it lists them by, and is a misspelt one not?"""

from __future__ import annotations

import lzma
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from host_toolchain import a_kernel
from hypothesis import given
from hypothesis import strategies as st
from tiny_modules import make_module

from orchestrator.artifacts import module_files
from orchestrator.artifacts.module_files import (
    loaded_files,
    missing_module_reason,
    module_content,
    module_info,
    unpacked_name,
    with_dependencies,
)
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import LabError

NO_MODULES = "it has no modules: everything is built in"


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """A kernel of a package, with vfat that needs fat, and ext2 built in."""
    modules = tmp_path / "6.1.0/kernel"
    make_module(modules / "fs/fat/fat.ko")
    make_module(modules / "fs/fat/vfat.ko", "fat")
    make_module(modules / "sound/snd-pcm.ko")
    (modules.parent / "modules.builtin").write_text("kernel/fs/ext2/ext2.ko\n")
    return a_kernel("debian-686", folder=tmp_path, release="6.1.0", modules=modules, packages={"linux-image": "1"})


def test_what_a_module_needs_is_loaded_before_it(kernel: Kernel) -> None:
    assert list(loaded_files(kernel, ["vfat", "snd_pcm"])) == ["fat", "vfat", "snd_pcm"]
    assert loaded_files(kernel, ["snd-pcm"])["snd_pcm"].name == "snd-pcm.ko"
    assert loaded_files(kernel, ["ext2"]) == {}


def test_a_package_s_files_are_looked_through_once(kernel: Kernel) -> None:
    """A hundred cells with points in a module took a quarter of a minute to say so."""
    paths = loaded_files(kernel, ["vfat"])
    shutil.rmtree(kernel.modules / "fs")
    assert loaded_files(kernel, ["vfat"]) == paths


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


# Does every driver come after what it depends on, and is a file that is no module reported?


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_module(tmp_path_factory.mktemp("elf") / "x.ko", "a,b").read_bytes()


def test_the_facts_in_a_module(tmp_path: Path) -> None:
    assert module_info(make_module(tmp_path / "x.ko", "a,b")) == {
        "license": "GPL",
        "depends": "a,b",
        "vermagic": "6.1.0 SMP mod_unload = modversions",
    }


def test_each_driver_is_listed_once_after_its_dependencies(tmp_path: Path) -> None:
    make_module(tmp_path / "drivers/virtio/virtio_pci.ko", "virtio,virtio_pci_modern_dev,virtio_ring")
    make_module(tmp_path / "drivers/virtio/virtio_pci_modern_dev.ko", "virtio")
    make_module(tmp_path / "drivers/virtio/virtio-ring.ko", "virtio,built_in")
    make_module(tmp_path / "drivers/virtio/virtio.ko")
    make_module(tmp_path / "drivers/char/virtio_console.ko", "virtio_ring,virtio")
    make_module(tmp_path / "drivers/net/unwanted.ko", "virtio")
    wanted = ["virtio_pci", "virtio-console", "not_there", "virtio_pci"]
    names = [path.stem for path in with_dependencies(tmp_path, wanted)]
    assert names == ["virtio", "virtio_pci_modern_dev", "virtio-ring", "virtio_pci", "virtio_console"]


def test_packed_drivers_are_unpacked(tmp_path: Path) -> None:
    plain = make_module(tmp_path / "virtio.ko")
    content = plain.read_bytes()
    plain.unlink()
    (tmp_path / "virtio.ko.xz").write_bytes(lzma.compress(content))
    make_module(tmp_path / "virtio_pci.ko", "virtio")
    paths = with_dependencies(tmp_path, ["virtio_pci"])
    assert [unpacked_name(path) for path in paths] == ["virtio.ko", "virtio_pci.ko"]
    assert [module_content(path)[:4] for path in paths] == [b"\x7fELF"] * 2
    assert module_content(paths[0]) == content


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.ko.xz", b"this was packed by nothing", "not a kernel module"),
        ("x.ko.xz", lzma.compress(bytes(1000))[:-20], "it is damaged"),
        ("x.ko.xz", lzma.compress(bytes((1 << 20) + 1)), "larger than 1 MiB"),
        ("x.ko.zst", b"", "not a kernel module"),
    ],
)
def test_file_packed_otherwise_is_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, said: str
) -> None:
    monkeypatch.setattr(module_files, "_LARGEST", 1 << 20)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LabError, match=said):
        module_content(tmp_path / name)


def test_built_in_module_needs_no_file(tmp_path: Path) -> None:
    assert with_dependencies(tmp_path, ["virtio_pci"]) == []


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"no module", b"\x7fELF\x02\x01\x01" + bytes(60)])
def test_another_file_is_no_module(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.ko"
    path.write_bytes(content)
    with pytest.raises(LabError, match="not a kernel module") as caught:
        with_dependencies(tmp_path, ["x"])
    assert str(path) in caught.value.what


def test_a_missing_file_is_no_module(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="not a kernel module"):
        module_info(tmp_path / "x.ko")


@given(data=st.data())
def test_a_damaged_module_is_read_or_refused(
    data: st.DataObject, elf: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(elf)
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, len(elf) - 1), st.integers(0, 255)), max_size=6)):
        content[place] = value
    path = tmp_path_factory.getbasetemp() / "damaged.ko"
    path.write_bytes(content[: data.draw(st.integers(0, len(elf)))])
    try:
        info = module_info(path)
    except LabError:
        return
    assert all(isinstance(key, str) for key in info)
