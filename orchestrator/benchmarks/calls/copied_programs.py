# SPDX-License-Identifier: GPL-2.0-only
"""The programs of a user that the guest runs: where they are in it, and how they are copied."""

from __future__ import annotations

from pathlib import Path

from orchestrator.guest.guest import Guest

OWN_PROGRAM = "/tmp/workload"  # noqa: S108 - in the guest
PROGRAM = "/tmp/program"  # noqa: S108 - in the guest
_END_PROGRAM = """
ls -l /proc/[0-9]*/exe 2>/dev/null | while read -r line; do
    link=${line#* /proc/}
    case ${link#* -> } in "$1"*) kill -KILL "${link%%/*}" ;; esac
done 2>/dev/null
rm -f "$1"
"""
"""One ``ls``: a program for each process of an image's guest would take a third of a second."""


def put_program(guest: Guest, file: Path, program: str) -> None:
    """Copy a user's program into the guest, and kill processes of an earlier one, which would hit the probe."""
    guest.succeed(["sh", "-c", _END_PROGRAM, "sh", program])
    guest.put(file, program)
    guest.succeed(["chmod", "755", program])
