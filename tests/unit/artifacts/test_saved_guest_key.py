# SPDX-License-Identifier: GPL-2.0-only
"""Does the key of a saved guest change with all that the guest depends on, and does the cache keep within its limit?"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.artifacts import digests, saved_guests
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache, digest
from orchestrator.artifacts.cache_entries import cache_entries
from orchestrator.artifacts.saved_guests import KIND, discard, key_inputs, saved_guest
from orchestrator.artifacts.usage import release
from orchestrator.catalog.cpus import cpu
from orchestrator.errors import HostError
from orchestrator.guest.machine import CountingPlugin, DataDisk, Machine, RootImage
from orchestrator.guest.saved_state import SavedGuest

MIB = 1 << 20
QEMU_DIGESTS = saved_guests.qemu_digests


@pytest.fixture(autouse=True)
def _qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_guests, "qemu_digests", lambda: {"qemu": "of this test"})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    files = {}
    for name in ("kernel", "initramfs", "drivers"):
        files[name] = tmp_path / name
        files[name].write_text(name)
    return Machine(cpu("pentium4"), files["kernel"], files["initramfs"], disk_drivers=files["drivers"])


def key(machine: Machine) -> str:
    return digest(key_inputs(machine))


def made(file: Path) -> Path:
    """A file of an artifact; its content is the same wherever it is."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("blocks")
    return file


def image(folder: Path, key: str = "a-key", base: str = "base.qcow2") -> RootImage:
    return RootImage("debian-i386", key, made(folder / "images" / base), "qcow2")


def data(folder: Path, name: str = "one", key: str = "key1") -> tuple[DataDisk, ...]:
    return (DataDisk(name, made(folder / key / "data")),)


CHANGES: list[Callable[[Machine, Path], Machine]] = [
    lambda machine, _: replace(machine, cpu=cpu("athlon")),
    lambda machine, _: replace(machine, smp=2),
    lambda machine, _: replace(machine, memory_mib=257),
    lambda machine, _: replace(machine, timing="tcg"),
    lambda machine, _: replace(machine, extra_parameters=("quiet",)),
    lambda machine, _: replace(machine, drivers_built_in=True),
    lambda machine, _: replace(machine, disk_drivers=None),
    lambda machine, folder: replace(machine, root=image(folder)),
    lambda machine, folder: replace(machine, root=image(folder, "another-key")),
    lambda machine, folder: replace(machine, root=image(folder, base="moved.qcow2")),
    lambda machine, folder: replace(machine, root=image(folder), channel="ssh"),
    lambda machine, folder: replace(machine, data=data(folder, "one", "key1")),
    lambda machine, folder: replace(machine, data=data(folder, "one", "key2")),
    lambda machine, folder: replace(machine, data=data(folder, "other", "key2")),
]


def test_each_change_of_a_machine_is_another_key(machine: Machine, tmp_path: Path) -> None:
    assert len({key(machine), *(key(change(machine, tmp_path)) for change in CHANGES)}) == len(CHANGES) + 1


@pytest.mark.parametrize("disk", ["images/base.qcow2", "key1/data"])
def test_a_disk_that_was_made_anew_with_other_blocks_counts(machine: Machine, tmp_path: Path, disk: str) -> None:
    with_disks = replace(machine, root=image(tmp_path), data=data(tmp_path))
    file = tmp_path / disk
    before = key(with_disks)
    digests.record(file.parent, "manifest.json")
    assert key(with_disks) == before
    file.write_text("BLOCKS")
    digests.record(file.parent, "manifest.json")
    assert key(with_disks) != before


MOVES: dict[str, Callable[[Machine, Path], Machine]] = {
    "kernel": lambda machine, file: replace(machine, kernel=file),
    "initramfs": lambda machine, file: replace(machine, initramfs=file),
    "drivers": lambda machine, file: replace(machine, disk_drivers=file),
}


@pytest.mark.parametrize("name", MOVES)
def test_content_counts_and_place_does_not(machine: Machine, tmp_path: Path, name: str) -> None:
    before, elsewhere = key(machine), tmp_path / "elsewhere"
    elsewhere.write_text(name)
    assert key(MOVES[name](machine, elsewhere)) == before
    (tmp_path / name).write_text("another content")
    assert key(machine) != before


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a QEMU of this test's own is installed as Debian's is, with its emulator beside it."""
    folder = tmp_path / "usr"
    for name in QEMU_FILES:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"))
    return folder


QEMU_FILES = ("bin/qemu-system-x86_64", "share/qemu/qboot.rom", "lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so")


@pytest.mark.parametrize("name", QEMU_FILES)
def test_a_file_of_qemu_s_own_counts(prefix: Path, name: str) -> None:
    before = QEMU_DIGESTS()
    QEMU_DIGESTS.cache_clear()
    (prefix / name).write_text("another build")
    assert QEMU_DIGESTS() != before
    QEMU_DIGESTS.cache_clear()


@pytest.mark.parametrize("part", ["qemu_digests", "PROTOCOL", "_FORMAT", "_POINT"])
def test_qemu_agent_and_format_count(machine: Machine, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    before = key(machine)
    monkeypatch.setattr(saved_guests, part, (lambda: {"qemu": "another"}) if part == "qemu_digests" else 99)
    assert key(machine) != before


def test_a_kernel_that_cannot_be_read_is_an_error(machine: Machine) -> None:
    machine.kernel.unlink()
    with pytest.raises(HostError, match="kernel cannot be read: No such file"):
        key(machine)


def writer(size: int) -> Callable[[SavedGuest], None]:
    def save(saved: SavedGuest) -> None:
        saved.memory_file.write_bytes(os.urandom(size))

    return save


def test_least_recently_used_guests_make_room(
    context: BuildContext, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(saved_guests, "LIMIT", 5 * MIB // 2)
    machines = [replace(machine, memory_mib=size) for size in (64, 65, 66)]
    for age, each in zip((300, 100, 200), machines, strict=True):
        # Each by another process: what one uses is not removed.
        cache = Cache(tmp_path / "cache")
        saved = saved_guest(replace(context, cache=cache), each, writer(MIB))
        stamp = saved.folder / "manifest.json"
        os.utime(stamp, (stamp.stat().st_mtime - age,) * 2)
        release(stamp)
    saved_guest(context, replace(machine, memory_mib=67), writer(MIB))
    left = {place.name for place, _ in context.cache.contents(KIND)}
    assert left == {key(machines[1]), key(replace(machine, memory_mib=67))}


def test_a_damaged_one_is_replaced_and_said(context: BuildContext, machine: Machine, warned: list[str]) -> None:
    saved = saved_guest(context, machine, writer(10))
    saved.memory_file.write_bytes(b"x")
    again = saved_guest(context, machine, writer(20))
    assert again == saved
    assert again.memory_file.stat().st_size == 20
    assert warned == [f"the saved guest {saved.key} is damaged (memory: has 1 bytes instead of 10): a new one is saved"]


def test_a_damaged_one_that_another_process_has_replaced_stays(
    context: BuildContext, machine: Machine, tmp_path: Path
) -> None:
    saved = saved_guest(context, machine, writer(10))
    saved.memory_file.write_bytes(b"x")
    saves = []

    def replaced(text: str) -> None:
        """What another process does between our look at the damage and our lock."""
        other_context = BuildContext(Cache(tmp_path / "cache"), warn=lambda _: None)
        saved_guest(other_context, machine, writer(20))

    def save(guest: SavedGuest) -> None:
        saves.append(guest)
        writer(30)(guest)

    assert saved_guest(replace(context, warn=replaced), machine, save) == saved
    assert not saves
    assert saved.memory_file.stat().st_size == 20


def test_files_of_artifacts_are_not_read_again(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(machine)
    digests.record(tmp_path, "manifest.json")
    digests._content_digest.cache_clear()
    with monkeypatch.context() as patch:
        patch.delattr(hashlib, "file_digest")
        assert key(machine) == before
    machine.kernel.write_text("KERNEL")  # as long as before
    assert key(machine) != before


def test_it_is_private_shown_and_removed(context: BuildContext, machine: Machine) -> None:
    saved = saved_guest(context, machine, writer(10))
    assert saved.folder.stat().st_mode & 0o777 == 0o700
    (entry,) = (cache_entry for cache_entry in cache_entries(context.cache) if cache_entry.kind == KIND)
    assert entry.label == "kernel on pentium4, 256 MiB, instructions"
    assert entry.in_use()
    discard(context, machine, saved.version)
    assert not saved.folder.exists()
    discard(context, machine, saved.version)


def test_guest_saved_again_meanwhile_is_not_removed(context: BuildContext, machine: Machine) -> None:
    def save(guest: SavedGuest) -> None:
        writer(10)(guest)
        guest.state.write_bytes(b"devices")

    first = saved_guest(context, machine, save).version
    discard(context, machine, first)
    second = saved_guest(context, machine, save)
    assert first != second.version
    discard(context, machine, first)
    assert second.state.exists()
    discard(context, machine, second.version)
    assert not second.folder.exists()


def test_a_save_that_fails_leaves_nothing(context: BuildContext, machine: Machine) -> None:
    def fail(saved: SavedGuest) -> None:
        saved.memory_file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises((HostError, OSError)):
        saved_guest(context, machine, fail)
    assert list(context.cache.contents(KIND)) == []


def test_what_counts_a_guests_instructions_is_no_part_of_it(machine: Machine) -> None:
    """Real guests show that it changes nothing: tests/qemu/test_profile.py."""
    assert key_inputs(replace(machine, counter=CountingPlugin(Path("count.so")))) == key_inputs(machine)
