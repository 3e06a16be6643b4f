# SPDX-License-Identifier: GPL-2.0-only
"""Is a console on a full disk, which may lack lines, never taken for one without trouble?"""

from __future__ import annotations

from pathlib import Path

import pytest
from full_disk import room
from namespaces import OWN_MOUNTS, call_with_mount

from orchestrator.catalog.cpus import cpu
from orchestrator.errors import GuestOops, HostError
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine


def check_on_a_full_disk(disk: str) -> None:
    folder = Path(disk)
    guest = Guest(Machine(cpu("pentium4"), folder / "kernel", folder / "initramfs"), folder)
    guest.console.path.write_text("[    1.000000] Freeing unused kernel memory\n")
    guest.check_console()
    with room(folder, 4), pytest.raises(HostError, match=r"what the guest prints: 0\.0 MB are free") as caught:
        guest.check_console()
    assert caught.value.where == str(guest.console.path)
    guest.console.path.write_text("[    1.000000] BUG: unable to handle page fault for address: deadbeef\n")
    with room(folder, 4), pytest.raises(GuestOops):
        guest.check_console()


@OWN_MOUNTS
def test_what_may_be_missing_is_told(tmp_path: Path) -> None:
    mount = ("tmpfs", "size=1m", "tmpfs", tmp_path)
    assert call_with_mount(mount, "test_console_room:check_on_a_full_disk", tmp_path) == ""
