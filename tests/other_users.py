# SPDX-License-Identifier: GPL-2.0-only
"""A part of a test that an ordinary user does, in a process of its own."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.guest.confinement import confinement_here, has_capability

ORDINARY_USER = 65533


def is_readable_to_all(path: Path) -> bool:
    """Whether an ordinary user can get to a folder and read it: root's own home cannot be entered, on many hosts."""
    return path.stat().st_mode & 0o005 == 0o005 and all(above.stat().st_mode & 0o001 for above in path.parents)


def _may_trace() -> bool:
    """Whether what /proc has of a guest's QEMU can be read: root's QEMU is another user's (CAP_SYS_PTRACE is 19)."""
    return confinement_here().user is None or has_capability(19)


TRACED = pytest.mark.skipif(not _may_trace(), reason="no process may be traced here, as in a container")


def as_ordinary_user(folder: Path, check: Callable[[Path], None]) -> None:
    """Let root do ``check`` as a user who owns the folder, with cache and lab in it. Fails the test where it fails."""
    for place in (folder, *folder.rglob("*")):
        os.chown(place, ORDINARY_USER, ORDINARY_USER)
    answer, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        told = ""
        try:
            os.setgroups([])
            os.setresgid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)
            os.setresuid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)
            os.environ |= {"ORCHESTRATOR_CACHE": str(folder / "cache"), "ORCHESTRATOR_LAB": str(folder / "lab")}
            check(folder)
        except BaseException:
            told = traceback.format_exc()
        finally:
            os.write(write_end, told.encode()[-60_000:])
            os._exit(0)
    os.close(write_end)
    with os.fdopen(answer, encoding="utf-8", errors="replace") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert not told, told
