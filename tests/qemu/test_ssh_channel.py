# SPDX-License-Identifier: GPL-2.0-only
"""Does the channel through a Debian guest's sshd keep the contract, and its own promises?"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from channel_contract import MEGABYTE, ChannelContract, FurtherContract
from elsewhere import ELSEWHERE

from orchestrator import deadline
from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, GuestHang
from orchestrator.guest import ssh
from orchestrator.guest.guest import Guest
from orchestrator.guest.ssh import SshChannel
from orchestrator.guest.ssh_keys import new_private_key, read_private_key

PATIENCE = 600.0
"""Host seconds."""

pytestmark = pytest.mark.guest(kernel="lab-i386-up", timing="tcg", image="debian-i386", channel="ssh")


class TestSshChannel(ChannelContract):
    """The contract over SSH, whose windows have two megabytes."""

    LARGE = 3 * MEGABYTE


@ELSEWHERE
class TestFurtherSshChannel(FurtherContract):
    """The rest of it."""

    LARGE = 3 * MEGABYTE


def port_of(guest: Guest) -> int:
    """The host's port that leads to the guest's sshd."""
    assert guest._qemu.monitor is not None
    return guest._qemu.monitor.forwarded_port()


def test_another_host_key_is_refused(shared_guest: Guest) -> None:
    other_ecdsakey, client = (read_private_key(new_private_key()) for _ in range(2))
    # An attempt that is made again ends at the deadline, with another error.
    with pytest.raises(GuestError, match=r"the server on port .* is not the guest: its host key is SHA") as refused:
        SshChannel.connect(port_of(shared_guest), other_ecdsakey, client, Deadline(PATIENCE))
    assert other_ecdsakey.fingerprint in refused.value.what


def test_a_key_that_the_guest_does_not_know_is_refused(shared_guest: Guest) -> None:
    assert shared_guest._files is not None
    assert shared_guest._files.keys is not None
    host_key, stranger = shared_guest._files.keys.host, read_private_key(new_private_key())
    with pytest.raises(GuestError, match="the guest's sshd refuses the lab's key for root"):
        SshChannel.connect(port_of(shared_guest), host_key, stranger, Deadline(PATIENCE))


def test_without_an_sshd_it_is_tried_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    key = read_private_key(new_private_key())
    clock, pauses = itertools.count(), list[float]()  # a second passes each time that somebody looks
    times = SimpleNamespace(monotonic=lambda: float(next(clock)), sleep=pauses.append)
    for module in (deadline, ssh):
        monkeypatch.setattr(module, "time", times)
    with pytest.raises(GuestHang, match="the guest's sshd does not answer"):
        SshChannel.connect(1, key, key, Deadline(20))
    assert next(clock) > 20
    assert len(pauses) > 1
