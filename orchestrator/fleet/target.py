# SPDX-License-Identifier: GPL-2.0-only
"""The fleet that a user names, by its name in this lab or its scheduler's address, if it answers to our key."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import warnings
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from orchestrator.errors import HostError, UsageError
from orchestrator.fleet.keys import read_key, security_of, usual_key_file
from orchestrator.fleet.state import FleetState, running
from orchestrator.program import PROGRAM

# How Dask is set in a process of a fleet, and what its servers do not listen on.

MEMBERS = "lab-members"
"""The topic on which the scheduler tells who is there, then who has joined and who has left."""

RUN_TOPIC = "lab-run-"
"""How the topics begin on which workers tell the clients of runs what their boots report."""


def need_dask() -> None:
    """Raise HostError where the extra is not installed."""
    if find_spec("distributed") is None:
        raise HostError(
            "a fleet needs Python packages that are not installed: dask's distributed",
            hint="./lab installs them; in an environment of your own: pip install 'probe-lab[fleet]'",
        )


def set_up_dask() -> None:
    """Set Dask for this process; before any part of distributed makes a server or a client."""
    need_dask()
    import dask.config

    dask.config.update(dask.config.config, yaml.safe_load(Path(__file__).with_name("dask.yaml").read_text("utf-8")))


class Unlisted:
    """What a server of Dask's has in place of its HTTP server: nothing listens."""

    def start_http_server(
        self, routes: Any, dashboard_address: Any, default_port: int = 0, ssl_options: Any = None
    ) -> None:
        """Dask 2026.8 starts one in every server, unencrypted and on all interfaces, whatever its options."""
        del routes, dashboard_address, default_port, ssl_options


_ADDRESS = re.compile(r"tls://(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9][A-Za-z0-9.-]{0,252})):([1-9][0-9]{0,4})")
_ANSWER_LIMIT = 10.0
"""Seconds for a connection, and then for its first byte."""


@dataclass(frozen=True)
class Target:
    """A fleet's scheduler, and the key to it. ``state`` is that of a fleet that this lab has started."""

    address: str
    key: str = field(repr=False)
    state: FleetState | None = None


def target(fleet: str) -> Target:
    """The fleet that a user has named, which answers to our key.

    Raises UsageError for a name or an address that is none, HostError where no fleet of ours answers.
    """
    need_dask()
    if "://" in fleet or ":" in fleet:
        host_and_port(fleet)
        found = Target(fleet, read_key(usual_key_file()))
    else:
        state = running(fleet)
        found = Target(state.address, read_key(Path(state.key_file)), state)
    check_reachable(found.address, found.key)
    return found


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of a scheduler's address. Raises UsageError for anything else."""
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found[3]) > 65535:
        raise UsageError(f"found {address!r}; a scheduler's address is like tls://192.0.2.1:8786")
    return found[1] or found[2], int(found[3])


def address_towards(address: str) -> str:
    """The address that this machine has where it leads to a scheduler's. Nothing is sent. Raises OSError."""
    host, port = host_and_port(address)
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as towards:
        towards.connect(place)
        found: str = towards.getsockname()[0]
        return found


def check_reachable(address: str, key: str) -> None:
    """Raise HostError where no scheduler answers, or one that has another key. Nothing is asked of it."""
    host, port = host_and_port(address)
    context: ssl.SSLContext = security_of(key).get_connection_args("client")["ssl_context"]
    try:
        with (
            socket.create_connection((host, port), _ANSWER_LIMIT) as plain,
            context.wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            # With TLS 1.3 a server says after the handshake that it refuses a certificate. Dask's servers speak first.
            answer = encrypted.recv(1)
    except ssl.SSLCertVerificationError:
        raise _another_key(address) from None
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            raise _another_key(address) from None
        raise _no_fleet(address, "what listens there does not speak TLS 1.3") from None
    except TimeoutError:
        raise _no_fleet(address, f"nothing was heard for {_ANSWER_LIMIT:g} s") from None
    except socket.gaierror:
        raise UsageError(f"{host} is no machine that this one knows", where=address) from None
    except OSError as error:
        raise _no_fleet(address, (error.strerror or str(error)).lower()) from None
    if not answer:
        raise _no_fleet(address, "what listens there has nothing to say")


def _another_key(address: str) -> HostError:
    return HostError(
        f"the fleet at {address} has another key",
        hint=f"copy its own here; `{PROGRAM} fleet keys --help` says where",
    )


def _no_fleet(address: str, why: str) -> HostError:
    return HostError(
        f"no fleet answers at {address}: {why}",
        hint=f"`{PROGRAM} fleet up` starts one; `{PROGRAM} fleet status` says where it listens",
    )


_LOGGERS = ("distributed", "tornado", "asyncio")


def log_dask_to(handler: logging.Handler) -> None:
    """Let Dask's loggers, and those of what it is built on, have this handler alone; needs ``distributed``."""
    import distributed  # noqa: F401 - it gives its loggers handlers when it is imported

    for name in [*_LOGGERS, *(one for one in logging.root.manager.loggerDict if one.startswith("distributed."))]:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
    for package in ("distributed", "dask", "tornado"):
        warnings.filterwarnings("ignore", module=rf"{package}(\.|$)")


def silence_dask() -> None:
    """Show nothing that Dask logs and warns of: a command says what happened in its own words."""
    log_dask_to(logging.NullHandler())
