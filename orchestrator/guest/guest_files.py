# SPDX-License-Identifier: GPL-2.0-only
"""The files of one guest: its overlay, its initramfs archive, and its keys."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from orchestrator.cpio_archive import Entry, archive
from orchestrator.errors import HostError
from orchestrator.guest.machine import Machine, RootImage
from orchestrator.guest.overlay import make_overlay
from orchestrator.guest.qemu_command import MemoryFile
from orchestrator.guest.ssh_keys import SshKeys, client_key, new_private_key, public_line, read_private_key
from orchestrator.paths import lab_dir
from orchestrator.process import run

_SEED_BYTES = 64
_IMAGE_FOLDER = "image"
_SUFFIXES = _OVERLAY, _INITRAMFS = ".overlay", ".initramfs"


@dataclass(frozen=True)
class GuestFiles:
    """The files of one guest, private to the user; ``keys`` if it has an sshd.

    They can be removed once QEMU has opened them. ``identity`` is the content of the guest's identity, by file name;
    ``base`` is the base of the overlay.
    """

    initramfs: Path | None = None
    overlay: Path | None = None
    keys: SshKeys | None = None
    identity: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    base: Path | None = None

    def remove(self) -> None:
        for file in (self.initramfs, self.overlay):
            if file is not None:
                file.unlink(missing_ok=True)


def make_guest_files(machine: Machine, directory: Path, name: str) -> GuestFiles:
    """Make the files of a guest with disks in ``directory``, under unique names: other guests may use it.

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
    """Make the files of a restored guest: like ``make_guest_files``, but the overlay is over the saved guest's."""
    if machine.root is None:
        return GuestFiles(identity={"seed": secrets.token_bytes(_SEED_BYTES)})
    with _private_files(directory, name) as private_file:
        overlay = private_file(_OVERLAY)
        make_overlay(replace(machine.root, base=saved_overlay, format="qcow2"), overlay)
        identity, keys = _identity(machine, name)
        return GuestFiles(None, overlay, keys, identity, saved_overlay)


def remove_leftovers(directory: Path) -> None:
    """Remove the files of guests whose process was killed before QEMU opened them; no guest may be starting there."""
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
    """The guest's identity by file name, and its keys if it has an sshd."""
    host_name = re.sub(r"[^A-Za-z0-9]", "-", name).strip("-")[:63].rstrip("-") or "guest"
    identity = {
        "hostname": f"{host_name}\n".encode(),
        "machine-id": f"{secrets.token_hex(16)}\n".encode(),
        # On the exact clock two guests execute the same instructions, so their random pools start equal.
        "seed": bytes(_SEED_BYTES) if machine.timing == "instructions" else secrets.token_bytes(_SEED_BYTES),
    }
    if machine.channel != "ssh":
        return identity, None
    host, client = new_private_key(), client_key(lab_dir() / "ssh")
    identity |= {"host_key": host, "authorized_keys": public_line(client)}
    return identity, SshKeys(read_private_key(host), client)


def _archive(machine: Machine, root: RootImage, identity: dict[str, bytes]) -> bytes:
    settings = {
        "start": root.start,
        "network": "yes" if machine.channel == "ssh" else "no",
        "login": "yes" if machine.channel == "serial" else "no",
    }
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    folder = f"{_IMAGE_FOLDER}/identity"
    return archive(
        [
            Entry.folder(_IMAGE_FOLDER),
            Entry.file(f"{_IMAGE_FOLDER}/settings", text.encode(), 0o644),
            Entry.folder(folder),
            *(Entry.file(f"{folder}/{name}", data, 0o600) for name, data in identity.items()),
        ]
    )


_COPY_LIMIT = 600.0


class SharedMemory:
    """Memory of ``mib`` MiB that a guest shares with the lab: a file without a name, closed by the context."""

    def __init__(self, mib: int) -> None:
        self.descriptor = os.memfd_create("guest-memory")
        os.ftruncate(self.descriptor, mib << 20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self.descriptor)

    @property
    def file(self) -> MemoryFile:
        return MemoryFile(f"/proc/self/fd/{self.descriptor}", is_saved=False)

    def write(self, target: Path) -> None:
        """Write the memory into a new private sparse file, without the many pages that the guest has only cleared.

        Raises OSError, HostError.
        """
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        copy = ["cp", "--sparse=always", f"/proc/self/fd/{self.descriptor}", str(target)]
        copied = run(copy, time_limit=_COPY_LIMIT, pass_fds=[self.descriptor])
        copied.or_raise(HostError, "the guest's memory cannot be written")
