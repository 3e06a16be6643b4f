# SPDX-License-Identifier: GPL-2.0-only
"""A worker on another host: started over ssh, and ended by the connection's end.

The key travels through the connection, and is in no command line. A host is believed to be the one that is meant when
its key is in the user's known_hosts; no other is accepted.
"""

from __future__ import annotations

import shlex
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import paramiko

from orchestrator.fleet.hosts import ssh_parts
from orchestrator.fleet.kept_log import KeptLog
from orchestrator.fleet.orders import WorkerOrder

_CONNECT_LIMIT = 30.0
SILENCE_LIMIT = 300.0
"""Seconds without a word from a host whose worker has not joined. Its lab may be installing packages, and says so."""

_PIECE = 4096


class HostWorker(threading.Thread):
    """A host's worker: the thread runs as long as the connection. ``ended`` gets the reason when it is over."""

    def __init__(
        self, order: WorkerOrder, scheduler: str, key: str, log: KeptLog, ended: Callable[[str], None]
    ) -> None:
        super().__init__(name=f"ssh-{order.name}", daemon=True)
        self._order, self._scheduler, self._key, self._log, self._ended = order, scheduler, key, log, ended
        self._client = paramiko.SSHClient()
        self._stopping = threading.Event()
        self.has_joined = False

    def run(self) -> None:
        """Connect, start the worker, and log what it says until it ends."""
        try:
            why = self._work()
        except paramiko.SSHException as error:
            why = _sentence(self._order, error)
        except (OSError, EOFError, UnicodeError) as error:
            words = (error.strerror if isinstance(error, OSError) else None) or str(error)
            why = f"{self._order.ssh} cannot be reached: {words}" if words else "the connection has ended"
        except Exception as error:  # paramiko raises more, for a line in ~/.ssh too, and the keeper waits for a word
            why = f"{self._order.ssh} cannot be reached: {type(error).__name__}: {error}"
        finally:
            self._client.close()
        if not self._stopping.is_set():
            self._ended(why)

    def stop(self) -> None:
        """End the connection: the worker sees its input's end, and ends with its guests."""
        self._stopping.set()
        self._client.close()

    def _work(self) -> str:
        self._connect()
        transport = self._client.get_transport()
        assert transport is not None
        transport.set_keepalive(15)  # of a host that has gone without a word, nothing else would be noticed
        channel = transport.open_session()
        channel.set_combine_stderr(True)
        # A command may have ended before a server says that it began, and takes no key: its status says why.
        try:
            channel.exec_command(self._command())
        except paramiko.SSHException:
            if channel.exit_status < 0:
                raise
        with suppress(OSError):
            channel.sendall(self._key.encode())
        channel.settimeout(1.0)
        return self._listen(channel)

    def _connect(self) -> None:
        user, host, port = ssh_parts(self._order.ssh)
        settings = _settings_of(host)
        self._client.load_system_host_keys()
        self._client.set_missing_host_key_policy(paramiko.RejectPolicy())
        self._client.connect(
            settings.get("hostname", host),
            port or int(settings.get("port", 22)),
            user or settings.get("user"),
            key_filename=settings.get("identityfile"),
            timeout=_CONNECT_LIMIT,
            banner_timeout=_CONNECT_LIMIT,
            auth_timeout=_CONNECT_LIMIT,
        )

    def _command(self) -> str:
        order = self._order
        words = [order.lab, "fleet", "worker", self._scheduler, "--key-from-stdin", "--name", order.name]
        if order.guests is not None:
            words += ["--guests", str(order.guests)]
        if order.memory_mib is not None:
            words += ["--memory", f"{order.memory_mib}M"]
        return shlex.join(words)

    def _listen(self, channel: paramiko.Channel) -> str:
        line, silent = b"", 0.0
        while True:
            try:
                piece = channel.recv(_PIECE)
            except socket.timeout:  # noqa: UP041 - paramiko's own
                silent += 1.0
                if silent > SILENCE_LIMIT and not self.has_joined:
                    return f"{self._order.ssh} has said nothing for {SILENCE_LIMIT:g} s"
                continue
            silent = 0.0
            *lines, line = (line + piece).split(b"\n")
            for one in [*lines, *([line] if line and (not piece or len(line) > _PIECE) else [])]:
                self._log.line(self._order.name, one.decode(errors="backslashreplace"))
            if len(line) > _PIECE:
                line = b""
            if not piece:
                break
        channel.status_event.wait(_CONNECT_LIMIT)  # it follows the output's end, or the connection has ended, too
        status = channel.exit_status
        return "the connection has ended" if status < 0 else f"its lab has ended with status {status}"


def _settings_of(host: str) -> dict[str, str]:
    """What the user's ~/.ssh/config says of a host: its name, port, user and key."""
    with suppress(OSError, paramiko.ConfigParseError):
        config = paramiko.SSHConfig.from_path(str(Path("~/.ssh/config").expanduser()))
        return {name: value for name, value in config.lookup(host).items() if name != "hostname" or value != host}
    return {}


def _sentence(order: WorkerOrder, error: paramiko.SSHException) -> str:
    if isinstance(error, paramiko.BadHostKeyException):
        return f"{order.ssh} has another host key than the one in known_hosts"
    if "not found in known_hosts" in str(error):
        return f"the host key of {order.ssh} is not in known_hosts: log in once with ssh, and compare it"
    if isinstance(error, paramiko.AuthenticationException):
        return f"{order.ssh} accepts none of this user's ssh keys"
    return f"{order.ssh}: {error}"
