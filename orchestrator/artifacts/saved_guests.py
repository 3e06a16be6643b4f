# SPDX-License-Identifier: GPL-2.0-only
"""Saved guests in the cache.

QEMU silently loads the state of a different machine (see ``guest.saved_state``), so the key covers everything that a
guest's behaviour depends on. The folder is private to the user, as memory and overlay contain keys. Restored guests
map the files, so these are only renamed into place and never rewritten. Removing a saved guest that guests run from is
safe.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from orchestrator.arch import QEMU
from orchestrator.artifacts import digests
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import digest, disk_usage
from orchestrator.errors import HostError
from orchestrator.guest.framed import PROTOCOL
from orchestrator.guest.machine import Machine
from orchestrator.guest.qemu_command import MemoryFile, Wiring, qemu_command
from orchestrator.guest.saved_state import SavedGuest
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
