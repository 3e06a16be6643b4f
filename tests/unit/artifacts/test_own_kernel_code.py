# SPDX-License-Identifier: GPL-2.0-only
"""Is the code of a user's kernel taken out of its bzImage where its tree has no vmlinux, and else from the tree?"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
from built_code import build_tree
from host_toolchain import HOST_TOOLCHAIN

from orchestrator.artifacts import ready_kernels as module
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import KernelSpec

SOURCE = Path(__file__).parents[1] / "probes" / "points" / "points.S"


def bzimage(elf: bytes) -> bytes:
    """An image that has a kernel packed by gzip behind its set-up code of one sector."""
    payload = gzip.compress(elf)
    setup = bytearray(1024)
    setup[0x1F1] = 1
    setup[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", setup, 0x206, 0x20F)
    struct.pack_into("<II", setup, 0x248, 0, len(payload))
    return bytes(setup) + payload


@pytest.fixture
def spec(tmp_path: Path) -> KernelSpec:
    tree = tmp_path / "tree"
    (tree / "include/config").mkdir(parents=True)
    build_tree(tree, SOURCE, 8)
    (tree / ".config").write_text("CONFIG_VIRTIO_PCI=y\nCONFIG_VIRTIO_CONSOLE=y\n")
    (tree / "include/config/kernel.release").write_text("6.1.0\n")
    (tree / "bzImage").write_bytes(bzimage((tree / "vmlinux").read_bytes()))
    return KernelSpec(name="own-tree", title="mine", arch="x86_64", tree=tree, image=tree / "bzImage", entry_offset=0)


def test_where_the_code_is(spec: KernelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "matching_toolchain", lambda context, release: HOST_TOOLCHAIN)
    assert spec.tree is not None
    context = BuildContext(Cache(tmp_path / "cache"))
    whole = ready_kernel(context, spec)
    assert whole.code_folder is None
    assert whole.code is not None
    image = (spec.tree / "vmlinux").read_bytes()
    (spec.tree / "vmlinux").unlink()
    stripped = ready_kernel(context, spec)
    assert stripped.code_folder is not None
    assert (stripped.code_folder / "vmlinux").read_bytes() == image
    assert stripped.key == whole.key
    # This one has no list of symbols inside, without which there is no code to speak of.
    assert stripped.code is None
