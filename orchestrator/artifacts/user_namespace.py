# SPDX-License-Identifier: GPL-2.0-only
"""An ordinary user makes files that belong to many users as root of a user namespace.

In the namespace the user is root and has the ids of /etc/subuid for all other users. That root may mount /proc and
/sys because the namespace has its own mounts, processes and networks.
"""

from __future__ import annotations

import getpass
import os
import shutil
from functools import lru_cache

from orchestrator.errors import HostError
from orchestrator.host_packages import INSTALL_COMMAND
from orchestrator.process import run

_UNSHARE = (
    "unshare",
    *("--map-root-user", "--map-auto", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("--net", "--ipc", "--uts"),
)


def as_root() -> tuple[str, ...]:
    """The prefix of a command that runs as root. Raises HostError if the host allows no user namespace."""
    return () if os.geteuid() == 0 else _namespace()


@lru_cache(maxsize=1)
def _namespace() -> tuple[str, ...]:
    for program in ("newuidmap", "newgidmap"):
        if shutil.which(program) is None:
            what = f"without root, a user namespace is needed, and {program} is not installed"
            raise HostError(what, hint=f"as root: {INSTALL_COMMAND} uidmap")
    tried = run([*_UNSHARE, "true"], time_limit=30)
    if tried.status == 0:
        return _UNSHARE
    what = "this host allows user namespaces to root only"
    hint = "sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 (whichever it "
    hint += "has), or run the command as root"
    if any(word in tried.stderr for word in ("subuid", "subgid", "find")):
        user = getpass.getuser()
        what = f"{user} has no range of ids in /etc/subuid and /etc/subgid"
        hint = f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
    raise HostError(what, detail=tried.complaint(), hint=f"as root: {hint}")
