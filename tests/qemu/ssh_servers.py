# SPDX-License-Identifier: GPL-2.0-only
"""SSH servers on the loopback interface: OpenSSH's where the host has it, and paramiko's, which runs commands, too."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko import common

SSHD = Path("/usr/sbin/sshd")
PATIENCE = 600.0
_ANSWER_DELAY = 0.3
"""Seconds before paramiko's server says that a command began: one that ends at once has then ended before."""

_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
StrictModes no
PasswordAuthentication no
UsePAM no
PidFile none
"""


@dataclass(frozen=True)
class Account:
    """A user's home with a key for a server, and what the user knows of the server."""

    home: Path
    port: int

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"


@contextmanager
def openssh(folder: Path) -> Iterator[Account]:
    """An sshd of this user's, with keys of its own."""
    account, _, _ = _prepared(folder)
    (folder / "config").write_text(_CONFIG.format(port=account.port, folder=folder))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # without it sshd refuses to run as root
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "config"], stderr=log)
    try:
        _wait_for(account.port, server, folder / "log")
        yield account
    finally:
        server.terminate()
        server.wait()


@contextmanager
def paramikos(folder: Path) -> Iterator[Account]:
    """A server in this process."""
    account, host_key, user_key = _prepared(folder)
    with socket.create_server(("127.0.0.1", account.port)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # closed
                    return
                transport = paramiko.Transport(connection)
                transport.add_server_key(host_key)
                with suppress(paramiko.SSHException, EOFError):  # a client that does not like us
                    transport.start_server(server=_Server(user_key))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield account
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def _prepared(folder: Path) -> tuple[Account, paramiko.PKey, paramiko.PKey]:
    """A home with a key that the server takes, and with the server's in known_hosts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        account = Account(folder / "home", free.getsockname()[1])
    account.known_hosts.parent.mkdir(mode=0o700, parents=True)
    host_key, user_key = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    host_key.write_private_key_file(str(folder / "host"))
    user_key.write_private_key_file(str(account.known_hosts.parent / "id_ecdsa"))
    (folder / "authorized").write_text(_line(user_key))
    account.known_hosts.write_text(f"[127.0.0.1]:{account.port} {_line(host_key)}")
    return account, host_key, user_key


def _line(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.get_base64()}\n"


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise AssertionError(f"sshd does not run: {log.read_text()}")


class _Server(paramiko.ServerInterface):
    """Takes one key, and runs commands as sshd does: their input ends with the connection."""

    def __init__(self, key: paramiko.PKey) -> None:
        self._key = key

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return common.AUTH_SUCCESSFUL if key == self._key else common.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return common.OPEN_SUCCEEDED if kind == "session" else common.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        process = subprocess.Popen(
            [shutil.which("sh") or "/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        feeder, shower = (
            threading.Thread(target=work, args=(channel, process), daemon=True) for work in (_feed, _show)
        )
        feeder.start()
        shower.start()
        shower.join(_ANSWER_DELAY)
        return True


def _feed(channel: paramiko.Channel, process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError), process.stdin as stdin:
        while piece := channel.recv(4096):
            stdin.write(piece)
            stdin.flush()


def _show(channel: paramiko.Channel, process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        while piece := os.read(output.fileno(), 4096):
            with suppress(OSError):
                channel.sendall(piece)
    with suppress(OSError):
        channel.send_exit_status(process.wait())
        channel.close()
