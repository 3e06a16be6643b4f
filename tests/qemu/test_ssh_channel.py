# SPDX-License-Identifier: GPL-2.0-only
"""Does the channel through a Debian guest's sshd keep the contract, and its own promises?"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from channel_contract import MEGABYTE, ChannelContract

from orchestrator.errors import GuestError, GuestHang
from orchestrator.guest.guest import Guest
from orchestrator.guest.keys import new_private_key, read_private_key
from orchestrator.guest.ssh import SshChannel

pytestmark = pytest.mark.guest(kernel="debian-686", cpu="pentium4", timing="tcg", image="debian-i386", channel="ssh")


class TestSshChannel(ChannelContract):
    """The contract over SSH."""


def port_of(guest: Guest) -> int:
    """The host's port that leads to the guest's sshd."""
    assert guest._monitor is not None
    return guest._monitor.forwarded_port()


def test_another_host_key_is_refused_at_once(guest: Guest) -> None:
    other, client = (read_private_key(new_private_key()) for _ in range(2))
    began = time.monotonic()
    with pytest.raises(GuestError, match=r"who answers on port .* is not the guest: its host key is SHA") as refused:
        SshChannel.connect(port_of(guest), other, client, time.monotonic() + 60)
    assert other.fingerprint in refused.value.what
    assert time.monotonic() - began < 20


def test_a_key_that_the_guest_does_not_know_is_refused_at_once(guest: Guest) -> None:
    assert guest._belongings is not None
    assert guest._belongings.keys is not None
    host_key, stranger = guest._belongings.keys.host, read_private_key(new_private_key())
    began = time.monotonic()
    with pytest.raises(GuestError, match="the guest's sshd refuses our key for root"):
        SshChannel.connect(port_of(guest), host_key, stranger, time.monotonic() + 60)
    assert time.monotonic() - began < 30


def test_where_nobody_answers_it_is_tried_until_the_deadline() -> None:
    key = read_private_key(new_private_key())
    began = time.monotonic()
    with pytest.raises(GuestHang, match="the guest's sshd does not answer"):
        SshChannel.connect(1, key, key, time.monotonic() + 1)
    assert time.monotonic() - began >= 1


def test_ten_megabytes_cost_the_host_some_seconds_of_work(guest: Guest) -> None:
    # Of CPU time, because the clock on the wall also measures what else the host does: 5.3 in and 4.2 out were seen.
    content = bytes(10 * MEGABYTE)
    into, out = [], []
    for _ in range(2):
        began = cpu_seconds(guest)
        guest.put(content, "/tmp/speed", time_limit=120)
        between = cpu_seconds(guest)
        guest.get("/tmp/speed", time_limit=120)
        into.append(between - began)
        out.append(cpu_seconds(guest) - between)
    assert min(into) < 8.0
    assert min(out) < 8.0
    guest.succeed(["rm", "/tmp/speed"])


def cpu_seconds(guest: Guest) -> float:
    """What QEMU has used of the host's CPUs so far."""
    fields = Path(f"/proc/{guest.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
