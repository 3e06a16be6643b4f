# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's confinement on the host: its user, system calls, resources and environment.

Started by root, QEMU opens its files as root and then becomes a user without rights (``-runas``). To start as that
user it would need all files as descriptors: every layer of an image, a saved guest's memory reopened for writing, and
``/dev/kvm``, for which QEMU 7.2 has no such option.
"""

from __future__ import annotations

import os
import resource
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.guest.qemu_facts import qemu_release, qemu_version

USERS = range(60706, 61184)
"""Unassigned users and groups: unused in systemd's UIDS-GIDS, not yet assigned by Debian's policy."""

_RUN_WITH_USER = (9, 1)
"""The QEMU version that deprecates ``-runas``."""

_SYSTEM_CALLS = "on,obsolete=deny,elevateprivileges={},spawn=deny,resourcecontrol=deny"
_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_SELF = Path("/proc/self")

_DATA = 3 << 30
"""Bytes of private memory besides the guest's.

QEMU 7.2 was seen to take 1.3 GiB, 1 GiB of it for translated code; its maximum of 64 disk threads has stacks of half a
GiB."""

_STACK = 8 << 20
"""Bytes of a thread's stack, all of which count as private memory: with ``ulimit -s`` of 1 GiB QEMU had no room for
three threads."""

_FILES = 256
"""Open files; a restored guest with an image and an SSH connection has 20."""

_THREADS = 256
"""Threads of the user; QEMU starts at most 64 that wait for disks."""

_LISTS = ("PATH", "LD_LIBRARY_PATH")
_FOLDER = "QEMU_MODULE_DIR"
"""The variables that locate a user's own QEMU and its parts."""


@dataclass(frozen=True)
class Confinement:
    """``user`` is the user and group that QEMU becomes; None if it stays the one that starts it."""

    user: int | None = None

    def options(self) -> tuple[str, ...]:
        if self.user is None:
            return ("-sandbox", _SYSTEM_CALLS.format("deny"))
        # With these set to deny (or children), QEMU 7.2 is killed as it becomes the user: both forbid setuid(). Having
        # no capability and libseccomp's no_new_privs have the same effect as deny.
        number = f"{self.user}:{self.user}"
        drop = ("-run-with", f"user={number}") if qemu_release(qemu_version()) >= _RUN_WITH_USER else ("-runas", number)
        return ("-sandbox", _SYSTEM_CALLS.format("allow"), *drop)

    def limits(self, memory_mib: int) -> Mapping[str, int]:
        """Resource limits, by prlimit's names, of a QEMU with so much guest memory; none exceeds the user's own."""
        pairs = {
            "core": (resource.RLIMIT_CORE, 0),  # a guest's memory contains keys
            "data": (resource.RLIMIT_DATA, (memory_mib << 20) + _DATA),
            "nofile": (resource.RLIMIT_NOFILE, _FILES),
            "stack": (resource.RLIMIT_STACK, _STACK),
        }
        if self.user is not None:  # without a user of its own, all the user's processes would count
            pairs["nproc"] = (resource.RLIMIT_NPROC, _THREADS)
        return {name: _at_most(limit, value) for name, (limit, value) in pairs.items()}


def confinement_here() -> Confinement:
    """The confinement for another QEMU of this process: a user of its own if started by root.

    A container may lack the user, or root's rights to become that user and kill its processes.
    """
    user = secrets.choice(USERS)
    can = os.geteuid() == 0 and all(_is_mapped(user, _SELF / name) for name in ("uid_map", "gid_map"))
    return Confinement(user if can and all(map(has_capability, (_CAP_KILL, _CAP_SETGID, _CAP_SETUID))) else None)


def environment() -> dict[str, str]:
    """QEMU's environment, with absolute folders, as QEMU runs in ``/``."""
    inherited = {name: os.environ[name] for name in (*_LISTS, _FOLDER) if os.environ.get(name)}
    parts = {name: value.split(os.pathsep) if name in _LISTS else [value] for name, value in inherited.items()}
    return {name: os.pathsep.join(map(os.path.abspath, folders)) for name, folders in parts.items()}


def has_capability(number: int) -> bool:
    """Whether this process has a capability in effect, by its number in capabilities(7)."""
    status = (_SELF / "status").read_text(encoding="ascii", errors="replace")
    return bool(int(status.partition("\nCapEff:")[2].split(maxsplit=1)[0], 16) >> number & 1)


def _is_mapped(number: int, mapping: Path) -> bool:
    ranges = (map(int, line.split()) for line in mapping.read_text(encoding="ascii").splitlines())
    return any(first <= number < first + count for first, _, count in ranges)


def _at_most(limit: int, value: int) -> int:
    soft, _ = resource.getrlimit(limit)
    return value if soft == resource.RLIM_INFINITY else min(value, soft)
