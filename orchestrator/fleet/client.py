# SPDX-License-Identifier: GPL-2.0-only
"""A client of Dask's, connected to a fleet's scheduler."""

from __future__ import annotations

from distributed import Client

from orchestrator.errors import HostError
from orchestrator.fleet.keys import security_of
from orchestrator.fleet.settings import set_up_dask
from orchestrator.program import PROGRAM

_CONNECT_LIMIT = 15
"""Seconds until a scheduler that does not answer is told as such."""


def connected(address: str, key: str) -> Client:
    """A client of the scheduler at an address: ``tls://127.0.0.1:8786``. Raises HostError where none answers."""
    set_up_dask()
    try:
        return Client(
            address,
            security=security_of(key),
            timeout=_CONNECT_LIMIT,
            set_as_default=False,
            direct_to_workers=False,
            heartbeat_interval=2000,
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise HostError(
            f"no fleet answers at {address}",
            detail=[short(error)],
            hint=f"`{PROGRAM} fleet up` starts one on this machine; another one needs the same key",
        ) from None


def short(error: BaseException) -> str:
    """The first line of an error: what Dask says of its own objects comes behind it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
