# SPDX-License-Identifier: GPL-2.0-only
"""The fleet that a user names, by its name in this lab or its scheduler's address, and its key."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import warnings
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from orchestrator.errors import HostError, UsageError
from orchestrator.fleet.key import read_key, security_of, usual_key_file
from orchestrator.fleet.state import FleetState, running
from orchestrator.program import PROGRAM

if TYPE_CHECKING:  # of the extra "fleet", as all parts of Dask here
    pass  # of the extra "fleet"

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
