# SPDX-License-Identifier: GPL-2.0-only
"""Test code in a process that sees a mount of its own, without root and without a change to the host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_UNSHARE = ["unshare", "--map-root-user", "--mount"]
_HERE = Path(__file__).parent
_LIMIT = 600.0

OWN_MOUNTS = pytest.mark.skipif(
    subprocess.run([*_UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False, capture_output=True).returncode
    != 0,
    reason="this host lets no user have mounts of their own",
)
"""For tests that need ``call_with_mount``."""


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
