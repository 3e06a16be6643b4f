# SPDX-License-Identifier: GPL-2.0-only
"""A failed test's guest in a file: memory, devices, the disk's overlay, and the description of its machine.

The file is a tar archive that only the user can read: memory contains keys, and QEMU trusts the state that it loads.
Kernel, initramfs and image stay in the cache; a digest of them and of QEMU detects changes.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from pydantic import TypeAdapter, ValidationError

from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.saved_guests import key_inputs
from orchestrator.errors import HostError, UsageError
from orchestrator.files import ScratchFolder, private
from orchestrator.guest.guest import Guest
from orchestrator.guest.hub import Hub
from orchestrator.guest.machine import Login, Machine
from orchestrator.guest.saved_state import SavedGuest
from orchestrator.guest.saving_and_restoring import keep_whole_guest

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
