# SPDX-License-Identifier: GPL-2.0-only
"""A QEMU that ends before it has made the machine: no guest has run, so the host lacks a usable QEMU."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import GuestError, HostError, LabError
from orchestrator.guest.console import QUOTED_LINES, Console
from orchestrator.guest.diagnosis import DYING_LIMIT
from orchestrator.guest.qemu_facts import OLDEST_QEMU, qemu_version
from orchestrator.process import Spawned, exit_status, how_ended
from orchestrator.program import PROGRAM

_NO_MEMORY = "Cannot allocate memory"


_NO_SANDBOX = "-sandbox support is not enabled"


def start_failure(error: GuestError, command_line: Sequence[str], process: Spawned, messages: Path) -> LabError:
    """The error for a monitor that did not answer: ``error`` itself if QEMU lives or was killed."""
    status = exit_status(process, DYING_LIMIT)
    if status is None or status == -signal.SIGKILL:
        return error
    printed = Console(messages).last_lines(QUOTED_LINES)
    hint = (
        f"the lab needs a QEMU of {'.'.join(map(str, OLDEST_QEMU))} or newer that works: `{PROGRAM} doctor` checks it"
    )
    if any(_NO_MEMORY in line for line in printed):
        hint = "allow more memory (ulimit -v): QEMU needs 1 GiB of addresses for translated code, besides the guest's"
    if any(_NO_SANDBOX in line for line in printed):
        hint = "build QEMU with --enable-seccomp (libseccomp): the lab confines each guest's QEMU with it"
    return HostError(
        f"QEMU ended ({how_ended(status)}) before it had made the guest's machine; the host has {qemu_version()}",
        detail=[f"$ {shlex.join(command_line)}", *(printed or ["(no output)"])],
        hint=hint,
    )
