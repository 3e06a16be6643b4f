# SPDX-License-Identifier: GPL-2.0-only
"""What QEMU's process may take of its host: its user, its system calls, its resources, its environment.

Started by root, QEMU opens its files as root and then becomes a user that has nothing (its own ``-runas``). To begin as
that user, all files would have to be passed as descriptors: of an image every layer, of a saved guest's memory one that
the user may open again for writing, and of ``/dev/kvm`` one that QEMU 7.2 has no option for.
"""

from __future__ import annotations

import os
import resource
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.guest.emulator import qemu_release

USERS = range(60706, 61184)
"""Users and groups that nobody gets: systemd's UIDS-GIDS has them as unused, Debian's policy as not yet given."""

_RUN_WITH_USER = (9, 1)
"""The QEMU from which on ``-runas`` is deprecated."""

_SYSTEM_CALLS = "on,obsolete=deny,elevateprivileges={},spawn=deny,resourcecontrol=deny"

_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_SELF = Path("/proc/self")

_DATA = 3 << 30
"""Bytes of private memory besides the guest's.

QEMU 7.2 was seen to take 1.3 GiB, 1 GiB of it for translated code; the most threads that it has for disks, 64, have
stacks of half a GiB.
"""

_STACK = 8 << 20
"""Bytes of a thread's stack, all of which count as private memory: with ``ulimit -s`` of 1 GiB QEMU had no room for
three threads."""

_FILES = 256
"""Open files; a restored guest with an image and an SSH connection has 20."""

_THREADS = 256
"""Of one user; QEMU starts at most 64 that wait for disks."""

_LISTS = ("PATH", "LD_LIBRARY_PATH")
_FOLDER = "QEMU_MODULE_DIR"
"""The variables by which a QEMU of the user's own is found, and finds its parts."""


@dataclass(frozen=True)
class Confinement:
    """``user`` is the one that QEMU becomes (and its group), None where it stays the one who starts it."""

    user: int | None = None

    def options(self) -> tuple[str, ...]:
        """QEMU's own options."""
        if self.user is None:
            return ("-sandbox", _SYSTEM_CALLS.format("deny"))
        # With deny, and with children too, QEMU 7.2 is killed where it becomes the user: both forbid setuid(). That it
        # has no capability afterwards and can get none (libseccomp sets no_new_privs) forbids the same.
        number = f"{self.user}:{self.user}"
        drop = ("-run-with", f"user={number}") if qemu_release() >= _RUN_WITH_USER else ("-runas", number)
        return ("-sandbox", _SYSTEM_CALLS.format("allow"), *drop)

    def limits(self, memory_mib: int) -> Mapping[str, int]:
        """The limits of a QEMU whose guest has so much memory, by prlimit's names; none is above the user's own."""
        wanted = {
            "core": (resource.RLIMIT_CORE, 0),  # a guest's memory has keys in it
            "data": (resource.RLIMIT_DATA, (memory_mib << 20) + _DATA),
            "nofile": (resource.RLIMIT_NOFILE, _FILES),
            "stack": (resource.RLIMIT_STACK, _STACK),
        }
        if self.user is not None:  # of another user all processes would count
            wanted["nproc"] = (resource.RLIMIT_NPROC, _THREADS)
        return {name: _at_most(limit, value) for name, (limit, value) in wanted.items()}


def confinement_here() -> Confinement:
    """The confinement of one more QEMU that this process starts: a user of its own where root starts it."""
    user = secrets.choice(USERS)
    return Confinement(user if os.geteuid() == 0 and _can_become(user) else None)


def environment() -> dict[str, str]:
    """QEMU's environment. Its folders are absolute: QEMU runs in ``/``, where a relative one would be another."""
    own = {name: os.environ[name] for name in (*_LISTS, _FOLDER) if os.environ.get(name)}
    parts = {name: value.split(os.pathsep) if name in _LISTS else [value] for name, value in own.items()}
    return {name: os.pathsep.join(map(os.path.abspath, folders)) for name, folders in parts.items()}


def _can_become(user: int) -> bool:
    """Whether root may, and may kill it then: in a container it may have no such user, or not the rights."""
    status = (_SELF / "status").read_text(encoding="ascii", errors="replace")
    capabilities = int(status.partition("\nCapEff:")[2].split(maxsplit=1)[0], 16)
    mapped = all(_is_mapped(user, _SELF / name) for name in ("uid_map", "gid_map"))
    return mapped and all(capabilities >> number & 1 for number in (_CAP_KILL, _CAP_SETGID, _CAP_SETUID))


def _is_mapped(number: int, mapping: Path) -> bool:
    ranges = (map(int, line.split()) for line in mapping.read_text(encoding="ascii").splitlines())
    return any(first <= number < first + count for first, _, count in ranges)


def _at_most(limit: int, value: int) -> int:
    own, _ = resource.getrlimit(limit)
    return value if own == resource.RLIM_INFINITY else min(value, own)
