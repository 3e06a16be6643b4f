# SPDX-License-Identifier: GPL-2.0-only
"""The key of a fleet: who has it may run code on every machine of it, the client's included.

One file holds a certificate authority's certificate, one certificate that it has signed, and that one's private key.
All of a fleet's processes have the same file, and talk to nobody who has another: TLS 1.3, both sides checked. The
authority's own key is thrown away, so that no further certificate of it can exist.
"""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchestrator.errors import HostError, UsageError
from orchestrator.paths import lab_dir
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from distributed.security import Security

FILE_NAME = "fleet.key"
_YEARS = 10
_LARGEST = 64 << 10
_KEY_CERT_SIGN = 5
"""The place of keyCertSign among the nine uses of a key (RFC 5280, 4.2.1.3)."""

_BLOCK = re.compile(r"-----BEGIN (CERTIFICATE|PRIVATE KEY)-----\n.*?-----END \1-----", re.DOTALL)


def usual_key_file() -> Path:
    """Where this lab's key is: ``fleet/fleet.key`` beside its results."""
    return lab_dir() / "fleet" / FILE_NAME


def made_key(file: Path) -> Path:
    """Make a key, for its owner only, where there is none. Raises UsageError where the file is there."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        hint = "a new one ends the old one's fleet: remove the file first, or name another one: --out FILE"
        raise UsageError("there is a key already", where=str(file), hint=hint) from None
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(_new_key())
    return file


def read_key(file: Path) -> str:
    """A key's text. Raises UsageError where there is none, and HostError where others could have read it."""
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
        raise UsageError("this is no key of a fleet", where=str(file), hint=f"`{PROGRAM} fleet keys` makes one")
    return text.decode("ascii", errors="replace")


def security_of(key: str) -> Security:
    """What Dask's processes take a key as. Raises UsageError where a part is missing."""
    from distributed.security import Security

    blocks = [(found[1], found[0] + "\n") for found in _BLOCK.finditer(key)]
    if [kind for kind, _ in blocks] != ["CERTIFICATE", "CERTIFICATE", "PRIVATE KEY"]:
        raise UsageError(
            "a fleet's key has two certificates and a private key", hint=f"`{PROGRAM} fleet keys` makes one"
        )
    authority, certificate, private = (text for _, text in blocks)
    roles = {
        f"tls_{role}_{part}": text
        for role in ("client", "scheduler", "worker")
        for part, text in (("cert", certificate), ("key", private))
    }
    return Security(tls_ca_file=authority, require_encryption=True, tls_min_version=0x0304, **roles)


def _new_key() -> bytes:
    authority_key, own_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "probe lab fleet")])
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "probe lab fleet member")])
    begin = datetime.now(UTC) - timedelta(days=1)  # the machines' clocks differ
    end = begin + timedelta(days=365 * _YEARS)

    def certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(authority)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(
                x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )
        if is_authority:
            usage = x509.KeyUsage(*(at == _KEY_CERT_SIGN for at in range(9)))
            builder = builder.add_extension(usage, critical=True)
        else:
            both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
            builder = builder.add_extension(both, critical=False)
        return builder.sign(authority_key, hashes.SHA256())

    pem = serialization.Encoding.PEM
    return (
        certificate(authority, authority_key, is_authority=True).public_bytes(pem)
        + certificate(own, own_key, is_authority=False).public_bytes(pem)
        + own_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
