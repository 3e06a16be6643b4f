# SPDX-License-Identifier: GPL-2.0-only
"""A worker on another host: started through ssh, and ended with the connection.

The host must have the key that is in the user's known_hosts.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from orchestrator.fleet.hosts import ssh_parts
from orchestrator.fleet.state import WorkerConfig

_SSH_OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "ConnectTimeout": "30",
    "ServerAliveInterval": "15",  # the only sign of a host that vanished silently
    "ForwardAgent": "no",
    "ForwardX11": "no",
}

_FAILURES = {
    "has changed and you have requested strict": "{} has another host key than the one in known_hosts",
    "host key is known for": "the host key of {} is not in known_hosts: log in once with ssh, and compare it",
    "Permission denied": "{} accepts none of this user's ssh keys",
}
"""OpenSSH's messages, and what they mean."""


def ssh_command(worker: WorkerConfig, words: Sequence[str]) -> list[str]:
    """The command that runs a lab's ``words`` on a worker's host."""
    user, host, port = ssh_parts(worker.ssh)
    options = [f"-o{name}={value}" for name, value in _SSH_OPTIONS.items()]
    options += [] if user is None else ["-l", user]
    options += [] if port is None else ["-p", str(port)]
    return ["ssh", "-T", *options, "--", host, shlex.join([worker.lab, *words])]


def ssh_failure(worker: WorkerConfig, status: int, said: Sequence[str]) -> str:
    """Why a command of ``ssh_command`` ended, from its status and its last lines."""
    if status != 255:
        return f"its lab has ended with status {status}"
    for text, meaning in _FAILURES.items():
        if any(text in line for line in said):
            return meaning.format(worker.ssh)
    return f"{worker.ssh} cannot be reached, or the connection has ended"
