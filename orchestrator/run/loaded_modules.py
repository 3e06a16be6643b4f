# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own modules that an experiment asks for, loaded into a guest before anything is measured in it."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.errors import EvidenceError, GuestError
from orchestrator.guest.console import plain_lines
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import ModuleMemory
from orchestrator.steps import step

_QUOTED_LINES = 5


def load_kernel_modules(guest: Guest, names: Iterable[str]) -> None:
    """Load modules from the guest's /lib/modules; those that are there already stay.

    Raises GuestError where modprobe fails, GuestOops, EvidenceError where the kernel does not list one afterwards.
    """
    wanted = list(names)
    mark = guest.console.length()
    for name in wanted:
        with step(f"load {name}"):
            result = guest.run(["modprobe", name])
        guest.check_console(mark)
        if result.status != 0:
            raise GuestError(
                f"the guest's kernel does not load its module {name}",
                detail=plain_lines(result.stderr)[-_QUOTED_LINES:],
            )
    listed = ModuleMemory.all_of(guest) if wanted else {}
    for name in wanted:
        if name not in listed:
            raise EvidenceError(f"module {name} was loaded, and the guest's kernel does not list it as live")
