# SPDX-License-Identifier: GPL-2.0-only
"""The SSH keys of the lab: one of its own, kept private to the user, and a new one for every guest.

ECDSA on P-256, for which OpenSSL has assembly: an emulated CPU checks such a signature in half the time of an Ed25519
one, which OpenSSH computes in C.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from orchestrator.errors import LabError

if TYPE_CHECKING:
    from paramiko import ECDSAKey, PKey

_FILE = "client_key"


def new_private_key() -> bytes:
    """A new private key, in OpenSSH's own format, without a passphrase."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def read_private_key(text: bytes) -> ECDSAKey:
    """The key of a private key's text. Raises paramiko.SSHException, ValueError for anything else."""
    from paramiko import ECDSAKey

    return ECDSAKey.from_private_key(io.StringIO(text.decode()))


def public_line(key: PKey) -> bytes:
    """The public half, as a line of an ``authorized_keys`` file."""
    return f"{key.get_name()} {key.get_base64()} orchestrator\n".encode()


def client_key(folder: Path) -> ECDSAKey:
    """The lab's own key, in ``folder``; made at the first use. Raises LabError where it cannot be used."""
    from paramiko import SSHException

    file = folder / _FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(folder / f"{_FILE}.lock", mode=0o600):
            if not file.exists():
                _write_private(file, new_private_key())
        if file.stat().st_mode & 0o077:
            raise LabError("others may read the lab's private key", where=str(file), hint=f"chmod 600 '{file}'")
        return read_private_key(file.read_bytes())
    except OSError as error:
        raise LabError(f"the lab's private key cannot be used: {error.strerror}", where=str(file)) from None
    except (SSHException, ValueError):
        hint = f"remove it; a new one is made: rm '{file}'"
        raise LabError("this is no private ECDSA key", where=str(file), hint=hint) from None


def _write_private(file: Path, content: bytes) -> None:
    unfinished = file.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
    unfinished.replace(file)
