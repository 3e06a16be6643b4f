# SPDX-License-Identifier: GPL-2.0-only
"""The files of one guest: an overlay over its image, and what is its own, in its initramfs or for a restored one."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cpio import Entry, archive
from orchestrator.errors import HostError
from orchestrator.guest.machine import Machine, RootImage
from orchestrator.guest.overlay import make_overlay
from orchestrator.guest.ssh_keys import client_key, new_private_key, public_line, read_private_key
from orchestrator.paths import lab_dir

if TYPE_CHECKING:
    from paramiko import ECDSAKey

_SEED_BYTES = 64
_FIXED_SEED = bytes(_SEED_BYTES)
_FOLDER = "image"
_SUFFIXES = _OVERLAY, _INITRAMFS = ".overlay", ".initramfs"


@dataclass(frozen=True)
class SshKeys:
    """The guest's host key, and the client key that it accepts."""

    host: ECDSAKey
    client: ECDSAKey


@dataclass(frozen=True)
class GuestFiles:
    """The files of one guest, private to the user. ``keys`` for a guest with an sshd.

    They can be removed once QEMU has opened them. ``identity`` is what is the guest's alone, by the names of files;
    ``base`` is what the overlay is over.
    """

    initramfs: Path | None = None
    overlay: Path | None = None
    keys: SshKeys | None = None
    identity: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    base: Path | None = None

    def remove(self) -> None:
        """Remove the files, if they are still there."""
        for file in (self.initramfs, self.overlay):
            if file is not None:
                file.unlink(missing_ok=True)


def make_guest_files(machine: Machine, directory: Path, name: str) -> GuestFiles:
    """Make the files of a guest with disks in ``directory``, under names of their own: another guest may be there.

    On failure none is left. Raises HostError, LabError.
    """
    assert machine.disk_drivers is not None
    content = machine.initramfs.read_bytes() + machine.disk_drivers.read_bytes()
    with _private_files(directory, name) as private_file:
        overlay, keys = None, None
        identity: dict[str, bytes] = {}
        if machine.root is not None:
            overlay = private_file(_OVERLAY)
            make_overlay(machine.root, overlay)
            identity, keys = _identity(machine, name)
            content += _archive(machine, machine.root, identity)
        initramfs = private_file(_INITRAMFS)
        initramfs.write_bytes(content)
        return GuestFiles(initramfs, overlay, keys, identity, None if machine.root is None else machine.root.base)


def make_restored_files(machine: Machine, saved_overlay: Path, directory: Path, name: str) -> GuestFiles:
    """Make the files of a guest that is restored: as ``make_guest_files``, its overlay over the saved guest's."""
    if machine.root is None:
        return GuestFiles(identity={"seed": secrets.token_bytes(_SEED_BYTES)})
    with _private_files(directory, name) as private_file:
        overlay = private_file(_OVERLAY)
        make_overlay(replace(machine.root, base=saved_overlay, format="qcow2"), overlay)
        identity, keys = _identity(machine, name)
        return GuestFiles(None, overlay, keys, identity, saved_overlay)


def remove_leftovers(directory: Path) -> None:
    """Remove such files of guests whose process was killed before QEMU had opened them; no guest may be there."""
    for suffix in _SUFFIXES:
        for file in directory.glob(f"*{suffix}"):
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def _private_files(directory: Path, name: str) -> Iterator[Callable[[str], Path]]:
    """Makes empty files with a suffix; on failure none is left. Raises HostError."""
    made: list[Path] = []

    def private_file(suffix: str) -> Path:
        descriptor, path = tempfile.mkstemp(suffix, f"{name}.", directory)
        os.close(descriptor)
        made.append(Path(path))
        return made[-1]

    try:
        yield private_file
    except BaseException as error:
        for file in made:
            file.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise HostError(f"cannot make a guest's files in {directory}: {error.strerror}") from None
        raise


def _identity(machine: Machine, name: str) -> tuple[dict[str, bytes], SshKeys | None]:
    """What is a guest's alone, and its keys where it has an sshd."""
    identity = {
        "hostname": f"{_host_name(name)}\n".encode(),
        "machine-id": f"{secrets.token_hex(16)}\n".encode(),
        # On the exact clock two guests execute the same instructions, so their random pools begin alike.
        "seed": _FIXED_SEED if machine.timing == "instructions" else secrets.token_bytes(_SEED_BYTES),
    }
    if machine.channel != "ssh":
        return identity, None
    host, client = new_private_key(), client_key(lab_dir() / "ssh")
    identity |= {"host_key": host, "authorized_keys": public_line(client)}
    return identity, SshKeys(read_private_key(host), client)


def _host_name(name: str) -> str:
    """A guest's name as the name of a host: letters, digits and dashes, 63 at most."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
    return plain.strip("-")[:63].rstrip("-") or "guest"


def _archive(machine: Machine, root: RootImage, identity: dict[str, bytes]) -> bytes:
    settings = {
        "start": root.start,
        "network": "yes" if machine.channel == "ssh" else "no",
        "login": "yes" if machine.channel == "serial" else "no",
    }
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    folder = f"{_FOLDER}/identity"
    return archive(
        [
            Entry.folder(_FOLDER),
            Entry.file(f"{_FOLDER}/settings", text.encode(), 0o644),
            Entry.folder(folder),
            *(Entry.file(f"{folder}/{name}", data, 0o600) for name, data in identity.items()),
        ]
    )
