# SPDX-License-Identifier: GPL-2.0-only
"""Opens the channel that a guest's commands go through: the agent's, its sshd's, or its console's."""

from __future__ import annotations

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError
from orchestrator.guest.channel import Channel
from orchestrator.guest.console import plain_lines
from orchestrator.guest.framed import FramedChannel
from orchestrator.guest.guest_files import SshKeys
from orchestrator.guest.machine import MODULES, Machine, data_disk_serial
from orchestrator.guest.running_qemu import RunningQemu
from orchestrator.paths import data_dir

_LIMIT = 60.0
"""Host seconds for one command to the agent."""

_QUOTED_LINES = 10


def mount_data(agent: FramedChannel, machine: Machine) -> None:
    """Mount a guest's disks of data, and have modprobe where its kernel's modules are among them. Raises GuestError."""
    for number, disk in enumerate(machine.data):
        result = agent.run(["mount-data", data_disk_serial(number), disk.folder], time_limit=_LIMIT)
        if result.status == 0 and disk.folder.startswith(MODULES):
            result = agent.run(["sh", "-c", _offer_modprobe()], time_limit=_LIMIT)
        if result.status != 0:
            detail = plain_lines(result.stderr)[-_QUOTED_LINES:]
            raise GuestError(f"the data disk {disk.name} cannot be mounted in the guest", detail=detail)


def _offer_modprobe() -> str:
    return (data_dir("images") / "guest" / "offer-modprobe.sh").read_text()


def open_channel(qemu: RunningQemu, machine: Machine, keys: SshKeys | None, deadline: Deadline) -> Channel:
    """The channel of a guest whose agent answers."""
    assert qemu.agent is not None
    if machine.channel == "ssh":
        assert keys is not None
        assert qemu.monitor is not None
        from orchestrator.guest.ssh import SshChannel  # takes a third of a second

        port = qemu.monitor.forwarded_port()
        ssse3 = b"ssse3" in qemu.agent.get("/proc/cpuinfo", time_limit=_LIMIT).split()
        return SshChannel.connect(port, keys.host, keys.client, deadline, ssse3=ssse3)
    if qemu.console_end is not None:
        from orchestrator.guest.serial import SerialChannel

        channel = SerialChannel(qemu.console_end)
        channel.login(machine.login.user, machine.login.password, deadline)
        return channel
    return qemu.agent
