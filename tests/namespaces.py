# SPDX-License-Identifier: GPL-2.0-only
"""Test code in a process that sees a mount of its own, without root and without a change to the host."""

from __future__ import annotations

import ctypes
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from other_processes import FORK

_UNSHARE = ["unshare", "--map-root-user", "--mount"]
_HERE = Path(__file__).parent
_LIMIT = 600.0
_NEW_NAMESPACES = 0x10000000 | 0x00020000
"""CLONE_NEWUSER and CLONE_NEWNS of <linux/sched.h>."""

OWN_MOUNTS = pytest.mark.skipif(
    subprocess.run([*_UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False, capture_output=True).returncode
    != 0,
    reason="this host lets no user have mounts of their own",
)
"""For tests that need a mount of their own."""


def call_with_mount(
    mount: tuple[str, str, str, Path], function: str, *arguments: object, time_limit: float = _LIMIT
) -> str:
    """Call ``module:function`` with text arguments under a mount (type, options, source, target).

    ``time_limit`` is in seconds. Returns its stderr when it failed, and nothing when it did not.
    """
    module, _, name = function.partition(":")
    program = f"import sys, {module}; {module}.{name}(*sys.argv[1:])"
    argv = [*_UNSHARE, "sh", _HERE / "with_mount.sh", *mount, sys.executable, "-c", program, *arguments]
    search = os.pathsep.join([str(_HERE), *filter(None, sys.path)])
    ended = subprocess.run(
        [str(word) for word in argv],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": search},
        timeout=time_limit,
    )
    print(ended.stdout, ended.stderr)
    assert ended.returncode in (0, 1)
    return ended.stderr if ended.returncode else ""


def fork_with_mount(
    mount: tuple[str, str, str, Path], function: Callable[..., object], *arguments: object, time_limit: float = _LIMIT
) -> str:
    """Call a function with text arguments under a mount, in a child of the test's process: no Python is started.

    The function finds what the process has cached and patched: it is not for what reads the host's files only once.
    Returns its output when it failed, and nothing when it did not.
    """
    with tempfile.TemporaryFile() as output:
        process = FORK.Process(
            target=_call_in_namespaces, args=(mount, function, [str(word) for word in arguments], output.fileno())
        )
        process.start()
        try:
            process.join(time_limit)
            is_late = process.is_alive()
        finally:  # on a signal, too
            process.kill()
            process.join()
        output.seek(0)
        said = output.read().decode()
    print(said)
    assert not is_late, f"it had not ended after {time_limit:g} s"
    assert process.exitcode in (0, 1), process.exitcode
    return said or "it failed" if process.exitcode else ""


def _call_in_namespaces(
    mount: tuple[str, str, str, Path], function: Callable[..., object], words: list[str], output: int
) -> None:
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    sys.stdout = sys.stderr = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    user, group = os.geteuid(), os.getegid()
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_NEW_NAMESPACES) != 0:
        raise OSError(ctypes.get_errno(), "cannot unshare namespaces")
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(line)
    kind, options, source, target = map(str, mount)
    for words_of_mount in (["--make-rprivate", "/"], ["-t", kind, "-o", options, source, target]):
        subprocess.run(["mount", *words_of_mount], check=True)
    function(*words)
