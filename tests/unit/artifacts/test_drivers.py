# SPDX-License-Identifier: GPL-2.0-only
"""Does every driver come after what it depends on, and is a file that is no module reported?"""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_modules import make_module

from orchestrator.artifacts.module_files import module_content, module_info, unpacked_name, with_dependencies
from orchestrator.errors import LabError


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
    found = with_dependencies(tmp_path, ["virtio_pci"])
    assert [unpacked_name(path) for path in found] == ["virtio.ko", "virtio_pci.ko"]
    assert [module_content(path)[:4] for path in found] == [b"\x7fELF"] * 2
    assert module_content(found[0]) == content


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.ko.xz", b"this was packed by nothing", "no kernel module"),
        ("x.ko.xz", lzma.compress(bytes(1000))[:-20], "it is damaged"),
        ("x.ko.xz", lzma.compress(bytes((64 << 20) + 1)), "larger than 64 MiB"),
        ("x.ko.zst", b"", "no kernel module"),
    ],
)
def test_what_is_packed_otherwise_is_no_module(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LabError, match=said):
        module_content(tmp_path / name)


def test_what_is_built_in_needs_no_file(tmp_path: Path) -> None:
    assert with_dependencies(tmp_path, ["virtio_pci"]) == []


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"no module", b"\x7fELF\x02\x01\x01" + bytes(60)])
def test_another_file_is_no_module(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.ko"
    path.write_bytes(content)
    with pytest.raises(LabError, match="no kernel module") as caught:
        with_dependencies(tmp_path, ["x"])
    assert str(path) in caught.value.what


def test_a_missing_file_is_no_module(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no kernel module"):
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
