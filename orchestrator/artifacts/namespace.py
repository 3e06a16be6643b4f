# SPDX-License-Identifier: GPL-2.0-only
"""How a user who is not root makes files that belong to many users: as root of a user namespace of one's own."""

from __future__ import annotations

import getpass
import os
import shutil
from functools import lru_cache

from orchestrator.errors import HostError
from orchestrator.process import run
from orchestrator.requirements import INSTALL_COMMAND

# The user is root in there, and has the ids of /etc/subuid for all others. Mounts, processes and networks of its own
# are what lets that root mount /proc and /sys.
_UNSHARE = (
    "unshare",
    *("--map-root-user", "--map-auto", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("--net", "--ipc", "--uts"),
)
_PROBE_LIMIT = 30.0


def as_root() -> tuple[str, ...]:
    """What to put before a command that is to run as root: nothing for root itself.

    Raises HostError with what is missing, and how to get it, where a user cannot have a namespace.
    """
    return () if os.geteuid() == 0 else _namespace()


@lru_cache(maxsize=1)
def _namespace() -> tuple[str, ...]:
    for program in ("newuidmap", "newgidmap"):
        if shutil.which(program) is None:
            raise HostError(
                f"without root, a user namespace is needed, and {program} is not installed",
                hint=f"as root: {INSTALL_COMMAND} uidmap",
            )
    tried = run([*_UNSHARE, "true"], time_limit=_PROBE_LIMIT, environment={"LC_ALL": "C"})
    if tried.status == 0:
        return _UNSHARE
    errors = tried.stderr
    if any(word in errors for word in ("subuid", "subgid", "find")):
        user = getpass.getuser()
        hint = f"as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
        raise HostError(
            f"{user} has no range of ids in /etc/subuid and /etc/subgid", detail=tried.complaint(), hint=hint
        )
    raise HostError(
        "this host lets no user but root have a user namespace",
        detail=tried.complaint(),
        hint="as root: sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 "
        "(the one that it has), or run the command as root",
    )
