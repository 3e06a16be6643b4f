# SPDX-License-Identifier: GPL-2.0-only
"""The new identity of a restored guest: random pool and time; in an image also host name, machine-id and keys.

A guest of the initramfs on the exact clock gets none of this: it must equal all others, as booted ones do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from orchestrator.errors import GuestError
from orchestrator.guest.channel import complaint
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.machine import Machine

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
