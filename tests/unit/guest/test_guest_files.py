# SPDX-License-Identifier: GPL-2.0-only
"""Has each guest with disks an overlay, a name and keys of its own, private to the user and removed with it?"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st
from namespaces import OWN_MOUNTS, fork_with_mount

from orchestrator.catalog.cpus import cpu
from orchestrator.errors import HostError, LabError
from orchestrator.guest.guest_files import GuestFiles, SharedMemory, make_guest_files
from orchestrator.guest.machine import Machine, RootImage
from orchestrator.guest.ssh_keys import client_key, new_private_key, public_line, read_private_key

NEEDS_QEMU_IMG = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="needs qemu-img")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    base = tmp_path / "a base, of all.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, "1G"], check=True)
    base.chmod(0o444)
    for name in ("initramfs", "drivers"):
        (tmp_path / name).write_text(name)
    root = RootImage("debian-i386", "key", base, "qcow2")
    return Machine(
        cpu("pentium4"),
        tmp_path / "kernel",
        tmp_path / "initramfs",
        timing="tcg",
        root=root,
        disk_drivers=tmp_path / "drivers",
        channel="ssh",
    )


def files_of(initramfs: Path) -> dict[str, bytes]:
    """The files of the last archive, by name, as cpio's newc format has them."""
    data = initramfs.read_bytes()
    at, found = data.index(b"070701"), dict[str, bytes]()
    while True:
        size, length = (int(data[at + 6 + 8 * field :][:8], 16) for field in (6, 11))
        name = data[at + 110 :][: length - 1].decode()
        start = (at + 110 + length + 3 - data.index(b"070701")) // 4 * 4 + data.index(b"070701")
        if name == "TRAILER!!!":
            return found
        found[name] = data[start : start + size]
        at = (start + size + 3 - data.index(b"070701")) // 4 * 4 + data.index(b"070701")


def initramfs_of(guest_files: GuestFiles) -> Path:
    """The initramfs of a guest that boots."""
    assert guest_files.initramfs is not None
    return guest_files.initramfs


@NEEDS_QEMU_IMG
def test_two_guests_of_one_image_share_nothing_but_its_base(machine: Machine, tmp_path: Path) -> None:
    assert machine.root is not None
    before = machine.root.base.read_bytes()
    files, other_files = (make_guest_files(machine, tmp_path, name) for name in ("guest 1", "guest2.x"))
    for guest_files in (files, other_files):
        assert guest_files.overlay is not None
        for file in (initramfs_of(guest_files), guest_files.overlay):
            assert file.stat().st_mode & 0o777 == 0o600
        report = json.loads(
            subprocess.run(
                ["qemu-img", "info", "--output=json", guest_files.overlay], check=True, capture_output=True
            ).stdout
        )
        assert report["virtual-size"] == 1 << 30
        assert (report["full-backing-filename"], report["backing-filename-format"]) == (str(machine.root.base), "qcow2")
        assert initramfs_of(guest_files).read_bytes().startswith(b"initramfsdrivers")
    subprocess.run(["qemu-io", "-c", "write -P 7 0 64k", str(files.overlay)], check=True, capture_output=True)
    assert machine.root.base.read_bytes() == before
    assert files.keys is not None
    assert other_files.keys is not None
    assert files.keys.host != other_files.keys.host
    assert files.keys.client == other_files.keys.client
    mine, its = files_of(initramfs_of(files)), files_of(initramfs_of(other_files))
    assert (mine["image/identity/hostname"], its["image/identity/hostname"]) == (b"guest-1\n", b"guest2-x\n")
    for name in ("machine-id", "seed", "host_key"):
        assert mine[f"image/identity/{name}"] != its[f"image/identity/{name}"]
    assert mine["image/identity/authorized_keys"] == public_line(files.keys.client)
    assert read_private_key(mine["image/identity/host_key"]) == files.keys.host
    assert mine["image/settings"] == b"start=small\nnetwork=yes\nlogin=no\n"
    files.remove()
    other_files.remove()
    assert not list(tmp_path.glob("guest*"))


@NEEDS_QEMU_IMG
def test_on_the_exact_clock_the_random_pool_begins_alike(machine: Machine, tmp_path: Path) -> None:
    exact = replace(machine, timing="instructions", channel="serial")
    seeds = {
        files_of(initramfs_of(make_guest_files(exact, tmp_path, name)))["image/identity/seed"]
        for name in ("one", "other")
    }
    assert len(seeds) == 1
    brought = files_of(initramfs_of(make_guest_files(exact, tmp_path, "one")))
    assert brought["image/settings"] == b"start=small\nnetwork=no\nlogin=yes\n"
    assert not {"image/identity/host_key", "image/identity/authorized_keys"} & set(brought)


@NEEDS_QEMU_IMG
def test_an_image_that_is_not_there(machine: Machine, tmp_path: Path) -> None:
    assert machine.root is not None
    gone = replace(machine, root=replace(machine.root, base=tmp_path / "none"))
    with pytest.raises(HostError, match="cannot make an overlay over the image debian-i386"):
        make_guest_files(gone, tmp_path, "guest")
    assert not list(tmp_path.glob("guest*"))


@NEEDS_QEMU_IMG
def test_a_failed_build_leaves_nothing(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "lab" / "ssh").mkdir(parents=True)
    (tmp_path / "lab" / "ssh" / "client_key").write_text("no key\n")
    (tmp_path / "lab" / "ssh" / "client_key").chmod(0o600)
    with pytest.raises(LabError, match="not a private"):
        make_guest_files(machine, tmp_path, "guest")
    assert not list(tmp_path.glob("guest*"))


@NEEDS_QEMU_IMG
def test_two_guests_of_one_name_in_one_folder_have_files_of_their_own(machine: Machine, tmp_path: Path) -> None:
    files, other_files = (make_guest_files(machine, tmp_path, "guest") for _ in range(2))
    assert len({files.initramfs, files.overlay, other_files.initramfs, other_files.overlay}) == 4
    kept = initramfs_of(files).read_bytes()
    other_files.remove()
    assert initramfs_of(files).read_bytes() == kept


@NEEDS_QEMU_IMG
def test_a_folder_with_an_odd_name_is_no_protocol(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a:b").mkdir()
    monkeypatch.chdir(tmp_path)
    overlay = make_guest_files(machine, Path("a:b"), "guest").overlay
    assert overlay is not None
    assert overlay.parent.samefile(tmp_path / "a:b")


def test_the_lab_s_own_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "lab" / "ssh"
    first = client_key(folder)
    assert client_key(folder) == first
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "client_key").stat().st_mode & 0o777 == 0o600
    assert paramiko.ECDSAKey.from_private_key(io.StringIO((folder / "client_key").read_text())) == first
    assert read_private_key(new_private_key()) != first


def test_a_key_that_others_may_read_or_that_is_none_is_not_used(tmp_path: Path) -> None:
    client_key(tmp_path)
    file = tmp_path / "client_key"
    file.chmod(0o640)
    with pytest.raises(LabError, match="others may read the lab's private key"):
        client_key(tmp_path)
    file.chmod(0o600)
    file.write_text("no key\n")
    with pytest.raises(LabError, match="not a private ECDSA key"):
        client_key(tmp_path)
    assert file.read_text() == "no key\n"


# Is a guest's memory written as it is, without what it has not touched?

PAGE = 4096
MIB = 4
PIECES = st.lists(
    st.tuples(st.integers(0, MIB * 256 - 4), st.binary(min_size=1, max_size=2 * PAGE + 7)), min_size=0, max_size=6
)


@given(PIECES)
def test_it_is_written_as_it_is(tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, bytes]]) -> None:
    target = tmp_path_factory.mktemp("memory") / "file"
    with SharedMemory(MIB) as memory:
        for page, content in pieces:
            os.pwrite(memory.descriptor, content, page * PAGE)
        memory.write(target)
        assert target.read_bytes() == os.pread(memory.descriptor, MIB << 20, 0)


def test_pages_without_content_take_no_room(tmp_path: Path) -> None:
    with SharedMemory(64) as memory:
        os.pwrite(memory.descriptor, bytes(16 << 20), 0)
        os.pwrite(memory.descriptor, b"content", 20 << 20)
        memory.write(tmp_path / "file")
    facts = (tmp_path / "file").stat()
    assert (facts.st_size, facts.st_mode & 0o777) == (64 << 20, 0o600)
    assert facts.st_blocks * 512 <= 1 << 16


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with SharedMemory(1) as memory, pytest.raises(FileExistsError):
        memory.write(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def write_too_much(folder: str) -> None:
    with SharedMemory(8) as memory:
        os.pwrite(memory.descriptor, b"x" * (8 << 20), 0)
        memory.write(Path(folder) / "file")


@OWN_MOUNTS
def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    mount = ("tmpfs", "size=1m", "tmpfs", tmp_path)
    assert "No space left on device" in fork_with_mount(mount, write_too_much, tmp_path)
