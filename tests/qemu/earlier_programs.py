# SPDX-License-Identifier: GPL-2.0-only
"""Are only those processes ended that run an earlier program of the same path?"""

from __future__ import annotations

from pathlib import Path

from orchestrator.benchmarks.calls.copied_programs import put_program
from orchestrator.guest.guest import Guest

_START = "cp $(readlink -f /bin/sleep) /tmp/sleep; { /tmp/sleep 999 & sleep 999 & } >/dev/null 2>&1; echo $!"
_RUNS = "ls -l /proc/[0-9]*/exe | grep -q /tmp/sleep"


def check_earlier_programs(guest: Guest, folder: Path) -> None:
    (folder / "new").write_text("new")
    other = guest.succeed(["sh", "-c", _START]).text.strip()
    guest.wait_until_succeeds(["sh", "-c", _RUNS], time_limit=60.0)
    put_program(guest, folder / "new", "/tmp/sleep")
    guest.fail(["sh", "-c", _RUNS])
    guest.succeed(["kill", other])
    assert guest.get("/tmp/sleep") == b"new"
