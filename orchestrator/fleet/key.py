# SPDX-License-Identifier: GPL-2.0-only
"""The key of a fleet: its owner may run code on every machine of the fleet, including the client.

One file holds a certificate and its private key; older keys start with the certificate's authority. All processes of
a fleet have the same file, and reject peers with another: TLS 1.3, with both sides verified.
"""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import HostError, UsageError
from orchestrator.files import private
from orchestrator.paths import lab_dir
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from distributed.security import Security  # of the extra "fleet"

FILE_NAME = "fleet.key"

_LARGEST = 64 << 10

_BLOCK = re.compile(r"-----BEGIN (CERTIFICATE|PRIVATE KEY)-----\n.*?-----END \1-----", re.DOTALL)


def usual_key_file() -> Path:
    """The default path of this lab's key: ``fleet/fleet.key`` beside its results."""
    return lab_dir() / "fleet" / FILE_NAME


def made_key(file: Path) -> Path:
    """Make a private key file. Raises UsageError if the file exists."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with open(file, "xb", opener=private) as opened:
            opened.write(_new_key())
    except FileExistsError:
        hint = "machines with the old key need the new one: remove the file first, or name another one: --out FILE"
        raise UsageError("the key exists already", where=str(file), hint=hint) from None
    return file


def read_key(file: Path) -> str:
    """A key's text. Raises UsageError if there is none, HostError if others could have read it."""
    try:
        with file.open("rb") as opened:
            facts = os.fstat(opened.fileno())
            text = opened.read(_LARGEST + 1)
    except FileNotFoundError:
        raise UsageError(
            "there is no key of a fleet",
            where=str(file),
            hint=f"`{PROGRAM} fleet keys` makes one; every machine of a fleet needs the same",
        ) from None
    except OSError as error:
        raise HostError(f"the fleet's key cannot be read: {error.strerror}", where=str(file)) from None
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise HostError(
            "others than its owner may read the fleet's key",
            where=str(file),
            hint=f"chmod 600 {file}; if they may have read it, make a new one: it lets code run on your machines",
        )
    if len(text) > _LARGEST or not all(head in text for head in (b"BEGIN CERTIFICATE", b"BEGIN PRIVATE KEY")):
        raise UsageError("not a key of a fleet", where=str(file), hint=f"`{PROGRAM} fleet keys` makes one")
    return text.decode("ascii", errors="replace")


def security_of(key: str) -> Security:
    """Convert a key for Dask. Raises UsageError if a part is missing."""
    from distributed.security import Security  # of the extra "fleet"

    blocks = [(match[1], match[0] + "\n") for match in _BLOCK.finditer(key)]
    kinds = [kind for kind, _ in blocks]
    if kinds[:-1] not in (["CERTIFICATE"], ["CERTIFICATE"] * 2) or kinds[-1] != "PRIVATE KEY":
        raise UsageError("a fleet's key has a certificate and a private key", hint=f"`{PROGRAM} fleet keys` makes one")
    authority, certificate, private = (blocks[at][1] for at in (0, -2, -1))
    roles = {
        f"tls_{role}_{part}": text
        for role in ("client", "scheduler", "worker")
        for part, text in (("cert", certificate), ("key", private))
    }
    return Security(tls_ca_file=authority, require_encryption=True, tls_min_version=0x0304, **roles)


def _new_key() -> bytes:
    """A self-signed certificate with its private key, like those of Dask's ``Security.temporary``."""
    # Only this makes a key; the rest of the lab starts faster without the library.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "probe lab fleet")])
    begin = datetime.now(UTC) - timedelta(days=1)  # allows for differing clocks
    end = begin + timedelta(days=365 * 10)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), begin, end)
    pem = serialization.Encoding.PEM
    return builder.sign(key, hashes.SHA256()).public_bytes(pem) + key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
