# SPDX-License-Identifier: GPL-2.0-only
"""How a command gets to be root with mounts and processes of its own, which all end with it and with this process."""

from __future__ import annotations

import os

from orchestrator.artifacts.user_namespace import as_root
from orchestrator.errors import HostError
from orchestrator.process import run

OFFLINE = "--net"
"""For ``contained``: a network of its own, which has no way out."""

_LIMIT = 30.0


def contained(*options: str) -> tuple[str, ...]:
    """What to put before a command. An ordinary user is root of a user namespace in there."""
    user = () if os.geteuid() == 0 else ("--map-root-user", "--map-auto")
    return ("unshare", *user, *options, "--mount", "--pid", "--fork", "--kill-child")


def check_contained() -> None:
    """Raise HostError, with what to do, where this user cannot have mounts and processes of their own."""
    as_root()
    tried = run([*contained(), "mount", "-t", "tmpfs", "tmpfs", "/mnt"], time_limit=_LIMIT)
    if tried.status != 0:
        raise HostError(
            "this host lets its root have no mounts of its own",
            detail=tried.complaint(),
            hint="run it where mounting is allowed: not in a container, or in a privileged one",
        )
