# SPDX-License-Identifier: GPL-2.0-only
"""What a restored guest gets of its own: a random pool and the time, and in an image a name, a machine-id and keys.

A guest of the initramfs on the exact clock gets nothing: it is to be equal to all others, as booted ones are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from orchestrator.errors import GuestError
from orchestrator.guest.channel import complaint
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.machine import Machine

_LIMIT = 30.0
_IMAGES_FOLDER, _FOLDER = "/run/orchestrator/identity", "/root"


def renew(agent: FramedChannel, machine: Machine, identity: Mapping[str, bytes]) -> None:
    """Write a guest's own ``identity`` into it, by the files' names, and set its clock. Raises GuestError."""
    exact = machine.timing == "instructions"
    # On the exact clock the pools of two guests begin alike, and the time is that of 2005.
    files = {name: content for name, content in identity.items() if not (exact and name == "seed")}
    if not files:
        return
    folder = _FOLDER if machine.root is None else _IMAGES_FOLDER
    for name, content in files.items():
        agent.put(content, f"{folder}/{name}", mode=0o600, time_limit=_LIMIT)
    now = () if exact else (str(int(time.time())),)
    result = agent.run(["renew-guest", folder, *now], time_limit=_LIMIT)
    if result.status != 0:
        raise GuestError(f"the restored guest did not become one of its own: {complaint(result.stderr)}")
