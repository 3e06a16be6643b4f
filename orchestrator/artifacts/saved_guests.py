# SPDX-License-Identifier: GPL-2.0-only
"""Saved guests in the cache, and failed tests' guests kept in files.

QEMU silently loads the state of a different machine (see ``guest.saved_state``), so the key covers everything that a
guest's behaviour depends on. The folder is private to the user, as memory and overlay contain keys. Restored guests
map the files, so these are only renamed into place and never rewritten. Removing a saved guest that guests run from is
safe.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO

from pydantic import TypeAdapter, ValidationError

from orchestrator.arch import QEMU
from orchestrator.artifacts import digests
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import digest, disk_usage
from orchestrator.errors import HostError, UsageError
from orchestrator.files import ScratchFolder, private
from orchestrator.guest.framed import PROTOCOL
from orchestrator.guest.guest import Guest
from orchestrator.guest.hub import Hub
from orchestrator.guest.machine import Login, Machine
from orchestrator.guest.qemu_command import MemoryFile, Wiring, qemu_command
from orchestrator.guest.saved_state import SavedGuest
from orchestrator.guest.saving_and_restoring import keep_whole_guest
from orchestrator.process import not_installed

KIND = "saved-guests"
LIMIT = 2 << 30
"""Bytes on disk of all saved guests; one has 20 to 90 MB."""

_FORMAT = 1
_POINT = "the channel is open, the clocksource final, and the symbols read"  # the state in which a guest is saved

_FIRMWARE = ("bios-256k.bin", "qboot.rom", "kvmvapic.bin", "linuxboot_dma.bin", "pvh.bin")

_FOLDERS = ("share/qemu", "share/seabios", "lib/qemu", "lib64/qemu", "lib/*/qemu")
"""Where firmware and QEMU's modules are, below QEMU's prefix."""

_MODULE_FOLDER = "QEMU_MODULE_DIR"  # QEMU first looks for modules in this environment variable's folder


def key_inputs(machine: Machine) -> dict[str, object]:
    """Everything that a machine's saved guest depends on. Raises HostError if a part of it cannot be read."""
    # What counts instructions is not part of the guest: see tests/qemu/test_profile.py.
    machine = replace(machine, counter=None, coverage=None)
    memory = MemoryFile("memory", is_saved=True)
    wiring = Wiring("monitor", "agent", "console", None, Path("initramfs"), Path("overlay"), memory)
    paths = {str(machine.kernel): "kernel", **{str(disk.file): "data" for disk in machine.data}}
    command = "\0".join(qemu_command(machine, wiring))
    for path, name in paths.items():
        command = command.replace(path, name)
    root = machine.root
    disk = None if root is None else [root.key, _digest(root.base), str(root.base.absolute()), root.format, root.start]
    return {
        "format": _FORMAT,
        "point": _POINT,
        "agent": PROTOCOL,
        "qemu": qemu_digests(),
        "arguments": command.split("\0"),
        "kernel": _digest(machine.kernel),
        "initramfs": _digest(machine.initramfs),
        "drivers": None if machine.disk_drivers is None else _digest(machine.disk_drivers),
        # The overlay contains the path of its base.
        "root": disk,
        "data": [[disk.name, disk.file.parent.name, _digest(disk.file)] for disk in machine.data],
    }


def saved_guest(context: BuildContext, machine: Machine, save: Callable[[SavedGuest], None]) -> SavedGuest:
    """The saved guest of a machine; ``save`` makes one if none is sound. Raises what ``save`` does, HostError."""
    inputs = key_inputs(machine)
    key = digest(inputs)
    stored = context.cache.find(KIND, inputs)
    damage = None if stored is None else digests.changed(stored.path)
    if stored is not None and damage is not None:
        context.warn(f"the saved guest {key} is damaged ({damage}): a new one is saved")
        context.cache.discard(stored, lambda place: digests.changed(place) is not None)

    def build(folder: Path) -> None:
        folder.chmod(0o700)
        save(SavedGuest(key, folder))

    artifact = context.cache.obtain(KIND, inputs, _label(context, machine), build)
    # Fails in a read-only cache, as it must: QEMU 7.2 opens the memory's file for writing, though it maps it privately.
    os.utime(artifact.stamp)
    if stored is None:
        # Remove the least recently used ones that are not in use, until the rest is within the limit.
        kept, room = (artifact for _, artifact in context.cache.contents(KIND) if artifact is not None), LIMIT
        for older in sorted(kept, key=lambda artifact: artifact.used, reverse=True):
            room -= disk_usage(older.path)
            if room < 0:
                context.cache.remove(older.path, older.used)
    return SavedGuest(key, artifact.path)


def discard(context: BuildContext, machine: Machine, version: tuple[int, int] | None) -> None:
    """Remove this version of a machine's saved guest, even if guests run from it, but not one saved since."""
    artifact = context.cache.find(KIND, key_inputs(machine))
    if artifact is not None:
        context.cache.discard(artifact, lambda place: SavedGuest(artifact.key, place).version == version)


def _label(context: BuildContext, machine: Machine) -> str:
    made = context.cache.complete(machine.initramfs.parent)
    kernel = machine.kernel.name if made is None else made.label.rpartition(" ")[2]
    image = "" if machine.root is None else f", {machine.root.name} ({machine.channel})"
    cpus = "" if machine.smp == 1 else f" x{machine.smp}"
    return f"{kernel} on {machine.cpu.name}{cpus}, {machine.memory_mib} MiB, {machine.timing}{image}"


@lru_cache(maxsize=1)
def qemu_digests() -> dict[str, str]:
    """Digests of QEMU's binary, and of the firmware and the emulator that it loads; the binary includes its version.

    Raises HostError if it is not installed.
    """
    path = shutil.which(QEMU)
    if path is None:
        raise not_installed(QEMU)
    program = Path(path).resolve()
    prefix = program.parent.parent
    folders = [folder for pattern in _FOLDERS for folder in sorted(prefix.glob(pattern))]
    if os.environ.get(_MODULE_FOLDER):
        folders.append(Path(os.environ[_MODULE_FOLDER]))
    # Debian's QEMU has the emulated CPU in a file of its own, the last one here.
    files = [folder / name for folder in folders for name in (*_FIRMWARE, "accel-tcg-x86_64.so")]
    return {QEMU: _digest(program)} | {str(file): _digest(file) for file in files if file.is_file()}


def _digest(file: Path) -> str:
    try:
        return digests.of_file(file)
    except OSError as error:
        raise HostError(f"{file} cannot be read: {error.strerror}") from None


# A failed test's guest in a file: memory, devices, the disk's overlay, and the description of its machine.
#
# The file is a tar archive that only the user can read: memory contains keys, and QEMU trusts the state that it loads.
# Kernel, initramfs and image stay in the cache; a digest of them and of QEMU detects changes.

_MACHINE = "machine.json"


@dataclass(frozen=True)
class _Kept:
    key: str
    machine: Machine


_kept = TypeAdapter(_Kept)


def keep_guest(guest: Guest, file: Path) -> None:
    """Write a running guest into a new file and stop it. Raises GuestError, HostError."""
    machine = replace(guest.machine, login=Login(), coverage=None)  # a password is not kept
    key = digest(key_inputs(machine))
    try:
        with ScratchFolder(".kept-", file.parent) as folder:
            saved = SavedGuest(key, folder)
            keep_whole_guest(guest, saved)
            (saved.folder / _MACHINE).write_bytes(_kept.dump_json(_Kept(key, machine)))
            unfinished = saved.folder / file.name
            with open(unfinished, "xb", opener=private) as opened, tarfile.open(fileobj=opened, mode="w") as archive:
                for part in _parts(saved, machine):
                    archive.add(part, part.name)
            unfinished.replace(file)
    except OSError as error:
        raise HostError(f"the guest cannot be kept: {error.strerror}", where=str(file)) from None


@contextlib.contextmanager
def kept_guest(file: Path, folder: Path) -> Iterator[tuple[Machine, SavedGuest]]:
    """The machine and state of a kept guest, unpacked into the private ``folder``. Raises UsageError, HostError."""
    kept = _unpacked(file, folder)
    machine = kept.machine
    needed = [machine.kernel, machine.initramfs, *(disk.file for disk in machine.data)]
    needed += [] if machine.root is None else [machine.root.base]
    gone = next((f"the kept guest needs {part}, which is gone" for part in needed if not part.is_file()), None)
    if gone or digest(key_inputs(machine)) != kept.key:
        what = gone or "QEMU, the kernel or the image is not what it was when the guest was kept"
        raise HostError(what, where=str(file), hint="run the test again to keep its guest again")
    with contextlib.ExitStack() as ends:
        if machine.lan is not None:
            network = ends.enter_context(contextlib.closing(Hub()))
            machine = replace(machine, lan=replace(machine.lan, descriptor=network.next_lan().descriptor))
        yield machine, SavedGuest(kept.key, folder)


def _unpacked(file: Path, folder: Path) -> _Kept:
    try:
        with file.open("rb") as opened:
            facts = os.fstat(opened.fileno())
            if facts.st_uid != os.getuid() or facts.st_mode & 0o077:
                what = "a kept guest must be the user's own, with mode 0600"
                raise UsageError(what, where=str(file), hint=f"if it is yours: chmod 600 {shlex.quote(str(file))}")
            with tarfile.open(fileobj=opened, mode="r:") as archive:
                kept = _kept.validate_json(_member(archive, _MACHINE).read(1 << 20))
                for part in _parts(SavedGuest(kept.key, folder), kept.machine):
                    if part.name != _MACHINE:
                        with part.open("xb") as target:
                            shutil.copyfileobj(_member(archive, part.name), target)
    except (tarfile.TarError, KeyError, ValidationError):
        raise UsageError("not a guest that a test has kept", where=str(file)) from None
    except OSError as error:
        raise UsageError(f"the kept guest cannot be read: {error.strerror}", where=str(file)) from None
    return kept


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    member = archive.extractfile(name)
    if member is None:
        raise KeyError(name)
    return member


def _parts(saved: SavedGuest, machine: Machine) -> list[Path]:
    overlay = [] if machine.root is None else [saved.overlay]
    return [saved.folder / _MACHINE, saved.state, *overlay]
