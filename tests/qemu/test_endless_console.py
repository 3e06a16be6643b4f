# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest that prints without end ended, whatever it was to do, before its log fills the host's disk?"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from command_line import qemus_in

from orchestrator.cpio_archive import Entry, archive
from orchestrator.errors import GuestExit
from orchestrator.guest.guest import Guest, State

pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg")

LIMIT = 256 << 10
ENDED = r"the guest was ended: it had printed more than 0\.25 MiB"


def test_a_guest_that_prints_instead_of_booting_is_ended(shared_guest: Guest, tmp_path: Path) -> None:
    agent = (Path(__file__).parent / "guest" / "endless_agent.sh").read_bytes()
    initramfs = tmp_path / "initramfs"
    # Of two archives in one initramfs the later one wins.
    initramfs.write_bytes(shared_guest.machine.initramfs.read_bytes() + archive([Entry.file("bin/agent", agent)]))
    guest = Guest(dataclasses.replace(shared_guest.machine, initramfs=initramfs), tmp_path, "endless")
    guest.console_max = LIMIT
    with pytest.raises(GuestExit, match=ENDED) as caught:
        guest.boot()
    assert caught.value.where == str(guest.console.path)
    assert "and on it goes" in caught.value.detail[-2]
    assert guest.state is State.GONE
    assert qemus_in(tmp_path) == []


def test_a_command_that_prints_on_the_console_ends_its_guest(shared_guest: Guest, tmp_path: Path) -> None:
    second = Guest(shared_guest.machine, tmp_path, "second")
    second.console_max = LIMIT
    with second, pytest.raises(GuestExit, match=ENDED):
        second.run(["sh", "-c", "yes on and on >/dev/console"])
    assert second.has_failed
    assert shared_guest.run(["true"]).status == 0
