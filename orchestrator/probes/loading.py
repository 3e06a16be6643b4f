# SPDX-License-Identifier: GPL-2.0-only
"""How a module gets into a guest's kernel, and what is said when it does not."""

from __future__ import annotations

from orchestrator.artifacts.modules import Module
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest


def load(guest: Guest, module: Module) -> None:
    """Load a module. Raises EvidenceError with its own reason from the kernel's log, or GuestOops."""
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
    raise EvidenceError(f"module {module.name} was not accepted by the guest's kernel: {reason}", detail=said)
