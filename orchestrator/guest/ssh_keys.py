# SPDX-License-Identifier: GPL-2.0-only
"""SSH keys: the lab's client key, private to the user, and a new host key for every guest.

ECDSA on P-256, for which OpenSSL has assembly: an emulated CPU verifies such a signature in half the time of an
Ed25519 one, which OpenSSH computes in C.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from orchestrator.errors import LabError

if TYPE_CHECKING:
    from paramiko import ECDSAKey, PKey


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


@dataclass(frozen=True)
class SshKeys:
    """The guest's host key, and the client key that it accepts."""

    host: ECDSAKey
    client: ECDSAKey
