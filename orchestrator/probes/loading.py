# SPDX-License-Identifier: GPL-2.0-only
"""How a module gets into a guest's kernel, and what is said when it does not."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.artifacts.modules import Module
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest


class RefusedError(EvidenceError):
    """The guest's kernel, or the module itself, did not let the module in; ``reason`` is in the module's own words."""

    def __init__(self, name: str, reason: str, detail: Sequence[str]) -> None:
        super().__init__(f"module {name} was not accepted by the guest's kernel: {reason}", detail=detail)
        self.reason = reason


def load(guest: Guest, module: Module) -> None:
    """Load a module. Raises RefusedError with its own reason from the kernel's log, or GuestOops."""
    target = f"/tmp/{module.name}.ko"  # noqa: S108 - in the guest
    guest.put(module.file, target)
    mark = guest.console.length()
    result = guest.run(["insmod", target])
    if result.status == 0:
        return
    log = guest.run(["dmesg"]).text
    said = [line for line in log.splitlines() if f"{module.name}: " in line][-5:]
    reason = said[-1].partition(f"{module.name}: ")[2] if said else result.stderr.decode(errors="replace").strip()
    guest.check_console(mark)
    raise RefusedError(module.name, reason, said)
