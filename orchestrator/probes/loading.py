# SPDX-License-Identifier: GPL-2.0-only
"""Loads a module into a guest's kernel, or reports why it was refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import COMMAND_LIMIT, Guest


class RefusedError(EvidenceError):
    """The guest's kernel, or the module itself, refused the module; ``reason`` is the module's own message."""

    def __init__(self, name: str, reason: str, detail: Sequence[str]) -> None:
        super().__init__(f"module {name} was not accepted by the guest's kernel: {reason}", detail=detail)
        self.reason = reason


def load(
    guest: Guest, name: str, file: Path, *, parameters: Sequence[str] = (), time_limit: float = COMMAND_LIMIT
) -> None:
    """Load a module from a file of the host's. Raises RefusedError with its own message from the log, or GuestOops.

    ``parameters`` are the module's, ``NAME=VALUE`` each; ``time_limit`` is in host seconds, for the module's own
    beginning.
    """
    target = f"/tmp/{name}.ko"  # noqa: S108 - in the guest
    guest.put(file, target)
    mark = guest.console.length()
    result = guest.run(["insmod", target, *parameters], time_limit=time_limit)
    if result.status == 0:
        return
    log = guest.run(["dmesg"]).text.splitlines()
    own = re.compile(rf"^(?:\[[ .0-9]+\] )?{re.escape(name)}: (.*)")
    messages = [line for line in log if own.match(line)][-5:]
    words = own.match(messages[-1]) if messages else None
    reason = words[1] if words else result.stderr.decode(errors="replace").strip()
    guest.check_console(mark)
    raise RefusedError(name, reason, messages or log[-5:])
