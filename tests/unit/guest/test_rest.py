# SPDX-License-Identifier: GPL-2.0-only
"""Does a guest rest while the host works, and only where that changes nothing in it?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.errors import EvidenceError, GuestExit, LabError
from orchestrator.guest.guest import Guest, at_rest


class Observed:
    """A guest that keeps what was asked of it."""

    def __init__(self, timing: str) -> None:
        self.machine = SimpleNamespace(timing=timing)
        self.done: list[str] = []

    def pause(self) -> None:
        self.done.append("pause")

    def resume(self) -> None:
        self.done.append("resume")


@pytest.mark.parametrize(
    ("timing", "done"),
    [
        ("instructions", ["pause", "work", "resume"]),
        ("tcg", ["pause", "work", "resume"]),
        ("kvm", ["work"]),
    ],
)
def test_a_guest_is_paused_unless_its_clock_would_go_on(timing: str, done: list[str]) -> None:
    guest = Observed(timing)
    with at_rest(cast(Guest, guest)):
        guest.done.append("work")
    assert guest.done == done


@pytest.mark.parametrize(
    ("error", "done"),
    [(EvidenceError("another count"), ["pause", "resume"]), (GuestExit("QEMU ended"), ["pause"])],
    ids=["proof", "guest"],
)
def test_a_guest_goes_on_after_a_failed_proof_and_not_after_its_own_failure(error: LabError, done: list[str]) -> None:
    guest = Observed("instructions")
    with pytest.raises(type(error)), at_rest(cast(Guest, guest)):
        raise error
    assert guest.done == done
