# SPDX-License-Identifier: GPL-2.0-only
"""The fleet that a user names, by its name in this lab or its scheduler's address, and its key."""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import stat
import warnings
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchestrator.errors import HostError, UsageError
from orchestrator.files import private
from orchestrator.fleet.state import FleetState, running
from orchestrator.paths import lab_dir
from orchestrator.program import PROGRAM

if TYPE_CHECKING:  # of the extra "fleet", as all parts of Dask here
    from distributed.security import Security  # of the extra "fleet"

RUN_TOPIC = "lab-run-"
"""Prefix of the topics on which workers send messages to the clients of runs."""


def need_dask() -> None:
    """Raise HostError if the extra ``fleet`` is not installed."""
    if find_spec("distributed") is None:
        raise HostError(
            "a fleet needs Python packages that are not installed: dask's distributed",
            hint="./lab installs them; in an environment of your own: pip install 'probe-lab[fleet]'",
        )


def set_up_dask() -> None:
    """Set Dask up in this process, before distributed makes any server or client."""
    need_dask()
    import dask.config  # of the extra "fleet"

    dask.config.update(dask.config.config, yaml.safe_load(Path(__file__).with_name("dask.yaml").read_text("utf-8")))


class Unlisted:
    """Replaces the HTTP server of Dask's servers: nothing listens."""

    def start_http_server(self, *arguments: Any, **options: Any) -> None:
        """Dask 2026.8 starts one in every server, unencrypted and on all interfaces, whatever its options."""


_ADDRESS = re.compile(r"tls://(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9][A-Za-z0-9.-]{0,252})):([1-9][0-9]{0,4})")
_ANSWER_LIMIT = 10.0
"""Seconds for a connection, and then for its first byte."""


@dataclass(frozen=True)
class Target:
    """A fleet's scheduler and key. ``state`` is set for a fleet that this lab has started."""

    address: str
    key: str = field(repr=False)
    state: FleetState | None = None


def target(fleet: str) -> Target:
    """The fleet that a user has named, after checking that it answers to the key.

    Raises UsageError for an invalid name or address, HostError if no such fleet answers.
    """
    need_dask()
    if "://" in fleet or ":" in fleet:
        host_and_port(fleet)
        named = Target(fleet, read_key(usual_key_file()))
    else:
        state = running(fleet)
        named = Target(state.address, read_key(Path(state.key_file)), state)
    check_reachable(named.address, named.key)
    return named


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of a scheduler's address. Raises UsageError for anything else."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[3]) > 65535:
        raise UsageError(f"found {address!r}; a scheduler's address is like tls://192.0.2.1:8786")
    return match[1] or match[2], int(match[3])


def address_towards(address: str) -> str:
    """The address of this machine on the way to a scheduler's. Nothing is sent. Raises OSError."""
    host, port = host_and_port(address)
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as towards:
        towards.connect(place)
        address_here: str = towards.getsockname()[0]
        return address_here


def check_reachable(address: str, key: str) -> None:
    """Raise HostError if no scheduler answers, or one with another key. Sends no request."""
    host, port = host_and_port(address)
    context: ssl.SSLContext = security_of(key).get_connection_args("client")["ssl_context"]
    try:
        with (
            socket.create_connection((host, port), _ANSWER_LIMIT) as plain,
            context.wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            # With TLS 1.3 a server rejects a certificate after the handshake. Dask's servers speak first.
            answer = encrypted.recv(1)
    except ssl.SSLError as error:
        if isinstance(error, ssl.SSLCertVerificationError) or "ALERT" in (error.reason or ""):
            hint = f"copy that fleet's key here; `{PROGRAM} fleet keys --help` says where"
            raise HostError(f"the fleet at {address} has another key", hint=hint) from None
        raise no_fleet(address, "the server there does not speak TLS 1.3") from None
    except TimeoutError:
        raise no_fleet(address, f"no answer for {_ANSWER_LIMIT:g} s") from None
    except socket.gaierror:
        raise UsageError(f"{host} cannot be resolved to an address", where=address) from None
    except OSError as error:
        raise no_fleet(address, (error.strerror or str(error)).lower()) from None
    if not answer:
        raise no_fleet(address, "the server there sends nothing")


def no_fleet(address: str, why: str) -> HostError:
    """The error for an address where no fleet's scheduler answers."""
    return HostError(
        f"no fleet answers at {address}: {why}",
        hint=f"`{PROGRAM} fleet up` starts one; `{PROGRAM} fleet status` says where it listens",
    )


def log_dask_to(handler: logging.Handler) -> None:
    """Route Dask's loggers, and those of its libraries, to this handler alone; needs ``distributed``."""
    import distributed  # noqa: F401 - importing it adds handlers to its loggers

    loggers = [name for name in logging.root.manager.loggerDict if name.startswith("distributed.")]
    for name in ["distributed", "tornado", "asyncio", *loggers]:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
    for package in ("distributed", "dask", "tornado"):
        warnings.filterwarnings("ignore", module=rf"{package}(\.|$)")


def quiet_logging() -> None:
    """Hide Dask's log and warnings: commands report in their own words."""
    log_dask_to(logging.NullHandler())


# The key of a fleet: its owner may run code on every machine of the fleet, including the client.
#
# One file holds a certificate and its private key; older keys start with the certificate's authority. All processes of
# a fleet have the same file, and reject peers with another: TLS 1.3, with both sides verified.

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
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "probe lab fleet")])
    begin = datetime.now(UTC) - timedelta(days=1)  # allows for differing clocks
    end = begin + timedelta(days=365 * 10)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), begin, end)
    pem = serialization.Encoding.PEM
    return builder.sign(key, hashes.SHA256()).public_bytes(pem) + key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
