# SPDX-License-Identifier: GPL-2.0-only
"""Are a kernel's own modules on the disk for modprobe, those alone, and is it said what is missing for that?"""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import pytest
from host_toolchain import a_kernel

from orchestrator.artifacts import modules_disk as packing
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.modules_disk import are_as_packed, kernel_modules
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.unattended_initramfs import unattended_scripts, write_work
from orchestrator.cpio_archive import Entry, archive
from orchestrator.errors import BuildError, HostError, UsageError
from orchestrator.guest.machine import DataDisk
from orchestrator.host_packages import load_requirements

PACKING = pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="needs what images/image-packages.txt lists")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A build tree with two modules that it has built, one that it has not, and one outside of it."""
    tree = tmp_path / "tree"
    (tree / "lib").mkdir(parents=True)
    (tree / "lib/one.ko").write_bytes(b"one")
    (tree / "two.ko").write_bytes(b"two")
    (tmp_path / "outside.ko").write_bytes(b"outside")
    (tree / "modules.order").write_text("lib/one.ko\ntwo.o\nabsent.ko\n../outside.ko\n")
    return tree


def kernel_of(tree: Path) -> Kernel:
    return a_kernel("lab-i386-up", folder=tree, release="6.1.0-lab", modules=tree / "no-drivers")


def depmod_that(folder: Path, script: str) -> str:
    program = folder / "depmod"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


@PACKING
def test_the_modules_that_a_tree_has_built_are_on_the_disk(
    tmp_path: Path, context: BuildContext, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = '[ "$1 $3" = "-b 6.1.0-lab" ] && cd "$2/lib/modules/$3" && find kernel -type f | sort >modules.dep'
    monkeypatch.setattr(packing, "_DEPMOD", depmod_that(tmp_path, script))
    monkeypatch.setattr(packing, "check_installed", lambda name, what: None)
    disk = kernel_modules(context, kernel_of(tree))
    assert [file.name for file in disk.parent.iterdir() if not file.name.startswith(".")].count(disk.name) == 1
    assert not (disk.parent / "base").exists()
    out = tmp_path / "out"
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-d", out, disk], check=True)
    assert (out / "modules.dep").read_text() == "kernel/lib/one.ko\nkernel/two.ko\n"
    assert (out / "kernel/two.ko").read_bytes() == b"two"
    assert (out / "modules.order").exists()
    assert kernel_modules(context, kernel_of(tree)) == disk
    disks = [DataDisk("modules", disk), DataDisk("users", tmp_path / "data.squashfs")]
    assert are_as_packed(context.cache, disks, kernel_of(tree))
    (tree / "two.ko").write_bytes(b"built anew")
    assert not are_as_packed(context.cache, disks, kernel_of(tree))
    assert are_as_packed(context.cache, disks[1:], kernel_of(tree))
    assert kernel_modules(context, kernel_of(tree)) != disk


def test_a_module_that_changes_while_it_is_packed_is_not_kept_as_the_old_one(
    context: BuildContext, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "check_installed", lambda name, what: (tree / "two.ko").write_bytes(b"built anew"))
    with pytest.raises(BuildError, match=r"module two\.ko has changed while the modules were packed"):
        kernel_modules(context, kernel_of(tree))
    assert not list(context.cache.artifacts())


@pytest.mark.parametrize("order", [None, "", "absent.ko\n"])
def test_a_kernel_without_modules_is_refused(context: BuildContext, tree: Path, order: str | None) -> None:
    (tree / "modules.order").unlink()
    if order is not None:
        (tree / "modules.order").write_text(order)
    with pytest.raises(UsageError, match="'lab-i386-up' has no modules: everything is built in") as refused:
        kernel_modules(context, kernel_of(tree))
    assert "--kernel-modules" in refused.value.hint


def test_programs_missing_on_the_host_are_named(
    context: BuildContext, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (need,) = load_requirements("module-packages.txt")
    assert (need.need, need.package) == (packing._DEPMOD, "kmod")

    def lacking(name: str, what: str) -> None:
        raise HostError(f"{what} needs {name}")

    monkeypatch.setattr(packing, "check_installed", lacking)
    with pytest.raises(HostError, match="a guest with its kernel's own modules needs image-packages"):
        kernel_modules(context, kernel_of(tree))


# Does a guest find its work where the work looks, and no setting become anything but a value?

FIRST = archive([Entry.folder("bin")])


def test_the_work_comes_behind_the_initramfs(tmp_path: Path) -> None:
    initramfs = tmp_path / "initramfs"
    initramfs.write_bytes(FIRST)
    (tmp_path / "sites").write_bytes(b"\1\2\3")
    entries = [
        Entry.folder("sealed"),
        Entry.file("sealed/work.sh", (unattended_scripts() / "kpcache_driver.sh").read_bytes()),
        Entry.file("sealed/steps.sh", (unattended_scripts() / "steps.sh").read_bytes()),
        Entry.file("sealed/settings", b"probes=5\nseed=7\n"),
        Entry.file("sealed/sites", b"\1\2\3"),
    ]
    expected = FIRST + archive(entries)
    settings = {"probes": 5, "seed": 7}
    for sites in (b"\1\2\3", tmp_path / "sites"):
        whole = io.BytesIO()
        write_work(whole, initramfs, "kpcache_driver", settings, {"sites": sites})
        assert whole.getvalue() == expected


def test_a_setting_is_a_value_whatever_is_in_it(tmp_path: Path) -> None:
    initramfs = tmp_path / "initramfs"
    initramfs.write_bytes(FIRST)
    values: dict[str, int | str] = {"report": "/sys/a b", "stop": "$(touch broken); 'x'\n", "module": "", "warm": 3}
    whole = io.BytesIO()
    write_work(whole, initramfs, "command", values, {})
    text = whole.getvalue().partition(b"sealed/settings\0")[2].lstrip(b"\0").partition(b"070701")[0].rstrip(b"\0")
    (tmp_path / "settings").write_bytes(text)
    printed = 'printf "%s\\0" "$report" "$stop" "$module" "$warm"'
    argv = ["sh", "-c", f". ./settings; {printed}"]
    found = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True).stdout
    assert found.decode().split("\0")[:-1] == [str(value) for value in values.values()]
    assert not (tmp_path / "broken").exists()
