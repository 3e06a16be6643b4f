# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest that stops itself before its work read once and let go on, and one that stops again ended?"""

from __future__ import annotations

from typing import cast

import pytest

from orchestrator.guest.monitor import Monitor
from orchestrator.guest.qemu import OwnStop


class Qemu:
    """A monitor of a QEMU in some state; ``said`` has the commands but for the question."""

    def __init__(self) -> None:
        self.status, self.said = "running", list[str]()

    def command(self, name: str) -> object:
        if name == "query-status":
            return {"status": self.status, "running": self.status == "running"}
        self.said.append(name)
        self.status = "running"
        return {}


@pytest.mark.parametrize("status", ["running", "paused", "guest-panicked"])
def test_only_its_own_stop_is_ended_by_the_host(status: str) -> None:
    qemu = Qemu()
    stop = OwnStop(cast("Monitor", qemu), lambda: qemu.said.append("read"), is_expected=True)
    qemu.status = status
    stop.check()
    stop.check()
    assert qemu.said == (["read", "cont"] if status == "guest-panicked" else [])
    qemu.status = "guest-panicked"
    stop.check()
    assert qemu.said == (["read", "cont", "quit"] if status == "guest-panicked" else ["read", "cont"])


def test_a_guest_without_the_device_is_not_asked() -> None:
    qemu = Qemu()
    qemu.status = "guest-panicked"
    OwnStop(cast("Monitor", qemu), lambda: None, is_expected=False).check()
    assert qemu.said == []


def test_it_is_not_let_go_on_where_it_cannot_be_read() -> None:
    qemu = Qemu()
    qemu.status = "guest-panicked"

    def unreadable() -> None:
        raise LookupError

    stop = OwnStop(cast("Monitor", qemu), unreadable, is_expected=True)
    with pytest.raises(LookupError):
        stop.check()
    assert (qemu.said, stop.is_expected) == ([], True)
