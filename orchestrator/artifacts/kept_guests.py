# SPDX-License-Identifier: GPL-2.0-only
"""A failed test's guest in a file: its memory, its devices, its disk's overlay, and what machine it was.

The file is an archive (tar) that belongs to the user alone: memory holds keys, and QEMU trusts the state that it loads.
Kernel, initramfs and image stay in the cache; a digest of them and of QEMU says whether they are the same still.
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
from orchestrator.guest.guest import Guest
from orchestrator.guest.hub import Hub
from orchestrator.guest.machine import Login, Machine
from orchestrator.guest.saved import SavedGuest
from orchestrator.scratch import ScratchFolder

_MACHINE = "machine.json"
_MACHINE_MAX = 1 << 20
_PRIVATE = 0o077


@dataclass(frozen=True)
class _Kept:
    """What the machine was, and the key of all that its state depends on."""

    key: str
    machine: Machine


_kept = TypeAdapter(_Kept)


def keep_guest(guest: Guest, file: Path) -> None:
    """Write a running guest into a new file, and end the guest. Raises GuestError, HostError."""
    machine = replace(guest.machine, login=Login())  # a password is not kept
    key = digest(key_inputs(machine))
    try:
        with ScratchFolder(".kept-", file.parent) as folder:
            saved = SavedGuest(key, folder)
            guest.keep(saved)
            (saved.folder / _MACHINE).write_bytes(_kept.dump_json(_Kept(key, machine)))
            unfinished = saved.folder / file.name
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as opened, tarfile.open(fileobj=opened, mode="w") as archive:
                for part in _parts(saved, machine):
                    archive.add(part, part.name)
            unfinished.replace(file)
    except OSError as error:
        raise HostError(f"the guest cannot be kept: {error.strerror}", where=str(file)) from None


@contextlib.contextmanager
def kept_guest(file: Path, folder: Path) -> Iterator[tuple[Machine, SavedGuest]]:
    """The machine of a kept guest and its state, in ``folder``, which is private; the file stays as it is.

    A guest of a network is alone on one meanwhile. Raises UsageError for a file that is none, or another user's, and
    HostError where the kernel, the image or QEMU is not what it was.
    """
    kept = _unpacked(file, folder)
    machine = kept.machine
    needed = [machine.kernel, machine.initramfs, *(disk.file for disk in machine.data)]
    needed += [] if machine.root is None else [machine.root.base]
    for part in needed:
        if not part.is_file():
            what = f"{part} is gone, which the kept guest needs"
            raise HostError(what, where=str(file), hint="run the test again, which keeps the guest anew")
    if digest(key_inputs(machine)) != kept.key:
        what = "QEMU, the kernel or the image is not what it was when the guest was kept"
        raise HostError(what, where=str(file), hint="run the test again, which keeps the guest anew")
    with contextlib.ExitStack() as ends:
        if machine.lan is not None:
            network = ends.enter_context(contextlib.closing(Hub()))
            machine = replace(machine, lan=replace(machine.lan, socket=network.next_lan().socket))
        yield machine, SavedGuest(kept.key, folder)


def _unpacked(file: Path, folder: Path) -> _Kept:
    try:
        with file.open("rb") as opened:
            facts = os.fstat(opened.fileno())
            if facts.st_uid != os.getuid() or facts.st_mode & _PRIVATE:
                what = "a kept guest has to be the user's own, with mode 0600"
                raise UsageError(what, where=str(file), hint=f"if it is yours: chmod 600 {shlex.quote(str(file))}")
            with tarfile.open(fileobj=opened, mode="r:") as archive:
                kept = _kept.validate_json(_member(archive, _MACHINE).read(_MACHINE_MAX))
                for part in _parts(SavedGuest(kept.key, folder), kept.machine):
                    if part.name != _MACHINE:
                        with part.open("xb") as target:
                            shutil.copyfileobj(_member(archive, part.name), target)
    except (tarfile.TarError, KeyError, ValidationError):
        raise UsageError("that is no guest that a test has kept", where=str(file)) from None
    except OSError as error:
        raise UsageError(f"the kept guest cannot be read: {error.strerror}", where=str(file)) from None
    return kept


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    if found is None:
        raise KeyError(name)
    return found


def _parts(saved: SavedGuest, machine: Machine) -> list[Path]:
    overlay = [] if machine.root is None else [saved.overlay]
    return [saved.folder / _MACHINE, saved.state, *overlay]
