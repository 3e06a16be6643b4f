# SPDX-License-Identifier: GPL-2.0-only
"""The files of one guest: overlay, initramfs archive, keys, and those of a saved guest."""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from filelock import FileLock

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, GuestHang, HostError, LabError
from orchestrator.files import Entry, archive, private
from orchestrator.guest.channel import complaint
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.machine import Machine, MemoryFile, RootImage
from orchestrator.guest.monitor import Monitor
from orchestrator.paths import lab_dir
from orchestrator.process import run

if TYPE_CHECKING:
    from paramiko import ECDSAKey, PKey


# The overlay: what a guest writes to its image's disk, in a qcow2 file over the image.

_OVERLAY_LIMIT = 60.0
_HEADER = struct.Struct(">4sIQI52xQ")
"""Magic, version, offset and length of the base's name, and (version 3) the incompatible features."""
_EXTERNAL_DATA = 1 << 2


def make_overlay(root: RootImage, file: Path) -> None:
    """Make an overlay file: reads come from the image, writes go to the file. Raises HostError."""
    _qemu_img("create", root, file, f"cannot make an overlay over the image {root.name}")


def _qemu_img(command: str, root: RootImage, overlay: Path, failure: str) -> None:
    options = ["-q", "-f", "qcow2", "-F", root.format, "-b", str(root.base.absolute())]
    finished = run(["qemu-img", command, *options, str(overlay)], time_limit=_OVERLAY_LIMIT)
    if finished.status != 0:
        raise HostError(failure, detail=finished.complaint())


def check_overlay(overlay: Path, base: Path) -> None:
    """Raise GuestError if an overlay names another base: a later guest would get that file's content.

    A guest cannot write the header, but a QEMU that it has taken over could.
    """
    with overlay.open("rb") as file:
        header = file.read(_HEADER.size)
        magic, version, place, length, features = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
        file.seek(min(place, 1 << 30))
        name = file.read(min(length, 4096))
    if magic != b"QFI\xfb" or version != 3 or features & _EXTERNAL_DATA or name != str(base.absolute()).encode():
        what = "the guest's disk overlay names another file than its image"
        raise GuestError(what, where=str(overlay), hint="do not use it: the guest may have taken over QEMU")


def keep_overlay(root: RootImage, overlay: Path, base: Path, target: Path) -> None:
    """Copy a stopped guest's overlay, rebased on the image itself. Raises GuestError, HostError, OSError."""
    shutil.copyfile(overlay, target)
    check_overlay(target, base)
    # A restored guest's overlay is based on the saved guest's, which the cache may remove.
    _qemu_img("rebase", root, target, f"cannot keep what the guest has written to {root.name}")


# SSH keys: the lab's client key, private to the user, and a new host key for every guest.
#
# ECDSA on P-256, for which OpenSSL has assembly: an emulated CPU verifies such a signature in half the time of an
# Ed25519 one, which OpenSSH computes in C.

_FILE = "client_key"


def new_private_key() -> bytes:
    """A new private key in OpenSSH's format, without a passphrase."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def read_private_key(text: bytes) -> ECDSAKey:
    """The key in a private key's text. Raises paramiko.SSHException, ValueError for anything else."""
    from paramiko import ECDSAKey

    return ECDSAKey.from_private_key(io.StringIO(text.decode()))


def public_line(key: PKey) -> bytes:
    """The public key as a line of an ``authorized_keys`` file."""
    return f"{key.get_name()} {key.get_base64()} orchestrator\n".encode()


def client_key(folder: Path) -> ECDSAKey:
    """The lab's client key in ``folder``, made on first use. Raises LabError if it cannot be used."""
    from paramiko import SSHException

    file = folder / _FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(folder / f"{_FILE}.lock", mode=0o600):
            if not file.exists():
                unfinished = file.with_suffix(".new")
                unfinished.unlink(missing_ok=True)
                unfinished.touch(0o600, exist_ok=False)
                unfinished.write_bytes(new_private_key())
                unfinished.replace(file)
        if file.stat().st_mode & 0o077:
            raise LabError("others may read the lab's private key", where=str(file), hint=f"chmod 600 '{file}'")
        return read_private_key(file.read_bytes())
    except OSError as error:
        raise LabError(f"the lab's private key cannot be used: {error.strerror}", where=str(file)) from None
    except (SSHException, ValueError):
        hint = f"remove it; a new one is made: rm '{file}'"
        raise LabError("not a private ECDSA key", where=str(file), hint=hint) from None


_SEED_BYTES = 64
_IMAGE_FOLDER = "image"
_SUFFIXES = _OVERLAY, _INITRAMFS = ".overlay", ".initramfs"


@dataclass(frozen=True)
class SshKeys:
    """The guest's host key, and the client key that it accepts."""

    host: ECDSAKey
    client: ECDSAKey


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


# A saved guest: its memory, the state of its devices, its disk's overlay, and its console output.
#
# The state excludes memory (capability x-ignore-shared): a restored guest maps the file privately, so it reads a page
# on first access, and never writes to the file. QEMU compares hardly anything of a machine with the state that it
# loads: a state from another clock, CPU or kernel loads silently. So a saved guest belongs to one machine (see
# ``artifacts.saved_guests``), and callers that restore it must verify the result.

_BANDWIDTH = 1 << 40
"""Bytes a second; QEMU's default limit is 128 MiB."""

_STATE_LIMIT = 60.0
"""Host seconds to save or load the devices' state, half a megabyte."""

_POLL_INTERVAL = 0.002


@dataclass(frozen=True)
class SavedGuest:
    """The folder of a saved guest, private to the user, as it contains keys; ``key`` identifies the machine."""

    key: str
    folder: Path

    @property
    def memory(self) -> MemoryFile:
        """Its memory, which QEMU opens for writing even to map it privately."""
        return MemoryFile(str(self.memory_file), is_saved=True)

    @property
    def memory_file(self) -> Path:
        return self.folder / "memory"

    @property
    def state(self) -> Path:
        return self.folder / "devices"

    @property
    def version(self) -> tuple[int, int] | None:
        """Changes when another process saves the same guest anew; None if there is none."""
        try:
            facts = self.state.stat()
        except FileNotFoundError:
            return None
        return facts.st_ino, facts.st_mtime_ns

    @property
    def console(self) -> Path:
        return self.folder / "console"

    @property
    def overlay(self) -> Path:
        """What the guest had written to its image's disk; absent without an image."""
        return self.folder / "overlay"


def save_state(monitor: Monitor, target: Path, *, has_memory: bool) -> None:
    """Stop a guest and write its devices' state, with ``has_memory`` also its memory.

    Its disks are then on the host. Raises GuestError, OSError.
    """
    monitor.command("stop")
    _prepare(monitor, has_memory=has_memory)
    with open(target, "xb", opener=private) as file, monitor.migration_file(file.fileno()) as uri:
        monitor.command("migrate", uri=uri)
        _wait_for_migration(monitor)


def load_state(monitor: Monitor, source: Path, *, has_memory: bool) -> None:
    """Load a written state into a machine that waits for it; its CPUs stay stopped. Raises GuestError."""
    _prepare(monitor, has_memory=has_memory)
    try:
        with source.open("rb") as file, monitor.migration_file(file.fileno()) as uri:
            monitor.command("migrate-incoming", uri=uri)
            _wait_for_migration(monitor)
    except OSError as error:
        raise GuestError(f"the saved guest cannot be read: {error.strerror}", where=str(source)) from None


def keep_files(saved: SavedGuest, memory: SharedMemory, overlay: Path | None, console: Path) -> None:
    """Write a stopped guest's files besides its devices' state. Raises OSError."""
    memory.write(saved.memory_file)
    for source, target in ((overlay, saved.overlay), (console, saved.console)):
        if source is not None:
            shutil.copyfile(source, target)
            target.chmod(0o400)
    saved.state.chmod(0o400)


def begin_console(saved: SavedGuest, log: Path) -> None:
    """Start a restored guest's log with the saved guest's console output. Raises HostError."""
    try:
        log.unlink(missing_ok=True)
        shutil.copyfile(saved.console, log)
    except OSError as error:
        raise HostError(f"the console's log cannot be written: {error.strerror}", where=str(log)) from None


def _prepare(monitor: Monitor, *, has_memory: bool) -> None:
    capability = {"capability": "x-ignore-shared", "state": not has_memory}
    monitor.command("migrate-set-capabilities", capabilities=[capability])
    monitor.command("migrate-set-parameters", **{"max-bandwidth": _BANDWIDTH})


def _wait_for_migration(monitor: Monitor) -> None:
    deadline = Deadline(_STATE_LIMIT)
    while True:
        answer = monitor.command("query-migrate")
        status = answer.get("status") if isinstance(answer, dict) else None
        if status == "completed":
            return
        if status in ("failed", "cancelled"):
            raise GuestError("QEMU cannot save or load the state of the guest's devices")
        if not deadline.left():
            raise GuestHang(f"QEMU did not save or load the guest's devices within {_STATE_LIMIT:g} s")
        time.sleep(_POLL_INTERVAL)


# The new identity of a restored guest: random pool and time; in an image also host name, machine-id and keys.
#
# A guest of the initramfs on the exact clock gets none of this: it must equal all others, as booted ones do.

_IDENTITY_LIMIT = 30.0
_IMAGES_FOLDER, _IDENTITY_FOLDER = "/run/orchestrator/identity", "/root"


def reidentify(agent: FramedChannel, machine: Machine, identity: Mapping[str, bytes]) -> None:
    """Write a guest's ``identity`` into it, by file name, and set its clock. Raises GuestError."""
    exact = machine.timing == "instructions"
    # On the exact clock all guests start with equal pools, in 2005.
    files = {name: content for name, content in identity.items() if not (exact and name == "seed")}
    if not files:
        return
    folder = _IDENTITY_FOLDER if machine.root is None else _IMAGES_FOLDER
    for name, content in files.items():
        agent.put(content, f"{folder}/{name}", mode=0o600, time_limit=_IDENTITY_LIMIT)
    now = () if exact else (str(int(time.time())),)
    result = agent.run(["renew-guest", folder, *now], time_limit=_IDENTITY_LIMIT)
    if result.status != 0:
        raise GuestError(f"the restored guest did not get an identity of its own: {complaint(result.stderr)}")
