# SPDX-License-Identifier: GPL-2.0-only
"""How does a guest's kernel come to go wrong? By ``modules/faulty.c``, and the name of what it shall do."""

from __future__ import annotations

from module_maker import ModuleMaker

from orchestrator.guest.guest import Guest


def insert(guest: Guest, modules: ModuleMaker, fault: str, time_limit: float = 60.0) -> None:
    """Load the module that goes wrong so, and look at the console."""
    guest.put(modules.rogue("faulty").file, "/tmp/faulty.ko")
    guest.run(["insmod", "/tmp/faulty.ko", f"fault={fault}"], time_limit=time_limit)
    guest.drain_console()
    guest.check_console()
